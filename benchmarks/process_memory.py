"""How much memory this process has. Linux only; what is freed is given back with glibc alone."""

from __future__ import annotations

import ctypes
from pathlib import Path

MIB = 2**20


def resident_mib() -> float:
    """Return the memory of the process that is in RAM now, in MiB."""
    return kib("VmRSS") / 1024


def peak_mib() -> float:
    """Return the most that it was since the process began, in MiB."""
    return kib("VmHWM") / 1024


def return_freed_memory() -> None:
    """Give back what glibc keeps of freed memory; other C libraries have no such call."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def kib(field: str) -> int:
    """Return a field of the system's account of this process, in KiB."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise OSError(f"/proc/self/status has no {field}")
