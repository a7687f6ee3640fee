"""Peak resident memory over the loaded model, each way in a process of its own.

    python -m benchmarks.fine_tuning_memory WAY TYPE TOKENS THREADS

is such a process; it prints the peak in MiB. Before it counts it loads the model, runs the same
way once on a two-layer model (libraries, threads, code), and hands freed memory back to the
system. Linux only: nothing else resets a process's peak.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch
from transformers import GPT2Config
from transformers.utils import logging

from benchmarks.fine_tuning_rivals import engine_steps, peft_steps
from benchmarks.fine_tuning_shapes import GPT2, Shape
from benchmarks.process_memory import peak_mib, reset_peak, resident_mib, return_freed_memory
from benchmarks.report import Report

N_CHUNKS, N_TOKENS = 2, 1024  # of a chunk
WAYS = {  # name → way, type of the base model's numbers, bar
    "plain PEFT loop, fp32": ("plain", "float32", ""),
    "plain PEFT loop, bf16 base": ("plain", "bfloat16", ""),
    "ours, fp32": ("engine", "float32", "memory_fp32_over_plain"),
    "ours, bf16 base": ("engine", "bfloat16", "memory_bf16_over_plain"),
}


def measure(report: Report, *, threads: int, quick: bool) -> None:
    """Hold the engine's peak, with an fp32 and a bf16 base, against the plain fp32 loop's."""
    n_tokens = 256 if quick else N_TOKENS
    case = f"memory, GPT-2, chunks of {n_tokens} tokens"
    report.heading(f"Peak over the loaded model: GPT-2, {N_CHUNKS} chunks of {n_tokens} tokens")
    if not reset_peak():
        report.skip(case, "the system does not reset a process's peak memory")
        return
    plain = 0.0
    for name, (way, dtype, key) in WAYS.items():
        command = [sys.executable, "-m", __spec__.name, way, dtype, str(n_tokens), str(threads)]
        root = Path(__file__).parents[1]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=root)
        peak = float(done.stdout.splitlines()[-1])
        plain = plain or peak
        share = round(peak / plain, 4)
        report.add(
            case=case, method=name, threads=threads, peak_mib=round(peak, 1), over_plain=share
        )
        if key:
            report.judge(f"Peak memory, {name} ÷ plain fp32", share, key, "lower")


def run(way: str, dtype: str, n_tokens: int, threads: int) -> float:
    """Return the peak of a way in this process, which has done nothing else, in MiB."""
    torch.set_num_threads(threads)
    steps = peft_steps if way == "plain" else engine_steps
    language_model = GPT2.language_model(getattr(torch, dtype))
    texts = GPT2.texts(N_CHUNKS, n_tokens)
    little = Shape(name="warm-up", config=GPT2Config(n_layer=2, n_embd=64, n_head=1))
    steps(little.language_model(language_model.model.dtype))(little.texts(N_CHUNKS, 32))
    return_freed_memory()
    before = resident_mib()
    reset_peak()
    steps(language_model)(texts)
    return peak_mib() - before


if __name__ == "__main__":
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    print(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
