"""Peak resident memory over the loaded model, each way in a process of its own.

    python -m benchmarks.fine_tuning_memory '{"way": "engine", "dtype": "bfloat16", ...}'

is such a process; it prints the peak in MiB. Before it counts it loads the model, runs the same
way once on a two-layer model (libraries, threads, code), and hands freed memory back to the
system. Linux only: nothing else resets a process's peak.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import torch
from transformers import GPT2Config
from transformers.utils import logging

from benchmarks.fine_tuning_rivals import peft_steps
from benchmarks.fine_tuning_shapes import Shape, gpt2
from benchmarks.process_memory import MIB, kib, return_freed_memory
from benchmarks.report import Report
from sift_core.answering import FineTuningSettings, LanguageModel
from sift_core.answering.fine_tuning import fine_tuned

N_CHUNKS, N_TOKENS = 2, 1024  # of a chunk
CLEAR_PEAK = Path("/proc/self/clear_refs")
Way: TypeAlias = Literal["plain", "engine"]
WAYS: dict[str, tuple[Way, str]] = {
    "plain PEFT loop, fp32": ("plain", "float32"),
    "plain PEFT loop, bf16 base": ("plain", "bfloat16"),
    "ours, fp32": ("engine", "float32"),
    "ours, bf16 base": ("engine", "bfloat16"),
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one process does with GPT-2's shape.

    Args:
        way: A plain PEFT loop, or ours.
        dtype: Of the base model, a name of torch.
        n_tokens: Of each of the two chunks.
        threads: Of torch.
    """

    way: Way
    dtype: str
    n_tokens: int
    threads: int = 1


def measure(report: Report, *, threads: int, quick: bool) -> None:
    """Hold the engine's peak, with an fp32 and a bf16 base, against the plain fp32 loop's."""
    n_tokens = 256 if quick else N_TOKENS
    case = f"memory, GPT-2, chunks of {n_tokens} tokens"
    report.heading(
        f"Peak memory over the loaded model: GPT-2, {N_CHUNKS} chunks of {n_tokens} tokens"
    )
    if why := why_not():
        report.skip(case, why)
        return
    plain = 0.0
    for name, (way, dtype) in WAYS.items():
        job = Job(way=way, dtype=dtype, n_tokens=n_tokens, threads=threads)
        peak = peak_in_own_process(job)
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


def peak_in_own_process(job: Job) -> float:
    """Return the peak of a job in a process of its own, in MiB over the loaded model.

    Raises:
        subprocess.CalledProcessError: If that process fails; its errors have been printed.
    """
    command = [sys.executable, "-m", "benchmarks.fine_tuning_memory", json.dumps(asdict(job))]
    root = Path(__file__).parents[1]
    printed = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=root
    ).stdout
    return float(printed.splitlines()[-1])


def why_not() -> str:
    """Return why peaks cannot be measured here, "" if they can."""
    try:
        CLEAR_PEAK.write_text("5")
    except OSError as error:
        return f"the system does not reset a process's peak memory: {error}"
    return ""


def run(job: Job) -> float:
    """Return the peak of the job in this process, which has done nothing else, in MiB."""
    torch.set_num_threads(job.threads)
    shape, dtype = gpt2(), getattr(torch, job.dtype)
    language_model = shape.language_model(dtype)
    texts = shape.texts(N_CHUNKS, job.n_tokens)
    little = Shape(name="warm-up", config=GPT2Config(n_layer=2, n_embd=64, n_head=1))
    _learn(job, little.language_model(dtype), little.texts(N_CHUNKS, 32))
    return_freed_memory()
    before = kib("VmRSS")
    CLEAR_PEAK.write_text("5")
    _learn(job, language_model, texts)
    return (kib("VmHWM") - before) * 1024 / MIB


def _learn(job: Job, language_model: LanguageModel, texts: list[str]) -> None:
    if job.way == "plain":
        peft_steps(language_model)(texts)
        return
    with fine_tuned(language_model, texts, FineTuningSettings()):
        pass


if __name__ == "__main__":
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    print(run(Job(**json.loads(sys.argv[1]))))
