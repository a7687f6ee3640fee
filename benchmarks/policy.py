"""Does a policy choose better than always reading or always fine-tuning, in equal time?

    python -m benchmarks.policy --data FOLDER [--documents N] [--steps N] [--quick]
                                [--json FILE] [--plot FILE] [--checkpoint FILE]

Test documents of the mini-Pile in a data folder, the same number a domain; the
first 500 tokens of each are both the query and what is scored. The data space are the documents
of one half of it, the first 256 tokens of each. Every document is scored under
base, context, fine-tuning after a quarter, a half and all of the steps, and both. Seconds are those
of learning and of the first token of an answer to the text.

Regret: a policy's mean bits per byte minus those of the oracle in equal mean time. The oracle
knows bits and seconds of every way beforehand, and takes for each document the least of bits +
price · seconds, at the price at which its mean time is the policy's (benchmarks/policy_scores.py).
Beside it, what a lot drawn between two fixed ways brings in that time: a policy that is no better
knows nothing about documents. Every document is written to the checkpoint as soon as it is
measured; a second run goes on from there. Embeddings are kept too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks import policy_plot
from benchmarks.bars import load_bars
from benchmarks.embedding_cache import CACHE, project_cache
from benchmarks.policy_arms import Row, known, measure, of_decision, of_mode
from benchmarks.policy_data import (
    CHUNK_TOKENS,
    N_CANDIDATES,
    TEXT_TOKENS,
    Document,
    cut,
    pools,
    read_data_space,
    read_test_documents,
)
from benchmarks.policy_scores import interval, mixture, oracle
from benchmarks.records import write_record
from benchmarks.report import Report
from sift_core import AnswerMode
from sift_core.answering import AnswerEngine, FineTuningSettings, LanguageModel
from sift_core.answering.cost_model import CostModel
from sift_core.answering.model.bundled import SMOLLM2
from sift_core.answering.policy import MODES, Decision, Policy, PolicyFeatures, VariancePolicy

PACKAGES = ["numpy", "torch", "transformers", "peft", "sentence-transformers", "sift-rerank"]
ALPHAS = (None, 0.05, 0.1, 0.2)


def measured(
    engine: AnswerEngine,
    documents: Sequence[Document],
    data_space: Sequence[Document],
    checkpoint: Path,
) -> list[Row]:
    """Return a row a document: those of the checkpoint, and those that are missing there."""
    done = {row["id"]: row for row in _rows(checkpoint)}
    missing = [one for one in documents if one.document_id not in done]
    if missing:
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        candidates = pools(missing, data_space, project_cache())
        other = replace(missing[0], text=f"Something else. {missing[0].text[:200]}")
        measure(engine, other, *candidates[0])  # what comes first allocates
        with checkpoint.open("a", encoding="utf-8") as file:
            pairs = zip(missing, candidates, strict=True)
            for one, (query, pool) in tqdm(pairs, total=len(missing), desc="documents"):
                done[one.document_id] = measure(engine, one, query, pool)
                file.write(json.dumps(done[one.document_id]) + "\n")
                file.flush()
    return [done[one.document_id] for one in documents]


def _rows(checkpoint: Path) -> Iterator[Row]:
    """Yield the rows of a checkpoint; a line that an interruption cut short is left out."""
    if not checkpoint.exists():
        return
    text = checkpoint.read_text(encoding="utf-8")
    if text and not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        checkpoint.write_text(text, encoding="utf-8")
    yield from map(json.loads, text.splitlines())


def default_checkpoint(engine: AnswerEngine, data_space: Sequence[Document]) -> Path:
    """Return a file under a key of all that a row depends on but the machine."""
    identity = {
        "format": 2,
        "weights": engine.language_model.fingerprint,
        "settings": asdict(engine.settings),
        "sizes": [engine.n_steps, engine.n_context, N_CANDIDATES, TEXT_TOKENS, CHUNK_TOKENS],
        "selectors": [repr(engine.context_selector), repr(engine.fine_tuning_selector)],
        "data_space": [one.document_id for one in data_space],
    }
    key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    return CACHE.with_name("policy") / f"{key}.jsonl"


class Judge:
    """The documents under every arm, and what policies make of them."""

    def __init__(self, rows: Sequence[Row], costs: CostModel) -> None:
        self.rows = rows
        self.known = [known(row, costs) for row in rows]
        self.arms = list(rows[0]["arms"])
        self.bits, self.seconds = (
            np.array([[row["arms"][arm][name] for arm in self.arms] for row in rows])
            for name in ("bits_per_byte", "seconds")
        )

    def row(self, name: str, bits: np.ndarray, seconds: np.ndarray, chosen: dict[str, int]) -> Row:
        """Return the row of a policy or of a fixed way, with its regret in equal time."""
        mean_s = float(seconds.mean())
        fixed = int(np.argmin(self.bits.mean(axis=0)))
        against = {
            "regret": oracle(self.bits, self.seconds, mean_s),
            "over_base": self.bits[:, self.arms.index("base")],
            "over_lot": mixture(self.bits, self.seconds, mean_s),
            "over_best_fixed": self.bits[:, fixed],
            "over_best_oracle": self.bits.min(axis=1),
        }
        return {
            "part": "policies",
            "policy": name,
            "bits_per_byte": interval(bits),
            "seconds": mean_s,
            **{key: interval(bits - other) for key, other in against.items()},
            "chosen": chosen,
            "n_documents": len(bits),
        }

    def fixed(self, arm: str) -> Row:
        i = self.arms.index(arm)
        return self.row(f"always {arm}", self.bits[:, i], self.seconds[:, i], {arm: len(self.rows)})

    def policy(self, name: str, policy: Policy) -> Row:
        decisions = list(map(policy.decide, self.known))
        outcomes = [of_decision(row, d) for row, d in zip(self.rows, decisions, strict=True)]
        return self.row(
            name,
            np.array([outcome.bits_per_byte for outcome in outcomes]),
            np.array([outcome.seconds for outcome in outcomes]),
            dict(Counter(map(_in_short, decisions))),
        )

    def oracle(self) -> Row:
        best = np.argmin(self.bits, axis=1)
        rows = np.arange(len(best))
        chosen = dict(Counter(self.arms[i] for i in best))
        return self.row("oracle", self.bits[rows, best], self.seconds[rows, best], chosen)


def _in_short(decision: Decision) -> str:
    return decision.mode.value + ("" if decision.n_steps is None else ", fewer steps")


def cost_rows(rows: Sequence[Row], costs: CostModel) -> list[Row]:
    """Return for each mode how far the predicted seconds are from the measured ones."""
    found = []
    for mode in MODES:
        ratios = [
            costs.seconds(known(row, costs), mode) / of_mode(row, mode).seconds for row in rows
        ]
        found.append(
            {
                "part": "costs",
                "mode": mode.value,
                "seconds": float(np.median([of_mode(row, mode).seconds for row in rows])),
                "predicted_over_measured": float(np.median(ratios)),
                "median_error": float(np.median(np.abs(np.array(ratios) - 1))),
                "n_documents": len(rows),
            }
        )
    return found


def signal_rows(rows: Sequence[Row]) -> list[Row]:
    """Return how well each σ² foretells the gain over base: correlations over documents."""
    features = [PolicyFeatures(**row["features"]) for row in rows]
    shares: dict[AnswerMode, Callable[[PolicyFeatures], float]] = {
        AnswerMode.CONTEXT: lambda s: s.explained_read,
        AnswerMode.FINE_TUNE: lambda s: s.explained_learned,
    }
    found = []
    for mode, share in shares.items():
        gains = [
            1 - of_mode(row, mode).bits_per_byte / row["arms"]["base"]["bits_per_byte"]
            for row in rows
        ]
        pair = np.array([list(map(share, features)), gains])
        correlation = float(np.corrcoef(pair)[0, 1]) if pair.std(axis=1).all() else float("nan")
        found.append(
            {
                "part": "signal",
                "mode": mode.value,
                "correlation": correlation,
                "mean_share": float(pair[0].mean()),
                "mean_gain": float(pair[1].mean()),
                "n_documents": len(rows),
            }
        )
    return found


def policy_rows(rows: Sequence[Row], costs: CostModel) -> list[Row]:
    """Return a row each for the fixed ways, the rule, and the oracle."""
    judge = Judge(rows, costs)
    found = [judge.fixed(arm) for arm in judge.arms]
    for alpha in ALPHAS:
        name = "rule" if alpha is None else f"rule, α {alpha:g}"
        found.append(judge.policy(name, VariancePolicy(alpha=alpha)))
    return [*found, judge.oracle()]


def print_policies(rows: Sequence[Row]) -> None:
    print("\nbits per byte, seconds; regret and what a lot brings, in equal time (95 %); chosen")
    for row in rows:
        regret, lot = (
            f"{row[key][0]:+.4f} ({row[key][1]:+.4f} to {row[key][2]:+.4f})"
            for key in ("regret", "over_lot")
        )
        print(
            f"{row['bits_per_byte'][0]:7.4f} {row['seconds']:6.2f} s  {regret}  {lot}  "
            f"{row['policy']}  {row['chosen']}"
        )


def judge_bars(report: Report) -> None:
    rows = {row["policy"]: row for row in report.rows if row["part"] == "policies"}
    over = rows["rule"]["over_lot"][0]
    report.judge("rule: over a lot", over, "rule_over_lot", "lower")
    error = max(row["median_error"] for row in report.rows if row["part"] == "costs")
    report.judge("cost model: median error, worst mode", error, "cost_error", "lower")


def main() -> None:
    arguments = parse()
    language_model = LanguageModel.from_pretrained(arguments.model, device="cpu")
    engine = AnswerEngine(
        language_model=language_model, n_steps=arguments.steps, settings=FineTuningSettings()
    )
    folder = arguments.data / "minipile"
    data_space = cut(
        read_data_space(folder, 240 if arguments.quick else None), language_model, CHUNK_TOKENS
    )
    documents = cut(read_test_documents(folder, arguments.documents), language_model, TEXT_TOKENS)
    checkpoint = arguments.checkpoint or default_checkpoint(engine, data_space)
    costs = CostModel.measure(language_model, engine.settings)
    rows = measured(engine, documents, data_space, checkpoint)
    report = Report(bar_numbers=load_bars("policy"))
    report.rows += policy_rows(rows, costs)
    report.rows += [*cost_rows(rows, costs), *signal_rows(rows)]
    print_policies([row for row in report.rows if row["part"] == "policies"])
    report.heading("Cost model: predicted over measured seconds; σ²: correlation with the gain")
    for row in report.rows:
        if row["part"] == "costs":
            print(f"  {row['mode']:<10} {row['predicted_over_measured']:.2f}×")
        elif row["part"] == "signal":
            print(f"  {row['mode']:<10} {row['correlation']:+.2f}, gain {row['mean_gain']:.1%}")
    report.heading("Bars")
    judge_bars(report)
    report.rows += [{"part": "cost model", **asdict(costs)}, *rows]
    if arguments.plot:
        policy_plot.draw(report.rows, arguments.plot)
    if arguments.json:
        write_record(arguments.json, rows=report.rows, bars=report.bars, packages=PACKAGES)


def parse(options: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options, those of the command line if None."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="has the folder minipile")
    parser.add_argument("--model", default=SMOLLM2, help="name on the hub, or folder")
    parser.add_argument("--documents", type=int, help="test documents; 240, quick: 24")
    parser.add_argument("--steps", type=int, help="of fine-tuning; 20, quick: 2")
    parser.add_argument("--quick", action="store_true", help="240 documents of the data space")
    parser.add_argument("--checkpoint", type=Path, help="where documents are kept as they come")
    parser.add_argument("--json", type=Path, help="where to write the record")
    parser.add_argument("--plot", type=Path, help="where to draw bits against seconds (PNG)")
    arguments = parser.parse_args(options)
    if arguments.documents is None:
        arguments.documents = 24 if arguments.quick else 240
    if arguments.steps is None:
        arguments.steps = 2 if arguments.quick else 20
    return arguments


if __name__ == "__main__":
    main()
