"""What a CPU makes of the bundled model in float32 and bfloat16.

    python -m benchmarks.number_types --data FOLDER [--json FILE]

Both types take turns on one machine: matrix products, the first word after prompts of the demo's
lengths, ten training steps, and bits per byte of ten held-back passages: alone, after their
beginning was read, and after it was learned. The type that `dtype="auto"` takes must be the
quicker one, and bits must agree. Takes three minutes where both types are quick, and half an hour
where bfloat16 is not.
"""

from __future__ import annotations

import argparse
import json
import lzma
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.bars import load_bars
from benchmarks.records import write_record
from benchmarks.report import Report
from sift_core.answering import FineTuningSettings, LanguageModel, fine_tune
from sift_core.answering.fine_tuning import fine_tuned
from sift_core.answering.model.loading import cpu_number_type

PACKAGES = ["numpy", "torch", "transformers"]
DOCUMENTS = "minipile/test_dev.jsonl.xz"
TYPES = ("float32", "bfloat16")
PRODUCT = (512, 576, 1536)  # of the bundled model's widest layer, on 512 tokens
PROMPTS = (522, 687)  # tokens, as in the report of a slow first answer
N_PASSAGES, N_TOKENS = 10, 512  # of each the first half is read or learned, the second scored
N_STEPS, N_LEARNED = 10, 128  # tokens a step
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="has the folder minipile")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="in which speed is measured")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    report = Report(bar_numbers=load_bars("number_types"))
    chosen = cpu_number_type()
    print(f'dtype="auto" takes {chosen.name}, because {chosen.reason}')
    models = {dtype: LanguageModel.from_pretrained(device="cpu", dtype=dtype) for dtype in TYPES}
    texts = passages(arguments.data)
    compare_products(report)
    compare_speed(report, models, texts, chosen.name, rounds=arguments.rounds)
    compare_bits(report, models, texts)
    report.summarize()
    if arguments.json is not None:
        write_record(arguments.json, rows=report.rows, bars=report.bars, packages=PACKAGES)


def passages(data: Path) -> list[str]:
    """Return long documents, each domain's first and then second ones, `N_PASSAGES` in all."""
    found: dict[str, list[str]] = {}
    with lzma.open(data / DOCUMENTS, "rt", encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            if len(line["text"]) > 6 * N_TOKENS:
                found.setdefault(line["domain"], []).append(line["text"])
    firsts, seconds = ([texts[i] for texts in found.values() if len(texts) > i] for i in (0, 1))
    return [*firsts, *seconds][:N_PASSAGES]


def compare_products(report: Report) -> None:
    """Add the rates of a layer's product, and of its gradient's, which lie otherwise in memory."""
    report.heading(f"Matrix products, {' × '.join(map(str, PRODUCT))}, GFLOP/s")
    n, d_in, d_out = PRODUCT
    for dtype in TYPES:
        inputs = torch.randn(n, d_in).to(getattr(torch, dtype))
        weights = torch.randn(d_out, d_in).to(inputs.dtype)
        outputs = inputs @ weights.t()
        pairs = {"layer": (inputs, weights.t()), "gradient": (outputs, weights)}
        for name, (left, right) in pairs.items():
            rate = 2 * n * d_in * d_out / min(timed(partial(torch.mm, left, right), 5)) / 1e9
            add(report, "products", name, dtype, gflop_s=round(rate, 1))


def compare_speed(
    report: Report,
    models: Mapping[str, LanguageModel],
    texts: Sequence[str],
    chosen: str,
    *,
    rounds: int,
) -> None:
    """Add the seconds of reading and learning; the types take turns."""
    report.heading("Seconds, medians")
    work: dict[str, Callable[[LanguageModel], object]] = {}
    for n in PROMPTS:
        prompt = cut(models["float32"], texts[0], n)
        work[f"first word after {n} tokens"] = lambda lm, prompt=prompt: lm.generate(
            prompt, max_new_tokens=1
        )
    chunks = [cut(models["float32"], text, N_LEARNED) for text in texts[:N_STEPS]]
    work[f"{N_STEPS} training steps"] = lambda lm: fine_tune(lm, chunks)
    for name, do in work.items():
        taken: dict[str, list[float]] = {dtype: [] for dtype in TYPES}
        for _ in range(rounds):
            for dtype in TYPES:
                taken[dtype] += timed(partial(do, models[dtype]), 1)
        seconds = {dtype: statistics.median(found) for dtype, found in taken.items()}
        for dtype in TYPES:
            add(report, "speed", name, dtype, seconds=round(seconds[dtype], 2))
        other = next(dtype for dtype in TYPES if dtype != chosen)
        ratio = seconds[chosen] / seconds[other]
        report.judge(f"{name}: {chosen} over {other}", ratio, "chosen_over_other", "lower")


def compare_bits(report: Report, models: Mapping[str, LanguageModel], texts: Sequence[str]) -> None:
    """Add bits per byte of each passage's second half in three modes, and how far types differ."""
    report.heading(f"Bits per byte of {len(texts)} held-back passages")
    bits: dict[str, dict[str, list[float]]] = {}
    for dtype, lm in models.items():
        modes = bits[dtype] = {"alone": [], "read": [], "learned": []}
        for text in texts:
            begun, held = halves(models["float32"], text)
            modes["alone"].append(lm.bits_per_byte(held))
            modes["read"].append(lm.bits_per_byte(held, context=begun))
            ids = lm.token_ids(begun)
            pieces = [lm.tokenizer.decode(ids[:N_LEARNED]), lm.tokenizer.decode(ids[N_LEARNED:])]
            with fine_tuned(lm, pieces, FineTuningSettings()):
                modes["learned"].append(lm.bits_per_byte(held))
    for mode in ("alone", "read", "learned"):
        for dtype in TYPES:
            mean = statistics.fmean(bits[dtype][mode])
            add(report, "bits per byte", mode, dtype, bits_per_byte=round(mean, 4))
        apart = statistics.fmean(bits["bfloat16"][mode]) / statistics.fmean(bits["float32"][mode])
        largest = 100 * np.abs(np.divide(bits["bfloat16"][mode], bits["float32"][mode]) - 1).max()
        add(report, "one passage's largest difference", mode, "both", percent=round(largest, 2))
        report.judge(f"{mode}: types apart, %", abs(apart - 1) * 100, "bits_apart", "lower")


def cut(lm: LanguageModel, text: str, n_tokens: int) -> str:
    return str(lm.tokenizer.decode(lm.token_ids(text)[:n_tokens]))


def halves(lm: LanguageModel, text: str) -> tuple[str, str]:
    ids = lm.token_ids(text)[:N_TOKENS]
    begun, held = ids[: N_TOKENS // 2], ids[N_TOKENS // 2 :]
    return str(lm.tokenizer.decode(begun)), str(lm.tokenizer.decode(held))


def timed(do: Callable[[], object], n: int) -> list[float]:
    """Return the seconds of n calls after one that is not counted, where there are several."""
    if n > 1:
        do()
    taken = []
    for _ in range(n):
        started = time.perf_counter()
        do()
        taken.append(time.perf_counter() - started)
    return taken


def add(report: Report, case: str, name: str, dtype: str, **figures: float) -> None:
    """Add and print a row."""
    report.rows.append({"case": case, "name": name, "dtype": dtype, **figures})
    printed = ", ".join(f"{value:g} {unit}" for unit, value in figures.items())
    print(f"  {name}, {dtype}: {printed}", flush=True)


if __name__ == "__main__":
    main()
