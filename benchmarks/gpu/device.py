"""What the device is and can do at most, and how long something takes on it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import torch

from benchmarks.fine_tuning_rivals import time_on
from benchmarks.report import Report

# Dense products in bfloat16, TFLOP/s, from NVIDIA's data sheets, which state twice that for sparse
# ones. The first name that is a part of the device's counts. "H100 80GB HBM3" is the SXM module.
PEAK_TFLOPS = {
    "H100 NVL": 835.5,
    "H100 PCIe": 756.5,
    "H100 80GB HBM2e": 756.5,  # the PCIe card under older drivers
    "H100": 989.4,
    "H200 NVL": 835.5,
    "H200": 989.4,
}
LONGEST_S = 10.0  # after which nothing is repeated


def measure(report: Report, device: torch.device, *, tiny: bool) -> None:
    """Add the names and versions of the device, and what a large product reaches."""
    report.add(
        device=name_of(device),
        **driver_facts(),
        torch=torch.__version__,
        cuda=torch.version.cuda,
        peak_bf16_tflops=peak_tflops(name_of(device)),
        product_bf16_tflops=round(product_tflops(device, 128 if tiny else 8192), 4),
    )


def name_of(device: torch.device) -> str:
    """Return the GPU's name, "cpu" without one."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def peak_tflops(name: str) -> float | None:
    """Return a device's peak by its name; None if the table does not list it."""
    return next((peak for part, peak in PEAK_TFLOPS.items() if part in name), None)


def driver_facts() -> dict[str, str]:
    """Return the driver's version and the memory as nvidia-smi tells them, if it is there."""
    fields = "driver_version,memory.total"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        driver, memory = printed.stdout.splitlines()[0].split(", ")
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return {"driver": "unknown"}
    return {"driver": driver, "memory": memory}


def product_tflops(device: torch.device, n: int) -> float:
    """Return what a product of two n × n matrices of random numbers in bfloat16 reaches."""
    one, other = (torch.randn(n, n, device=device).to(torch.bfloat16) for _ in range(2))
    return 2 * n**3 / min(seconds_of(lambda: one @ other, device, repeats=20)) / 1e12


def seconds_of(
    call: Callable[[], object], device: torch.device, *, repeats: int, warm_up: int = 3
) -> list[float]:
    """Return the wall-clock time of each of at most `repeats` calls, until the device is idle.

    Calls in `warm_up` come first and do not count: they load kernels and reserve memory. After
    `LONGEST_S` no further call begins, but one always does.
    """
    for _ in range(warm_up):
        call()
    taken: list[float] = []
    until = time.perf_counter() + LONGEST_S
    while len(taken) < repeats and (not taken or time.perf_counter() < until):
        begin = time_on(device)
        call()
        taken.append(time_on(device) - begin)
    return taken
