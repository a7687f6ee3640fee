"""Peak resident memory over the loaded model, each way in a process of its own.

    python -m benchmarks.fine_tuning_memory '{"way": "engine", "shape": "gpt2", ...}'

is such a process; it prints what it found as JSON. Before it counts it loads the model, runs the
same way once on a two-layer model (libraries, threads, code), and hands freed memory back to the
system. Linux only: nothing else resets a process's peak.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Literal, TypeAlias

import torch
from transformers import GPT2Config
from transformers.utils import logging

from benchmarks.fine_tuning_rivals import peft_steps
from benchmarks.fine_tuning_shapes import Shape, gpt2, small_llama
from benchmarks.process_memory import MIB, kib, return_freed_memory
from benchmarks.report import Report
from sift_core.answering import FineTuningSettings, LanguageModel, fine_tuned

N_TOKENS = 1024  # of a chunk
CLEAR_PEAK = Path("/proc/self/clear_refs")
Way: TypeAlias = Literal["plain", "engine", "context"]
WAYS: dict[str, tuple[Way, str]] = {
    "plain PEFT loop, fp32": ("plain", "float32"),
    "plain PEFT loop, bf16 base": ("plain", "bfloat16"),
    "ours, fp32": ("engine", "float32"),
    "ours, bf16 base": ("engine", "bfloat16"),
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one process does.

    Args:
        way: A plain PEFT loop, ours, or the chunks in the prompt.
        shape: "gpt2" or the small Llama.
        window: Of the small Llama.
        n_new: Tokens that are generated afterwards; 0 for none.
        rounds: How often it is done again for the time; 0 for memory alone.
    """

    way: Way
    n_chunks: int
    n_tokens: int
    shape: Literal["gpt2", "small"] = "small"
    window: int = 1024
    dtype: str = "float32"
    n_new: int = 0
    rounds: int = 0
    threads: int = 1


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Peak memory over the loaded model, and the median time (NaN where none was taken)."""

    peak_mib: float
    seconds: float


def cost_in_own_process(job: Job) -> Cost:
    """Return what the job takes in a process of its own.

    Raises:
        subprocess.CalledProcessError: If that process fails; its errors have been printed.
    """
    command = [sys.executable, "-m", "benchmarks.fine_tuning_memory", json.dumps(asdict(job))]
    root = Path(__file__).parents[1]
    printed = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=root
    ).stdout
    return Cost(**json.loads(printed.splitlines()[-1]))


def measure(report: Report, *, threads: int, quick: bool) -> None:
    """Hold the engine's peak, with an fp32 and a bf16 base, against the plain fp32 loop's."""
    n_tokens = 256 if quick else N_TOKENS
    case = f"memory, GPT-2, chunks of {n_tokens} tokens"
    report.heading(f"Peak memory over the loaded model: GPT-2, two chunks of {n_tokens} tokens")
    if why := why_not():
        report.skip(case, why)
        return
    plain = 0.0
    for name, (way, dtype) in WAYS.items():
        job = Job(
            way=way, shape="gpt2", dtype=dtype, n_chunks=2, n_tokens=n_tokens, threads=threads
        )
        peak = cost_in_own_process(job).peak_mib
        plain = plain or peak
        report.rows.append(
            {
                "case": case,
                "method": name,
                "threads": threads,
                "peak_mib": round(peak, 1),
                "over_plain": round(peak / plain, 4),
            }
        )
        print(f"  {peak:>8.0f} MiB {peak / plain:>6.3f}×  {name}", flush=True)
        if way == "engine":
            short = "fp32" if dtype == "float32" else "bf16"
            key = f"memory_{short}_over_plain"
            report.judge(f"Peak memory, ours {short} ÷ plain fp32", peak / plain, key, "lower")


def why_not() -> str:
    """Return why peaks cannot be measured here, "" if they can."""
    try:
        CLEAR_PEAK.write_text("5")
    except OSError as error:
        return f"the system does not reset a process's peak memory: {error}"
    return ""


def run(job: Job) -> Cost:
    """Do the job in this process, which has done nothing else."""
    torch.set_num_threads(job.threads)
    shape = gpt2() if job.shape == "gpt2" else small_llama(job.window)
    dtype = getattr(torch, job.dtype)
    language_model = shape.language_model(dtype)
    texts = shape.texts(job.n_chunks, job.n_tokens)
    little = Shape(name="warm-up", config=GPT2Config(n_layer=2, n_embd=64, n_head=1))
    _do(job, little.language_model(dtype), little.texts(min(job.n_chunks, 2), 32))
    return_freed_memory()
    before = kib("VmRSS")
    CLEAR_PEAK.write_text("5")
    _do(job, language_model, texts)
    peak_mib = (kib("VmHWM") - before) * 1024 / MIB
    seconds = []
    for _ in range(job.rounds):
        started = time.perf_counter()
        _do(job, language_model, texts)
        seconds.append(time.perf_counter() - started)
    return Cost(peak_mib=peak_mib, seconds=median(seconds) if seconds else float("nan"))


def _do(job: Job, language_model: LanguageModel, texts: list[str]) -> None:
    if job.way == "plain":
        peft_steps(language_model)(texts)
    elif job.way == "engine":
        with fine_tuned(language_model, texts, FineTuningSettings()):
            _write(language_model, [], job.n_new)
    else:
        _write(language_model, texts, job.n_new)


def _write(language_model: LanguageModel, texts: list[str], n_new: int) -> None:
    """Continue the texts and a question of 32 tokens by exactly `n_new` tokens."""
    if n_new:
        question = " ".join(f"w{i}" for i in range(1, 33))
        language_model.generate(
            " ".join([*texts, question]), max_new_tokens=n_new, min_new_tokens=n_new
        )


if __name__ == "__main__":
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    print(json.dumps(asdict(run(Job(**json.loads(sys.argv[1]))))))
