"""How much of what fifty steps teach comes in a tenth of their time, and with which settings?

    python -m benchmarks.learning_frontier --data FOLDER [--tune]
        [--results FILE] [--json FILE] [--markdown FILE]

Prompts of the mini-Pile's test part learn SIFT's first chunks of the data space of
`benchmarks.language_modeling`, each way from the model as it is. The gain of a way is how far the
prompt's bits per byte fall; its share is that of the gains of "thorough", the paper's fifty steps,
mean over mean. Time is processor time of one thread, in the same run. `--tune` takes the grid, on
prompts that no other experiment judges by; without it the efforts of `sift_core.answering` are
judged on others. Rows go to a file as they come; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig

from benchmarks.bars import load_bars
from benchmarks.embedding_cache import CACHE
from benchmarks.language_modeling.arms import MainSettings
from benchmarks.language_modeling.documents import token_spans
from benchmarks.language_modeling.experiment import LanguageModelingExperiment, PreparedExperiment
from benchmarks.language_modeling.measuring import PromptTask
from benchmarks.language_modeling.running import ResultsFile, Row, read_rows
from benchmarks.records import write_record
from benchmarks.report import Report
from benchmarks.table import Table, number, word
from sift_core.answering import FineTuningSettings, LanguageModel, fine_tuned
from sift_core.answering.learning.effort import EFFORTS
from sift_core.answering.model.bundled import SMOLLM2

PACKAGES = ["numpy", "torch", "transformers", "peft", "sentence-transformers", "sift-rerank"]
TUNING_SKIP = 5  # prompts of each domain: the first five are those of benchmarks.language_modeling
ATTENTION, QUERIES = ("q_proj", "k_proj", "v_proj", "o_proj"), ("q_proj",)
RESULTS = CACHE.with_name("learning_frontier") / "results.jsonl"
POINTS = (1, 2, 3, 5, 8, 12, 16, 25, 50)


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to learn.

    Args:
        n_chunks: How many of the chosen chunks, in order.
        rate: Of Adam.
        schedule: Of the rate.
        scope: What learns.
        rank: Of the LoRA.
        targets: Its linear layers; all if None.
        chunk_tokens: How much of each chunk's beginning.
    """

    n_chunks: int = 50
    rate: float = 5e-4
    schedule: str = "constant"
    scope: str = "all"
    rank: int = 64
    targets: tuple[str, ...] | None = None
    chunk_tokens: int = 256

    @property
    def settings(self) -> FineTuningSettings:
        """As the engine takes them."""
        lora = None
        if self.targets is not None or self.rank != 64:
            targets = list(self.targets) if self.targets else "all-linear"
            # The update's scale is alpha / rank: the paper's, whatever the rank.
            lora = LoraConfig(r=self.rank, lora_alpha=self.rank // 4, target_modules=targets)
        return FineTuningSettings(
            lora=lora,
            learning_rate=self.rate,
            schedule=self.schedule,  # type: ignore[arg-type]  # checked there
            scope=self.scope,
        )


THOROUGH = Way()
TUNED = [
    THOROUGH,
    Way(rate=1e-3, schedule="linear"),
    *(Way(n_chunks=12, rate=rate) for rate in (1e-3, 2e-3, 4e-3)),
    *(Way(n_chunks=12, rate=rate, schedule="linear") for rate in (1e-3, 2e-3, 4e-3)),
    *(Way(n_chunks=5, rate=rate, schedule="linear") for rate in (2e-3, 4e-3)),
    Way(n_chunks=12, rate=2e-3, rank=16),
    Way(n_chunks=12, rate=2e-3, scope="top:15"),
    Way(n_chunks=12, rate=2e-3, targets=ATTENTION),
    Way(n_chunks=12, rate=4e-3, targets=QUERIES),
    Way(n_chunks=24, rate=2e-3, chunk_tokens=128),
    Way(n_chunks=12, rate=3e-3, schedule="linear"),
    Way(n_chunks=5, rate=3e-3),
    Way(n_chunks=20, rate=2e-3, schedule="linear", chunk_tokens=128),
]


def measured(
    model: LanguageModel,
    tasks: Sequence[PromptTask],
    ways: Sequence[Way],
    file: ResultsFile,
    *,
    is_tuning: bool,
) -> None:
    """Add a row for every prompt and way that the file lacks."""
    for n, task in enumerate(tasks, start=1):
        for way in ways:
            key = _digest([task.experiment, task.prompt["id"], asdict(way)])
            if key not in file.keys:
                row = {"key": key, "experiment": task.experiment, "is_tuning": is_tuning}
                file.append({**row, **row_of(model, task, way)})
        print(f"{n} of {len(tasks)} prompts", flush=True)


def row_of(model: LanguageModel, task: PromptTask, way: Way) -> Row:
    """Return bits per byte and processor seconds of learning after so many chunks."""
    # The first of the arms is the base model.
    chosen = [task.pool.texts[position] for position in task.arms[-1].positions[: way.n_chunks]]
    texts = [_beginning(model, text, way.chunk_tokens) for text in chosen]
    points: list[tuple[int, float, float]] = []
    scoring = 0.0
    begin = time.process_time()

    def score(n: int) -> None:
        nonlocal scoring
        started = time.process_time()
        if n == 0 or n in POINTS or n == len(texts):
            bits = model.bits_per_byte(task.text)
            points.append((n, round(bits, 6), round(started - begin - scoring, 3)))
        scoring += time.process_time() - started

    with fine_tuned(model, texts, way.settings, on_state=score) as tuned:
        pass
    return {
        "prompt": task.prompt,
        "way": asdict(way),
        "points": points,
        "stop_reason": tuned.report.stop_reason,
    }


def _beginning(model: LanguageModel, text: str, n_tokens: int) -> str:
    spans = token_spans(model, text)[:n_tokens]
    return text[: spans[-1][1]] if spans else text


def _digest(record: Any) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def of_efforts() -> list[Way]:
    """Return the named efforts as they are judged, the paper's setting first."""
    return [
        THOROUGH,
        *(
            Way(
                n_chunks=effort.n_steps,
                rate=effort.of(FineTuningSettings()).step_size,
                schedule=effort.schedule,
            )
            for name, effort in EFFORTS.items()
            if name != "thorough"
        ),
    ]


def summary(rows: Sequence[Row], *, tuning: bool) -> list[Row]:
    """Return a row for every way and number of chunks: share of the gain, and of the time.

    Both are ratios of sums over the prompts that the way and `THOROUGH` were measured on; the
    interval is a 90 % bootstrap interval over prompts.
    """
    of_way: dict[str, dict[str, Row]] = {}
    for row in rows:
        if "way" in row and row["is_tuning"] == tuning:
            name = json.dumps(row["way"], sort_keys=True)
            of_way.setdefault(name, {})[row["prompt"]["id"]] = row
    full = of_way.get(json.dumps(asdict(THOROUGH), sort_keys=True), {})
    found = []
    for by_prompt in of_way.values():
        pairs = [(row, full[name]) for name, row in by_prompt.items() if name in full]
        for i in range(1, len(pairs[0][0]["points"]) if pairs else 0):
            gains = np.array([(_gain(row, i), _gain(whole, -1)) for row, whole in pairs])
            times = np.array(
                [(row["points"][i][2], whole["points"][-1][2]) for row, whole in pairs]
            )
            low, high = _interval(gains)
            found.append(
                {
                    **pairs[0][0]["way"],
                    "after_chunks": pairs[0][0]["points"][i][0],
                    "n_prompts": len(pairs),
                    "gain_share": _ratio(gains),
                    "low": low,
                    "high": high,
                    "time_share": _ratio(times),
                    "seconds": float(times[:, 0].mean()),
                    "percent_of_base": float(
                        np.mean([100 * r["points"][i][1] / r["points"][0][1] for r, _ in pairs])
                    ),
                }
            )
    return found


def _gain(row: Row, i: int) -> float:
    points = row["points"]
    return float(points[0][1] - points[i][1])


def _ratio(pairs: np.ndarray) -> float:
    return float(pairs[:, 0].sum() / pairs[:, 1].sum())


def _interval(pairs: np.ndarray) -> tuple[float, float]:
    generator = np.random.default_rng(0)
    drawn = generator.integers(len(pairs), size=(10_000, len(pairs)))
    sums = pairs[drawn].sum(axis=1)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], [0.05, 0.95])
    return float(low), float(high)


def table(rows: Sequence[Row], title: str) -> Table:
    """Return the last point of every way, the most gain first."""
    last = [row for row in rows if row["after_chunks"] == row["n_chunks"]]
    return Table(
        title=title,
        heads=("way", "prompts", "% of base", "share of the gain", "share of the time"),
        rows=tuple(
            (
                word(_name(row)),
                number(row["n_prompts"], 0),
                number(row["percent_of_base"], 1),
                word(f"{row['gain_share']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"),
                number(row["time_share"], 2),
            )
            for row in sorted(last, key=lambda row: -row["gain_share"])
        ),
        note="Gain: fall of the prompt's bits per byte, ratio of sums to that of 50 steps at the "
        "paper's rate, with a 90 % bootstrap interval over prompts. Time: of one thread.",
    )


def _name(row: Row) -> str:
    parts = [f"{row['n_chunks']} chunks", f"rate {row['rate']:g}"]
    usual = asdict(THOROUGH)
    for key in ("schedule", "scope", "rank", "targets", "chunk_tokens"):
        if row[key] != usual[key]:
            value = row[key] if not isinstance(row[key], list | tuple) else " ".join(row[key])
            parts.append(f"{key} {value}")
    return ", ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="has the folder minipile; none for the tables")
    parser.add_argument("--tune", action="store_true", help="the grid, on prompts of its own")
    parser.add_argument("--prompts", type=int, help="of each domain; 3, --tune: 1")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where rows are kept")
    parser.add_argument("--json", type=Path, help="where to write the record")
    parser.add_argument("--markdown", type=Path, help="where to write the tables")
    arguments = parser.parse_args()
    if arguments.data is not None:
        measure(arguments)
    rows = read_rows(arguments.results)
    judged, tuned = (summary(rows, tuning=one) for one in (False, True))
    shown = [
        table(judged, "Efforts, on prompts that tuning did not see"),
        table(tuned, "Ways that were tried, on prompts of their own"),
    ]
    for one in shown:
        print(f"\n{one.as_text()}")
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(one.as_markdown() for one in shown))
    report = Report(bar_numbers=load_bars("learning_frontier"), rows=[*judged, *tuned])
    report.heading("Bars")
    for name, effort in EFFORTS.items():
        steps = effort.n_steps
        for row in judged:
            if name != "thorough" and row["n_chunks"] == row["after_chunks"] == steps:
                report.judge(f"{name}, gain", row["gain_share"], f"{name}_gain", "higher")
                report.judge(f"{name}, time", row["time_share"], f"{name}_time", "lower")
    if arguments.json:
        write_record(arguments.json, rows=report.rows, bars=report.bars, packages=PACKAGES)


def measure(arguments: argparse.Namespace) -> None:
    """Add to the file what it lacks."""
    torch.set_num_threads(1)
    folder = arguments.data / "minipile"
    experiment = LanguageModelingExperiment(
        data_space=folder / "train.jsonl.xz",
        prompts=folder / "test_dev.jsonl.xz",
        base_model=SMOLLM2,
        documents_per_domain=250,
        prompts_per_domain=arguments.prompts or (1 if arguments.tune else 3),
        skipped_per_domain=TUNING_SKIP if arguments.tune else 0,
        near_duplicates=folder / "neardup_test_dev.jsonl",
        device="cpu",
    )
    with ResultsFile(arguments.results) as file:
        prepared = PreparedExperiment(experiment, cache_folder=CACHE)
        file.append(prepared.record())
        tasks = prepared.tasks([MainSettings().learning("SIFT")], ())
        ways = TUNED if arguments.tune else of_efforts()
        measured(experiment.load_model(), tasks, ways, file, is_tuning=arguments.tune)


if __name__ == "__main__":
    main()
