"""Do adapters learned beforehand, one a cluster of the documents, stand in for learning a query?

    python -m benchmarks.merged_adapters --data FOLDER [--part recipes,tune,test,warm]
        [--clusters 12,24,48] [--results FILE] [--json FILE]

A k-means of the chunks' vectors makes clusters; an adapter learns each of them once. At a prompt
the adapters are weighted and summed, and the prompt's bits per byte are taken: after Bertolissi et
al. (2025), "Local Mixtures of Experts: Essentially Free Test-Time Training via Model Merging",
arXiv 2505.14136. Beside it learning SIFT's 50 chunks for the prompt, the paper's way. How adapters
learn ("recipes") and how they are weighted ("tune") is chosen on prompts that "test" and "warm"
(fine-tuning that starts from the sum) do not see. Time is processor time of one thread. Rows go to
a file as they come; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.bars import load_bars
from benchmarks.embedding_cache import CACHE
from benchmarks.language_modeling.arms import MainSettings
from benchmarks.language_modeling.measuring import PromptTask
from benchmarks.language_modeling.running import ResultsFile, Row
from benchmarks.merged_adapters_laboratory import (
    Laboratory,
    Recipe,
    Weighting,
    curve,
    merged,
    prepared_for,
    shares,
)
from benchmarks.records import write_record
from benchmarks.report import Report
from sift_core.answering import FineTuningSettings
from sift_core.answering.learning.effort import EFFORTS
from sift_core.answering.learning.settings import LORA_LEARNING_RATE, Schedule
from sift_core.types import FloatArray

RESULTS = CACHE.with_name("merged_adapters") / "results.jsonl"
PACKAGES = ["numpy", "torch", "transformers", "faiss-cpu", "sentence-transformers", "sift-rerank"]
ABOUT = ("kind", "clusters", "recipe", "way", "is_warm", "rate", "schedule")  # an arm
PARTS = ("recipes", "tune", "warm-tune", "test", "warm")
QUARTER = 12  # of 50 chunks
CLUSTERS = 24  # of which bars are


RECIPES = (Recipe(), Recipe(rate=2e-3), Recipe(alpha=4.0, rate=2e-3))
USED = Recipe()
NEAREST, UNIFORM = Weighting(at_most=1), Weighting(by="uniform", at_most=10**6, average=True)
TUNED = [
    NEAREST,
    UNIFORM,
    *(Weighting(beta=beta) for beta in (5.0, 10.0, 20.0, 40.0)),
    *(Weighting(beta=beta, at_most=3) for beta in (5.0, 10.0, 20.0)),
    *(Weighting(beta=beta, average=True) for beta in (5.0, 10.0, 20.0)),
    *(Weighting(beta=10.0, strength=strength) for strength in (1.5, 2.0, 3.0)),
    *(Weighting(by="sift", at_most=at_most) for at_most in (3, 10)),
    Weighting(by="sift", strength=1.5),
]


CHOSEN = Weighting(beta=10.0, at_most=3)
JUDGED = [
    NEAREST,
    UNIFORM,
    CHOSEN,
    Weighting(beta=10.0),
    Weighting(beta=10.0, average=True),
    Weighting(by="sift", at_most=3),
]


@dataclass(frozen=True, kw_only=True)
class Quarter:
    """How a quarter of the chunks is learned: with what rate, from the merged adapter or afresh."""

    is_warm: bool = True
    rate: float = 1e-3
    schedule: Schedule = "linear"


BALANCED = EFFORTS["balanced"]
COLD = Quarter(is_warm=False, rate=BALANCED.rate_factor * LORA_LEARNING_RATE)
WARM = Quarter()


def score_merged(laboratory: Laboratory, task: PromptTask, n: int, way: Weighting) -> Row:
    """Return bits per byte with the merged adapter, and what it took."""
    adapters = laboratory.experts(n, USED)
    begin = time.process_time()
    weights = shares(laboratory, task, n, way)
    adapter = merged(adapters, weights, average=way.average)
    with laboratory.model.adapted(adapter):
        seconds = time.process_time() - begin
        bits = laboratory.model.bits_per_byte(task.text)
    scoring = time.process_time() - begin - seconds
    return {
        "bits": round(bits, 6),
        "n_experts": int(np.count_nonzero(weights)),
        "seconds": round(seconds, 4),
        "scoring_s": round(scoring, 3),
    }


def base(laboratory: Laboratory, task: PromptTask) -> float:
    what = {"kind": "base"}
    return laboratory.add(
        task, what, lambda: {"bits": round(laboratory.model.bits_per_byte(task.text), 6)}
    )["bits"]


def recipes(laboratory: Laboratory, tasks: Sequence[PromptTask], n: int) -> None:
    """Take the curve of each prompt's nearest cluster, by recipe."""
    clusters = laboratory.clusters(n)
    for recipe in RECIPES:
        twice = replace(recipe, epochs=2) if recipe == USED else recipe
        for task in tasks:
            query = laboratory.prepared.space.prompts[task.prompt["id"]]
            rows = clusters.rows(int((clusters.centroids @ query).argmax()))
            what = {"kind": "recipe", "clusters": n, "recipe": asdict(twice)}
            texts = laboratory.lessons(rows, twice)
            laboratory.add(
                task,
                what,
                lambda task=task, texts=texts, own=twice: curve(
                    laboratory, task, texts, own.settings
                ),
            )
        print(f"recipe {recipe}", flush=True)


def weighted(
    laboratory: Laboratory, tasks: Sequence[PromptTask], n: int, ways: Sequence[Weighting]
) -> None:
    """Score each way to weight the adapters of n clusters."""
    for way in ways:
        what = {"kind": "merged", "clusters": n, "recipe": asdict(USED), "way": asdict(way)}
        for task in tasks:
            laboratory.add(
                task, what, lambda task=task, way=way: score_merged(laboratory, task, n, way)
            )


def learned(laboratory: Laboratory, tasks: Sequence[PromptTask]) -> list[Row]:
    """Return the curve of learning SIFT's chunks for each prompt, the paper's settings."""
    rows = []
    for task in tasks:
        texts = [task.pool.texts[position] for position in task.arms[-1].positions]
        rows.append(
            laboratory.add(
                task,
                {"kind": "learned"},
                lambda task=task, texts=texts: curve(laboratory, task, texts, FineTuningSettings()),
            )
        )
        print(f"{len(rows)} of {len(tasks)} prompts learned", flush=True)
    return rows


def quarters(
    laboratory: Laboratory, tasks: Sequence[PromptTask], n: int, ways: Sequence[Quarter]
) -> None:
    """Take the curve of learning a quarter of SIFT's chunks, each way."""
    for way in ways:
        what = {"kind": "quarter", **asdict(way), **({"clusters": n} if way.is_warm else {})}
        for task in tasks:

            def learned(task: PromptTask = task, way: Quarter = way) -> Row:
                start = None
                if way.is_warm:
                    weights = shares(laboratory, task, n, CHOSEN)
                    start = merged(laboratory.experts(n, USED), weights, average=CHOSEN.average)
                texts = [task.pool.texts[p] for p in task.arms[-1].positions[:QUARTER]]
                # Of a warm start rank and alpha are the merged adapter's.
                settings = FineTuningSettings(learning_rate=way.rate, schedule=way.schedule)
                return curve(laboratory, task, texts, settings, start)

            laboratory.add(task, what, learned)
        print(f"{way}", flush=True)


def summary(rows: Sequence[Row], prompts: Sequence[str]) -> list[dict[str, Any]]:
    """Return a line for every arm that all of these prompts have, the largest gain first.

    "gain" is the mean fall of bits per byte, "share" that gain over the gain of learning 50
    chunks, where that was measured, with a 90 % interval over prompts; "seconds" the mean of
    processor time before the prompt is scored.
    """
    arms: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row.get("prompt") in prompts and row["kind"] != "recipe":
            arm = {name: row[name] for name in ABOUT if name in row}
            arms.setdefault(json.dumps(arm), {})[row["prompt"]] = row
    bits = {name: _points(own, prompts) for name, own in arms.items() if len(own) == len(prompts)}
    before = bits.pop(json.dumps({"kind": "base"}))[0][0]
    full = bits.get(json.dumps({"kind": "learned"}), {})
    most = before - full[max(full)][0] if full else None
    drawn = np.random.default_rng(0).integers(len(prompts), size=(10_000, len(prompts)))
    found = []
    for arm, points in bits.items():
        for step, (own, seconds) in points.items():
            gain = before - own
            line = {
                "arm": json.loads(arm),
                "steps": step,
                "n_prompts": len(prompts),
                "gain": round(float(gain.mean()), 4),
                "seconds": round(float(seconds.mean()), 3),
                "better_than_base": int((gain > 0).sum()),
            }
            if most is not None:
                shares_drawn = gain[drawn].mean(1) / most[drawn].mean(1)
                low, high = np.quantile(shares_drawn, (0.05, 0.95))
                line["share"] = round(float(gain.mean() / most.mean()), 3)
                line["share_90"] = [round(float(low), 3), round(float(high), 3)]
                line["better_than_learned"] = int((gain > most).sum())
            found.append(line)
    return sorted(found, key=lambda line: -line["gain"])


def _points(
    rows: dict[str, Row], prompts: Sequence[str]
) -> dict[int, tuple[FloatArray, FloatArray]]:
    """Return bits per byte and seconds of all prompts, by step."""
    curves = [
        rows[one].get("points") or [(0, rows[one]["bits"], rows[one].get("seconds", 0.0))]
        for one in prompts
    ]
    steps = sorted(set.intersection(*({point[0] for point in own} for own in curves)))
    by_step = [{point[0]: point[1:] for point in own} for own in curves]
    return {
        step: (
            np.array([own[step][0] for own in by_step]),
            np.array([own[step][1] for own in by_step]),
        )
        for step in steps
    }


def told(line: dict[str, Any]) -> str:
    share = ""
    if "share" in line:
        low, high = line["share_90"]
        share = f"share {line['share']:.2f} [{low:.2f}, {high:.2f}]  "
    return (
        f"gain {line['gain']:.4f}  {share}{line['seconds']:7.3f} s  steps {line['steps']:2}  "
        f"better {line['better_than_base']}/{line['n_prompts']}  {line['arm']}"
    )


def judge(report: Report, lines: Sequence[dict[str, Any]]) -> None:
    """Hold what was found on the prompts that judge against the bars."""
    full = max((one for one in lines if one["arm"]["kind"] == "learned"), key=_steps)
    way = {"way": asdict(CHOSEN), "clusters": CLUSTERS}
    for one in lines:
        if one["arm"]["kind"] == "merged" and way.items() <= one["arm"].items():
            report.judge("gain of merging over that of 50 steps", one["share"], "merged_share")
            times = full["seconds"] / one["seconds"]
            report.judge("times as fast as 50 steps", times, "merged_times_as_fast")
        if one["arm"]["kind"] == "quarter" and one["arm"]["is_warm"] and one["steps"] == QUARTER:
            report.judge("gain of 12 steps after merging, likewise", one["share"], "warm_share")


def _steps(line: dict[str, Any]) -> int:
    return line["steps"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="has the folder minipile")
    parser.add_argument("--part", default="tune,test", help=", ".join(PARTS))
    parser.add_argument("--clusters", default=str(CLUSTERS), help="how many, with commas between")
    parser.add_argument("--documents", type=int, default=40, help="of each domain")
    parser.add_argument("--prompts", type=int, default=2, help="of each domain, to judge by")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where rows are kept")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parts = set(arguments.part.split(","))
    if unknown := parts - set(PARTS):
        parser.error(f"no part {min(unknown)!r}; there are {', '.join(PARTS)}")
    numbers = [int(n) for n in arguments.clusters.split(",")]
    report = Report(bar_numbers=load_bars("merged_adapters"))
    with ResultsFile(arguments.results) as file:
        for name, own in (("tuning", PARTS[:3]), ("test", PARTS[3:])):
            if parts.isdisjoint(own):
                continue
            prepared = prepared_for(
                arguments.data,
                tuning=name == "tuning",
                prompts=arguments.prompts,
                documents=arguments.documents,
            )
            file.append(prepared.record())
            tasks = prepared.tasks([MainSettings().learning("SIFT")], ())
            laboratory = Laboratory(prepared, file, RESULTS.parent)
            print(f"{len(prepared.chunks)} chunks, {len(tasks)} prompts", flush=True)
            measure(laboratory, tasks, parts, numbers)
            prompts = [task.prompt["id"] for task in tasks]
            of_these = [row for row in file.rows if row["experiment"] == prepared.digest]
            found = summary([row for row in of_these if "kind" in row], prompts)
            print("\n".join(map(told, found)), flush=True)
            report.rows += [{"prompts": name, **line} for line in found]
            if name == "test":
                judge(report, found)
    if arguments.json is not None:
        write_record(arguments.json, rows=report.rows, bars=report.bars, packages=PACKAGES)


def measure(
    laboratory: Laboratory, tasks: Sequence[PromptTask], parts: set[str], numbers: Sequence[int]
) -> None:
    """Add the rows of some parts."""
    for task in tasks:
        base(laboratory, task)
    if parts & {"test", "warm"}:
        learned(laboratory, tasks)
    if "recipes" in parts:
        recipes(laboratory, tasks, 48)
    if "tune" in parts:
        for n in numbers:
            weighted(laboratory, tasks, n, TUNED)
    if "warm-tune" in parts:
        ways = [Quarter(rate=rate) for rate in (5e-4, 1e-3, 2e-3)]
        quarters(laboratory, tasks, numbers[0], ways)
    if "test" in parts:
        for n in numbers:
            weighted(laboratory, tasks, n, JUDGED)
    if "warm" in parts:
        quarters(laboratory, tasks, numbers[0], [WARM, COLD])


if __name__ == "__main__":
    main()
