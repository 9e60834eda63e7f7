"""What this machine offers and lacks, and what to do about it.

Standard library only: `flitnet doctor` must speak before anything is installed. Each check is a
function from nothing to a Finding; the list below is the order in which they are shown.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GOOD, POOR, LACKS = "good", "poor", "lacks"  # lacks: the demo or the tests cannot run


@dataclass(frozen=True)
class Finding:
    name: str
    state: str
    found: str
    advice: str = ""


def operating_system() -> Finding:
    release: dict[str, str] = {}
    for line in Path("/etc/os-release").read_text().splitlines():
        key, _, value = line.partition("=")
        release[key] = value.strip('"')
    found = f"{release.get('PRETTY_NAME', 'unknown')}, kernel {platform.release()}"
    if release.get("VERSION_CODENAME") == "bookworm":
        return Finding("system", GOOD, found)
    return Finding("system", POOR, found, "built and tested on Debian 12; use a container of it")


def cores() -> Finding:
    count = len(os.sched_getaffinity(0))
    quota = _cpu_quota()
    if quota is not None and quota < count:
        return Finding(
            "cores", POOR if quota < 2 else GOOD, f"{count}, limited to {quota:g} by cgroup"
        )
    if count >= 2:
        return Finding("cores", GOOD, str(count))
    return Finding("cores", POOR, "1", "emulated time will slow down (dilation): use 2 cores")


def _cpu_quota() -> float | None:
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if limit == "max" else int(limit) / int(period)


def memory() -> Finding:
    available = 0
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) >> 10
    if available >= 2048:
        return Finding("memory", GOOD, f"{available} MiB available")
    return Finding("memory", POOR, f"{available} MiB available", "2 GiB are needed for 8 nodes")


def packages() -> Finding:
    if not shutil.which("dpkg-query"):
        return Finding("packages", LACKS, "no dpkg", "use Debian 12, or a container of it")
    wanted = {}  # and whether every command asks for it
    for line in (ROOT / "tools" / "packages.txt").read_text().splitlines():
        name, mark, _ = line.partition("#")
        if name.strip():
            wanted[name.strip()] = not mark
    listed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package}\\n", *wanted],
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    have = {line.split()[1] for line in listed if line.startswith("ii")}
    missing = [name for name in wanted if name not in have]
    if not missing:
        return Finding("packages", GOOD, f"{len(wanted)} of {len(wanted)}")
    root = os.getuid() == 0
    names = ", ".join(missing)
    command = "apt-get update && apt-get install --no-install-recommends " + " ".join(missing)
    installer = "demo" if all(wanted[name] for name in missing) else "test"
    advice = f"./flitnet {installer} installs them" if root else f"as root: {command}"
    return Finding("packages", LACKS, f"missing: {names}", advice)


def build() -> Finding:
    directory = Path(os.environ.get("FLITNET_BUILD") or ROOT / "build")
    if (directory / "fabric/daemon/fabricd").exists():
        return Finding("build", GOOD, str(directory))
    if "FLITNET_BUILD" in os.environ:
        return Finding("build", LACKS, f"none in FLITNET_BUILD={directory}", "unset FLITNET_BUILD")
    return Finding("build", POOR, "not built yet", "./flitnet demo builds it")


def io_uring() -> Finding:
    number = {"x86_64": 425, "aarch64": 425}.get(platform.machine())
    if number is None:
        return Finding("io_uring", POOR, f"unknown on {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    parameters = ctypes.create_string_buffer(120)
    fd = libc.syscall(number, 4, parameters)
    if fd >= 0:
        os.close(fd)
        return Finding("io_uring", GOOD, "allowed")
    error = os.strerror(ctypes.get_errno())
    advice = "the UDP attachment needs it: sysctl kernel.io_uring_disabled=0, or seccomp's profile"
    return Finding("io_uring", POOR, error, advice)


def packet_sockets() -> Finding:
    found = []
    for name, family in (("AF_PACKET", socket.AF_PACKET), ("AF_XDP", 44)):
        try:
            socket.socket(family, socket.SOCK_RAW).close()
            found.append(name)
        except OSError as error:
            found.append(f"no {name} ({error.strerror})")
    good = not any(word.startswith("no ") for word in found)
    advice = "" if good else "only the ethdev attachment needs them: run as root"
    return Finding("packet sockets", GOOD if good else POOR, ", ".join(found), advice)


def network_namespaces() -> Finding:
    # A child, so that this process stays where it is.
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    if done.returncode == 0:
        return Finding("network namespaces", GOOD, "allowed")
    return Finding(
        "network namespaces", POOR, "not allowed", "two tests of the UDP attachment are skipped"
    )


def ptrace_scope() -> Finding:
    path = Path("/proc/sys/kernel/yama/ptrace_scope")
    scope = int(path.read_text()) if path.exists() else 0
    if scope <= 1:
        return Finding("ptrace scope", GOOD, f"{scope}")
    return Finding(
        "ptrace scope",
        POOR if os.getuid() == 0 else LACKS,
        str(scope),
        "hcad reads the memory of programs: sysctl kernel.yama.ptrace_scope=1",
    )


def process_vm() -> Finding:
    """process_vm_readv on ourselves: what seccomp profiles of containers forbid."""
    libc = ctypes.CDLL(None, use_errno=True)

    class Iovec(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    source, target = ctypes.create_string_buffer(b"x", 1), ctypes.create_string_buffer(1)
    remote = Iovec(ctypes.addressof(source), 1)
    local = Iovec(ctypes.addressof(target), 1)
    done = libc.process_vm_readv(
        os.getpid(), ctypes.byref(local), 1, ctypes.byref(remote), 1, 0
    )
    if done == 1:
        return Finding("process_vm_readv", GOOD, "allowed")
    error = os.strerror(ctypes.get_errno())
    return Finding("process_vm_readv", LACKS, error, "docker: --cap-add SYS_PTRACE")


def shared_memory() -> Finding:
    try:
        fd = os.memfd_create("flitnet-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        return Finding("memfd", LACKS, error.strerror or str(error), "kernel 4.14 or later")
    os.close(fd)
    return Finding("memfd", GOOD, "with seals")


def hugepages() -> Finding:
    count = int(Path("/proc/sys/vm/nr_hugepages").read_text())
    return Finding("hugepages", GOOD, f"{count} reserved (none are needed)")


def file_limit() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= 1024:
        return Finding("open files", GOOD, f"{soft} (at most {hard})")
    return Finding("open files", POOR, str(soft), "ulimit -n 1024")


def clock() -> Finding:
    """The kernel's clock source, and by how much a sleep of 1 ms oversleeps on this machine."""
    path = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    source = path.read_text().strip() if path.exists() else "unknown"
    late_us = []
    for _ in range(200):
        begin = time.monotonic_ns()
        time.sleep(0.001)
        late_us.append((time.monotonic_ns() - begin - 1_000_000) / 1000)
    late_us.sort()
    found = f"{source}; 1 ms sleeps are late by {late_us[100]:.0f} us, p99 {late_us[198]:.0f} us"
    if "constant_tsc" not in Path("/proc/cpuinfo").read_text():
        return Finding("clock", POOR, found, "no constant TSC: expect dilation")
    if late_us[198] > 5000:
        return Finding("clock", POOR, found, "busy machine: emulated time slows down, not wrong")
    return Finding("clock", GOOD, found)


CHECKS = (
    operating_system, cores, memory, packages, build, io_uring, packet_sockets, network_namespaces,
    ptrace_scope, process_vm, shared_memory, hugepages, file_limit, clock,
)  # fmt: skip


def examine() -> list[Finding]:
    """Runs every check; one that cannot run is a finding too."""
    findings = []
    for check in CHECKS:
        try:
            findings.append(check())
        except (OSError, ValueError, AttributeError) as error:
            findings.append(Finding(check.__name__.replace("_", " "), POOR, f"unknown ({error})"))
    return findings


def main(argv: list[str]) -> int:
    """Prints the findings; 1 when something lacks without which nothing runs."""
    if argv not in ([], ["--json"]):
        if asked := argv in (["--help"], ["-h"]):
            print("usage: flitnet doctor [--json]\n\nWhat this machine offers and lacks.")
        else:
            print(f"flitnet: doctor {' '.join(argv)}: it takes --json alone", file=sys.stderr)
        return 0 if asked else 2
    findings = examine()
    lacking = [finding for finding in findings if finding.state == LACKS]
    if argv:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
        return 1 if lacking else 0
    for finding in findings:
        advice = f"\n{'':28}-> {finding.advice}" if finding.advice else ""
        print(f"{finding.state:>6}  {finding.name:<19} {finding.found}{advice}")
    poor = sum(finding.state == POOR for finding in findings)
    print(f"{len(findings) - poor - len(lacking)} good, {poor} poor, {len(lacking)} lacking")
    return 1 if lacking else 0
