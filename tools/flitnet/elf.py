"""What a program's file tells about itself before it runs."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from pathlib import Path

SYMBOL_TABLE = 2  # SHT_SYMTAB: not the dynamic one, which says what a program takes from libraries
SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
UNDEFINED = 0
SYSFS = "/sys/class/infiniband"  # where programs look for devices and counters


def defines(program: Path, name: str) -> bool:
    """Whether a 64-bit little-endian ELF file has the symbol within it, as a program linked with a
    static library has. False of what is no such file, or was stripped."""
    return _holds(program, lambda image: _defines(image, name.encode()))


def reads_sysfs(program: str | None, command: list[str]) -> bool:
    """Whether it reads what the exporter writes, as far as can be seen: a command with such a path,
    or a program or script with one in its file (ibstat, perftest). What it starts, or its
    libraries, is not looked at."""
    in_file = program and _holds(Path(program), lambda image: image.find(SYSFS.encode()) >= 0)
    return bool(in_file) or any(SYSFS in word for word in command)


def _holds(program: Path, question: Callable[[mmap.mmap], bool]) -> bool:
    try:
        with program.open("rb") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
                return question(image)
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
