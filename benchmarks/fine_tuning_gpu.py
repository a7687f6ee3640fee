"""Fine-tuning on a GPU: tokens a second, their share of the device's peak, a whole query.

Run by `benchmarks.fine_tuning`; needs CUDA. All bases in bf16 with random weights, made on the
device.

Share of the peak: floating-point operations that one token at least takes, over what a large
bf16 matrix product reaches on this very device. A token takes 2 for each frozen weight forward
and 2 backward (for the gradient of its input; frozen weights have none), and 6 for each of the
LoRA. Attention over n tokens adds 4·L·n·D·2 forward and backward, not counted: under 5 % here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from benchmarks import fine_tuning_rivals as rivals
from benchmarks.fine_tuning_cases import SETTINGS, add_row
from benchmarks.fine_tuning_shapes import Shape, gpt2, llama_1b, llama_3b
from benchmarks.report import Report
from benchmarks.selection_gpu import median_seconds
from sift_core.answering import LanguageModel, fine_tune, fine_tuned

CASE = "GPU"
N_TOKENS = 512
N_STEPS = 10  # beyond the steps that do not count
N_CHUNKS = 50  # of a whole query
N_NEW = 32
MIB = 2**20
OURS, PLAIN = "ours", "plain PEFT loop"


def measure(report: Report, *, rounds: int = 5) -> None:
    """Measure every shape where there is a GPU; else say so."""
    report.heading(f"GPU: bf16 bases, chunks of {N_TOKENS} tokens")
    if not torch.cuda.is_available():
        report.skip(CASE, "no CUDA device")
        return
    peak = bf16_peak()
    print(f"  {torch.cuda.get_device_name()}, {peak / 1e12:.0f} TFLOP/s in bf16")
    for shape in (gpt2(), llama_1b(), llama_3b()):
        one_shape(report, shape, peak, rounds)
        torch.cuda.empty_cache()


def one_shape(report: Report, shape: Shape, peak: float, rounds: int) -> None:
    """Measure ours and a plain loop, and hold them against bars."""
    print(f"  {shape.name}")
    language_model = shape.language_model(torch.bfloat16, "cuda")
    plain_model = shape.language_model(torch.bfloat16, "cuda")
    ways: dict[str, Callable[[int, int], None]] = {  # n_steps, seed
        OURS: lambda n, seed: _ours(language_model, shape, n, seed),
        PLAIN: lambda n, seed: _plain(plain_model, shape, n, seed),
    }
    rates = tokens_a_second(language_model, ways, rounds)
    flops = flops_a_token(shape.model(device="meta"), SETTINGS.rank)
    for name, rate in rates.items():
        add_row(
            report,
            f"{CASE}, {shape.name}, {N_TOKENS} tokens",
            name,
            threads=torch.get_num_threads(),
            device=torch.cuda.get_device_name(),
            tokens_a_second=round(rate),
            over_plain=round(rate / rates[PLAIN], 3),
            share_of_peak=round(rate * flops / peak, 4),
            peak_tflops=round(peak / 1e12, 1),
            peak_mib=round(peak_mib(ways[name])),
        )
    query_s = query_seconds(language_model, shape, rounds)
    case = f"{CASE}, a query of {N_CHUNKS} chunks and {N_NEW} new tokens"
    add_row(report, case, shape.name, threads=torch.get_num_threads(), seconds=round(query_s, 4))
    if shape.name == gpt2().name:
        over_plain = rates[OURS] / rates[PLAIN]
        report.judge("GPU, GPT-2: ours ÷ plain PEFT", over_plain, "gpu_gpt2_over_plain")
    if shape.name == llama_1b().name:
        report.judge("GPU, 1 B: share of peak", rates[OURS] * flops / peak, "gpu_share_of_peak_1b")
        report.judge("GPU, 1 B: ours ÷ plain PEFT", rates[OURS] / rates[PLAIN], "gpu_1b_over_plain")
        report.judge("GPU, 1 B: query of 50 chunks, s", query_s, "gpu_query_of_50_s", "lower")


def tokens_a_second(
    language_model: LanguageModel, ways: dict[str, Callable[[int, int], None]], rounds: int
) -> dict[str, float]:
    """Return learned tokens a second: what more steps take longer, so that set-up cancels."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for round_ in range(rounds + 1):
        for name, way in ways.items():
            seconds = []
            for n_steps in (2, 2 + N_STEPS):
                torch.cuda.synchronize()
                started = time.perf_counter()
                way(n_steps, round_)
                torch.cuda.synchronize()
                seconds.append(time.perf_counter() - started)
            if round_:  # the first warms up
                rates[name].append(N_STEPS * N_TOKENS / (seconds[1] - seconds[0]))
    return {name: median(values) for name, values in rates.items()}


def _ours(language_model: LanguageModel, shape: Shape, n_steps: int, seed: int) -> None:
    fine_tune(language_model, shape.texts(n_steps, N_TOKENS, seed=seed), SETTINGS)


def _plain(language_model: LanguageModel, shape: Shape, n_steps: int, seed: int) -> None:
    rivals.peft_steps(language_model)(shape.texts(n_steps, N_TOKENS, seed=seed))


def query_seconds(language_model: LanguageModel, shape: Shape, rounds: int) -> float:
    """Return the median time to learn 50 new chunks and to write an answer."""
    seconds = []
    for round_ in range(rounds + 1):
        texts = shape.texts(N_CHUNKS, N_TOKENS, seed=500 + round_)
        torch.cuda.synchronize()
        started = time.perf_counter()
        with fine_tuned(language_model, texts, SETTINGS):
            language_model.generate("w1 w2 w3 w4", max_new_tokens=N_NEW, min_new_tokens=N_NEW)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return median(seconds[1:])


def peak_mib(way: Callable[[int, int], None]) -> float:
    """Return the peak of device memory over what is there already."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    way(2, 0)
    return (torch.cuda.max_memory_allocated() - before) / MIB


def flops_a_token(model: Any, rank: int) -> int:
    """Return what learning one token takes at least, attention itself not counted."""
    frozen = lora = 0
    head = model.get_output_embeddings()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear | Conv1D):
            n_in, n_out = module.weight.shape
            frozen += n_in * n_out
            lora += 0 if module is head else rank * (n_in + n_out)
    return 4 * frozen + 6 * lora


def bf16_peak(n: int = 8192) -> float:
    """Return the floating-point operations a second of a large product in bf16."""
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * n**3 / median_seconds(torch, lambda: a @ b, 21)
