"""Both link flavours of the verbs library export what Debian's libibverbs promises (nm compares).

usage: symbols.py PRELOAD DROPIN FILES ORIGINAL
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXTENSIONS = {"flitnet_now", "flitnet_rejected_by", "flitnet_set_launch"}
# Linked into the preloaded flavour never: the real library behind it serves these.
NOT_PRELOADED = ("_kern", "ibv_register_driver")
# In front of the C library's, for /dev/infiniband/rdma_cm (hca/verbs/cm_file.cc) and umad0
# (hca/verbs/umad_file.cc), /sys/class/infiniband (hca/verbs/redirect.cc, counter_file.cc), names of
# nodes (hca/verbs/hosts.cc) and their interfaces (hca/verbs/interfaces.cc).
FILES = {
    "open", "open64", "write", "close", "close_range", "closefrom", "dup", "dup2",
    "dup3", "fcntl", "fcntl64", "fstat",
    "read", "__read_chk", "pread", "pread64", "__pread_chk", "__pread64_chk",
    "fopen", "fopen64", "openat", "openat64", "stat", "stat64", "lstat", "lstat64", "fstatat",
    "fstatat64", "statx", "access", "faccessat", "opendir", "chdir", "scandir",
    "scandir64", "readlink", "realpath", "fstat64", "__fxstat", "__fxstat64", "__open_2",
    "__open64_2", "__openat_2", "__openat64_2", "__xstat", "__xstat64", "__lxstat", "__lxstat64",
    "__fxstatat", "__fxstatat64", "__readlink_chk", "__realpath_chk",
    "getaddrinfo", "gethostbyname", "gethostbyname2", "gethostbyname_r", "gethostbyname2_r",
    "connect", "sendmmsg", "sendmsg", "sendto",
    "getifaddrs", "freeifaddrs", "ioctl", "if_nametoindex", "if_indextoname",
}  # fmt: skip
SKIPPED = 77


def exported(library: str) -> dict[str, str]:
    """Name -> version, "" without one."""
    argv = ["nm", "-D", "--defined-only", "--with-symbol-versions", library]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    found: dict[str, str] = {}
    for line in lines:
        _, kind, name = line.split()
        name, _, version = name.partition("@")
        if kind not in "TBDWVR" or name == version.lstrip("@"):
            continue
        # "@@" is the version that programs are linked to; "@" an older one beside it.
        if name not in found or version.startswith("@"):
            found[name] = version.lstrip("@")
    return found


def problems(preload: str, dropin: str, files: str, original: str) -> list[str]:
    wanted = exported(original)
    if not any(version == "IBVERBS_PRIVATE_34" for version in wanted.values()):
        return []  # another rdma-core than the one whose private symbols we promise
    ours = exported(dropin)
    found = [f"drop-in: {n} is {ours.get(n, 'missing')}, not {v}" for n, v in wanted.items()
             if ours.get(n) != v]  # fmt: skip
    found += [f"drop-in: {n} is no symbol of libibverbs" for n in ours.keys() - wanted.keys()
              if n not in EXTENSIONS]  # fmt: skip
    if exported(files) != dict.fromkeys(FILES, ""):
        found.append(f"files: exports {sorted(exported(files).items())}")
    unversioned = exported(preload)
    found += [f"preload: {n} has version {v}" for n, v in unversioned.items() if v]
    public = {n for n, v in wanted.items() if v != "IBVERBS_PRIVATE_34"}
    needed = {n for n in public if not any(part in n for part in NOT_PRELOADED)}
    needed |= EXTENSIONS | FILES
    found += [f"preload: {name} is missing" for name in sorted(needed - unversioned.keys())]
    extra = unversioned.keys() - needed - {"ibv_query_gid_type"}
    return found + [f"preload: {name} leaks" for name in sorted(extra)]


def main() -> int:
    preload, dropin, files, original = sys.argv[1:5]
    if not Path(original).exists():
        print(f"no {original}: package libibverbs1")
        return SKIPPED
    found = problems(preload, dropin, files, original)
    print("\n".join(found) or "both flavours export what they promise")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
