"""What a program's file tells about itself before it runs."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

SYMBOL_TABLE = 2  # SHT_SYMTAB: not the dynamic one, which says what a program takes from libraries
SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
UNDEFINED = 0


def defines(program: Path, name: str) -> bool:
    """Whether a 64-bit little-endian ELF file has the symbol within it, as a program linked with a
    static library has. False of what is no such file, or was stripped."""
    try:
        with program.open("rb") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
                return _defines(image, name.encode())
    except (OSError, ValueError, struct.error):  # not to be read, empty or cut short
        return False


def _defines(image: mmap.mmap, name: bytes) -> bool:
    if image[:6] != b"\x7fELF\x02\x01":
        return False
    (start,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    sections = [SECTION.unpack_from(image, start + i * size) for i in range(count)]
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind != SYMBOL_TABLE or link >= count:
            continue
        names, names_bytes = sections[link][4:6]
        place = image.find(b"\0" + name + b"\0", names, names + names_bytes)
        if place < 0:
            continue
        for at in range(offset, offset + length, SYMBOL.size):
            symbol, _, _, section, _, _ = SYMBOL.unpack_from(image, at)
            if symbol == place + 1 - names and section != UNDEFINED:
                return True
    return False
