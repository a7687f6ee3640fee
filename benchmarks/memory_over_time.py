"""Does a process grow with the fine-tunings that it has done?

    python -m benchmarks.memory_over_time [--fine-tunings 300] [--json FILE]

The bundled model, one thread. Every fine-tuning is the effort "quick" on five other
texts, each of another length up to 256 tokens, and a few tokens are written with what was learned.
Resident memory has what glibc keeps of freed memory; what the heap has handed out has not.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.bars import load_bars
from benchmarks.process_memory import resident_mib, used_mib
from benchmarks.records import write_record
from benchmarks.report import Report
from sift_core.answering import FineTuningSettings, LanguageModel, fine_tuned
from sift_core.answering.learning.effort import EFFORTS
from sift_core.answering.model.bundled import SMOLLM2

PACKAGES = ["numpy", "torch", "transformers", "peft", "sift-rerank"]
N_TEXTS, N_TOKENS, N_NEW = 5, 256, 4
SETTLED, EVERY = 50, 50  # fine-tunings before growth is judged, and between two rows


def measure(report: Report, n: int) -> None:
    """Fine-tune n times; a row for the first time and every fiftieth."""
    torch.set_num_threads(1)
    model = LanguageModel.from_pretrained(SMOLLM2, device="cpu")
    generator = np.random.default_rng(0)
    begin = time.perf_counter()
    used = {}
    report.heading("Memory of the process")
    for done in range(1, n + 1):
        _learn_and_answer(model, generator)
        if done == 1 or done % EVERY == 0:
            used[done] = used_mib()
            row = {
                "fine_tunings": done,
                "resident_mib": round(resident_mib()),
                "used_mib": round(used[done]),
                "seconds": round(time.perf_counter() - begin),
            }
            report.rows.append(row)
            print("  ", ", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    if n > SETTLED:
        grown = max(used.values()) - used[SETTLED]
        report.judge(f"MiB in use, grown after the first {SETTLED}", grown, "grown_mib", "lower")


def _learn_and_answer(model: LanguageModel, generator: np.random.Generator) -> None:
    texts = []
    for n_tokens in generator.integers(20, N_TOKENS, N_TEXTS):
        tokens = generator.integers(100, model.tokenizer.vocab_size, n_tokens)
        texts.append(model.tokenizer.decode(tokens.tolist()))
    with fine_tuned(model, texts, EFFORTS["quick"].of(FineTuningSettings())):
        model.generate("What is this about?", max_new_tokens=N_NEW)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fine-tunings", type=int, default=300, help="how many")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    report = Report(bar_numbers=load_bars("memory_over_time"))
    measure(report, arguments.fine_tunings)
    if arguments.json:
        write_record(arguments.json, rows=report.rows, bars=report.bars, packages=PACKAGES)


if __name__ == "__main__":
    main()
