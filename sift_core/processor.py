"""What this machine's processor can compute, and how many of its CPUs this process may use."""

from __future__ import annotations

import math
import os
import sys
from functools import cache
from pathlib import Path, PurePosixPath

THREAD_VARIABLES = ("MKL_NUM_THREADS", "OMP_NUM_THREADS")  # PyTorch heeds the first
BFLOAT16_INSTRUCTIONS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # AVX-512, AMX, Arm
# Sums of products of eight-bit numbers in one instruction: VNNI, AMX, Arm's dot product.
EIGHT_BIT_INSTRUCTIONS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp"})


def n_threads() -> int:
    """Return how many threads should compute.

    `MKL_NUM_THREADS` decides, then `OMP_NUM_THREADS`, as in PyTorch. Without them it is
    `usable_cpus`.
    """
    variable = thread_variable()
    return usable_cpus() if variable is None else _number_in(variable)


def thread_variable() -> str | None:
    """Return the variable that sets the number of threads.

    Return None if none of `THREAD_VARIABLES` holds a whole number above 0.
    """
    return next((name for name in THREAD_VARIABLES if _number_in(name)), None)


def _number_in(variable: str) -> int:
    """Return the number in a variable, of a list for nested levels the first; 0 if none is."""
    first = os.environ.get(variable, "").partition(",")[0].strip()
    return int(first) if first.isdecimal() else 0


def usable_cpus(root: Path = Path("/")) -> int:
    """Return how many CPUs this process may use, >= 1.

    The CPUs that the process is bound to count, and on Linux the limit of its control group
    (version 2, `cpu.max`), which containers have. A share of a CPU is rounded up. joblib counts
    in the same way, but takes a tenth of a second to import and reads only the outermost group.

    Args:
        root: Where the folders `proc` and `sys` are. The default is the system's own.
    """
    limit = _limit_of_control_group(root)
    return _bound_cpus() if limit is None else min(_bound_cpus(), max(1, math.ceil(limit)))


def limit_torch_threads() -> None:
    """Have PyTorch use no more threads than `usable_cpus`, in this whole process.

    PyTorch does not know a container's limit: with more threads than CPUs they wait for one
    another. Nothing is changed if a variable sets the threads, or if PyTorch uses fewer already.
    """
    import torch

    if thread_variable() is None and torch.get_num_threads() > usable_cpus():
        torch.set_num_threads(usable_cpus())


@cache
def instructions() -> frozenset[str] | None:
    """Return the names of the processor's instruction sets as Linux has them.

    Return None where the system does not tell them, as macOS and Windows.
    """
    return instructions_in(Path("/proc/cpuinfo"))


def instructions_in(path: Path) -> frozenset[str] | None:
    """Return the instruction sets of the first processor in a file like `/proc/cpuinfo`.

    Return None if the file cannot be read, or has no such line.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        title, _, names = line.partition(":")
        if title.strip() in ("flags", "Features"):  # x86, Arm
            return frozenset(names.split())
    return None


def _bound_cpus() -> int:
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _limit_of_control_group(root: Path) -> float | None:
    """Return the least CPU limit of this process's group and those above it; None without one."""
    try:
        text = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    lines = text.splitlines()
    own = next((line[len("0::") :] for line in lines if line.startswith("0::")), None)
    if own is None:  # version 1 alone
        return None
    group = PurePosixPath(own.lstrip("/"))
    found = [_limit_in(root / "sys/fs/cgroup" / place) for place in (group, *group.parents)]
    return min((limit for limit in found if limit is not None), default=None)


def _limit_in(folder: Path) -> float | None:
    """Return the CPUs that `cpu.max` of one group allows; None if it allows all."""
    try:
        quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # "max 100000" is no limit
        return None
