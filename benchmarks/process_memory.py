"""How much memory this process has. Linux only; what is freed is given back with glibc alone."""

from __future__ import annotations

import ctypes
from pathlib import Path

_CLEAR_REFS = Path("/proc/self/clear_refs")


def reset_peak() -> bool:
    """Let the peak begin anew; return whether the system can do that."""
    try:
        _CLEAR_REFS.write_text("5")
    except OSError:
        return False
    return True


def resident_mib() -> float:
    """Return the memory of the process that is in RAM now, in MiB."""
    return _mib("VmRSS")


def peak_mib() -> float:
    """Return the most that it was since `reset_peak`, in MiB."""
    return _mib("VmHWM")


def return_freed_memory() -> None:
    """Give back what glibc keeps of freed memory; other C libraries have no such call."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _mib(field: str) -> float:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/self/status has no {field}")
