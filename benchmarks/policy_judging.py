"""What the rows of the benchmark of policies say: policies against the best way for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.language_modeling.running import Row
from benchmarks.policy_data import PASSAGES
from benchmarks.report import Report
from benchmarks.table import Table, missing, number, word
from sift_core import AnswerMode
from sift_core.answering.calibration import Calibration, MeasuredExample
from sift_core.answering.policy import (
    LEARNING,
    CostModel,
    Strategy,
    VariancePolicy,
)
from sift_core.evaluation.statistics import mean
from sift_core.types import FloatArray

BUDGETS = (0.5, 2.0, 5.0, 15.0)  # seconds
LABELS = ("nothing", "passages", "other half", "passages and other half")
BASE, CONTEXT = Strategy(AnswerMode.BASE), Strategy(AnswerMode.CONTEXT)


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """One kind of examples of one collection, in every way.

    Args:
        collection: Its name.
        kind: Of the examples.
        ways: w, base first.
        examples: n.
        answer_tokens: Of each.
    """

    collection: str
    kind: str
    ways: tuple[Strategy, ...]
    examples: tuple[MeasuredExample, ...]
    answer_tokens: tuple[int, ...]

    @property
    def bits(self) -> FloatArray:
        """Bits per byte in per cent of the mean of base's, shape (n, w)."""
        bits = np.array([one.bits_per_byte for one in self.examples])
        return np.asarray(100 * bits / bits[:, 0].mean())

    @property
    def seconds(self) -> FloatArray:
        """Of learning and reading, shape (n, w)."""
        return np.array([one.seconds for one in self.examples])

    def only(self, rows: Sequence[int]) -> Measured:
        """Return some of the examples."""
        return replace(
            self,
            examples=tuple(self.examples[i] for i in rows),
            answer_tokens=tuple(self.answer_tokens[i] for i in rows),
        )

    def within(self, ways: Sequence[Strategy]) -> Measured:
        """Return it with these ways alone."""
        at = [self.ways.index(way) for way in ways]
        examples = tuple(
            replace(
                one,
                bits_per_byte=tuple(one.bits_per_byte[i] for i in at),
                seconds=tuple(one.seconds[i] for i in at),
            )
            for one in self.examples
        )
        return replace(self, ways=tuple(ways), examples=examples)


def measured_in(rows: Sequence[Row]) -> dict[tuple[str, str], Measured]:
    """Return what was measured by collection and kind."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.get("example") is not None:
            found.setdefault((row["collection"], row["kind"]), []).append(row)
    return {
        key: Measured(
            collection=key[0],
            kind=key[1],
            ways=tuple(Strategy(AnswerMode(w["mode"]), w["n_steps"]) for w in own[0]["ways"]),
            examples=tuple(_example_of(row["example"]) for row in own),
            answer_tokens=tuple(row["answer_tokens"] for row in own),
        )
        for key, own in found.items()
    }


def _example_of(record: dict[str, Any]) -> MeasuredExample:
    """Return an example; rows were once written with a cost model, which was None."""
    features = {n: value for n, value in record["features"].items() if n != "cost_model"}
    return MeasuredExample.from_dict({**record, "features": features})


def policy_of(*parts: Measured) -> VariancePolicy:
    """Return what a calibration on these gives; by the ways that all of them have."""
    ways = [way for way in parts[0].ways if all(way in one.ways for one in parts)]
    examples = tuple(e for one in parts for e in one.within(ways).examples)
    calibration = Calibration(
        strategies=tuple(ways),
        examples=examples,
        cost_model=None,
        model="",
        fingerprint="",
        machine="",
    )
    return calibration.policy


def chosen(
    policy: VariancePolicy,
    these: Measured,
    costs: CostModel | None,
    latency_s: float | None = None,
) -> list[int]:
    """Return which of the ways the policy takes for each example."""
    policy = replace(policy, cost_model=costs)
    found = []
    for one in these.examples:
        known = replace(
            one.features,
            latency_s=latency_s,
            can_merge=Strategy(AnswerMode.MERGED) in these.ways,
        )
        decision = policy.decide(known)
        n_steps = decision.n_steps or known.n_steps if decision.mode in LEARNING else 0
        found.append(these.ways.index(Strategy(decision.mode, n_steps)))
    return found


def calibrated(
    label: str, judged: Measured, passages: Measured, costs: CostModel, latency_s: float | None
) -> list[int]:
    """Return the ways of a policy calibrated on what `label` says, by two halves where needed."""
    if label == "nothing":
        return chosen(VariancePolicy(), judged, costs, latency_s)
    if label == "passages":
        return chosen(policy_of(passages), judged, costs, latency_s)
    ways = np.empty(len(judged.examples), dtype=int)
    halves = [range(start, len(judged.examples), 2) for start in (0, 1)]
    for seen, held in (halves, halves[::-1]):
        parts = [judged.only(seen)]
        if label != "other half":
            parts.append(passages)
        policy = policy_of(*parts)
        ways[list(held)] = chosen(policy, judged.only(held), costs, latency_s)
    return ways.tolist()


def judged(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a row for every collection, policy and budget, and for every single way."""
    costs = CostModel(**next(row["cost_model"] for row in rows if "cost_model" in row))
    measured = measured_in(rows)
    found = []
    for (collection, kind), these in measured.items():
        about = {"collection": collection, "kind": kind, "n": len(these.examples)}
        found += [{**about, **one} for one in _single_ways(these, costs)]
        if kind != PASSAGES:
            passages = measured[collection, PASSAGES]
            for latency_s in (None, *BUDGETS):
                for label in LABELS:
                    ways = calibrated(label, these, passages, costs, latency_s)
                    outcome = _outcome(these, ways, costs, latency_s)
                    found.append({**about, "calibrated_on": label, **outcome})
    return found


def _single_ways(these: Measured, costs: CostModel) -> list[dict[str, Any]]:
    bits, seconds = these.bits, these.seconds
    best = bits.argmin(axis=1)
    predicted = _predicted(these, costs)
    return [
        {
            "way": str(way),
            "percent_of_base": _of_base(bits[:, i], bits),
            "seconds": float(seconds[:, i].mean()),
            "predicted_over_measured": float(np.median(predicted[:, i] / seconds[:, i])),
            "best_for": int((best == i).sum()),
        }
        for i, way in enumerate(these.ways)
    ]


def _predicted(these: Measured, costs: CostModel) -> FloatArray:
    """Return the seconds that the cost model says of what was measured: no token is written."""
    found = []
    for one, n in zip(these.examples, these.answer_tokens, strict=True):
        tokens = one.features.question_tokens + n
        known = replace(one.features, question_tokens=tokens, max_new_tokens=0)
        found.append([costs.seconds(known, way) for way in these.ways])
    return np.array(found)


def _outcome(
    these: Measured, ways: Sequence[int], costs: CostModel, latency_s: float | None
) -> dict[str, Any]:
    """Return how a policy did: against the best single way in time, and the best for each."""
    bits, rows = these.bits, np.arange(len(ways))
    seconds = np.array(
        [[costs.seconds(one.features, way) for way in these.ways] for one in these.examples]
    )
    in_time = seconds <= (latency_s or np.inf)
    in_time[:, 0] = True  # base, where nothing else is in time
    allowed = np.where(in_time, bits, bits[:, :1])  # a way that is too slow is base
    fixed = int(allowed.mean(axis=0).argmin())
    own, single, best = (
        bits[rows, list(ways)],
        allowed[:, fixed],
        np.where(in_time, bits, np.inf).min(axis=1),
    )
    context = allowed[:, these.ways.index(CONTEXT)]
    regret, of_context = (float((one - best).mean()) for one in (own, context))
    return {
        "latency_s": latency_s,
        "percent_of_base": _of_base(own, bits),
        "best_single": str(these.ways[fixed]),
        "over_best_single": _interval(own - single),
        "regret": regret,
        "regret_share": regret / of_context if of_context > 0 else None,
        "seconds": float(these.seconds[rows, list(ways)].mean()),
        "late": float((~in_time[rows, list(ways)]).mean()),
        "chosen": dict(Counter(str(these.ways[i]) for i in ways)),
    }


def tables(found: Sequence[dict[str, Any]]) -> list[Table]:
    """Return the single ways and the policies as tables, those in time last."""
    policies = [row for row in found if "calibrated_on" in row]
    shown = [
        _ways_table([row for row in found if "way" in row]),
        _policies_table("Policies", [row for row in policies if row["latency_s"] is None]),
    ]
    for budget in BUDGETS:
        title = f"Policies, within {budget:g} s"
        shown.append(_policies_table(title, [r for r in policies if r["latency_s"] == budget]))
    return shown


def _ways_table(rows: Sequence[dict[str, Any]]) -> Table:
    return Table(
        title="Single ways",
        heads=("collection", "examples", "way", "% of base", "seconds", "predicted", "best for"),
        rows=tuple(
            (
                word(row["collection"]),
                word(f"{row['n']} {row['kind']}"),
                word(row["way"]),
                word(_told(row["percent_of_base"])),
                number(row["seconds"], 2),
                number(row["predicted_over_measured"], 2),
                number(row["best_for"], 0),
            )
            for row in rows
        ),
        note="Bits per byte of what is judged, in % of base's; 90 % intervals of the difference "
        "from base. Seconds of learning and reading, and the cost model's over them (median).",
    )


def _policies_table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    return Table(
        title=title,
        heads=(
            "judged on",
            "calibrated on",
            "% of base",
            "over best single",
            "regret",
            "chosen",
        ),
        rows=tuple(
            (
                word(f"{row['collection']}, {row['n']} {row['kind']}"),
                word(row["calibrated_on"]),
                word(_told(row["percent_of_base"])),
                word(f"{_told(row['over_best_single'], '+')} {row['best_single']}"),
                missing() if row["regret_share"] is None else number(row["regret_share"], 2),
                word(", ".join(f"{name}: {n}" for name, n in row["chosen"].items())),
            )
            for row in rows
        ),
        note="Regret: over the best way for each example, in shares of that of always reading.",
    )


def _told(interval: Sequence[float], sign: str = "") -> str:
    value, low, high = (f"{round(one, 1) + 0.0:{sign}.1f}" for one in interval)
    return f"{value} [{low}, {high}]"


def judge(report: Report, found: Sequence[dict[str, Any]]) -> None:
    """Hold what policies do that are calibrated on passages against the bars."""
    own = [row for row in found if row.get("calibrated_on") == LABELS[1]]
    over = max(row["over_best_single"][0] for row in own if row["latency_s"] is None)
    report.judge("over the best single way", over, "over_best_single", "lower")
    late = max(row["over_best_single"][0] for row in own if row["latency_s"] is not None)
    report.judge("the same within a budget", late, "over_best_single", "lower")
    regret = max(row["regret_share"] for row in own if row["latency_s"] is None)
    report.judge("regret over that of reading", regret, "regret", "lower")
    long = [row for row in found if "way" in row and row["seconds"] > 1]
    errors = [abs(row["predicted_over_measured"] - 1) for row in long]
    report.judge(
        "seconds of ways that take more than one, worst error", max(errors), "cost_error", "lower"
    )


def draw(found: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw what each way saves of base's bits against its seconds, a panel a kind of examples."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        if "way" in row:
            panels.setdefault(f"{row['collection']}, {row['n']} {row['kind']}", []).append(row)
    figure, axes = pyplot.subplots(2, 3, figsize=(10, 6.4), sharex=True, squeeze=True)
    names = list(dict.fromkeys(row["way"] for row in sorted(found, key=_seconds) if "way" in row))
    for axis, (title, rows) in zip(axes.T.flat, sorted(panels.items()), strict=False):
        for row in rows:
            mean_of, low, high = (100 - one for one in row["percent_of_base"])
            axis.errorbar(
                row["seconds"],
                mean_of,
                [[mean_of - high], [low - mean_of]],
                fmt="osD^v<>"[names.index(row["way"]) % 7],
                color=f"C{names.index(row['way'])}",
                markersize=5,
                linewidth=0.8,
                label=row["way"],
            )
        axis.axhline(0, color="0.6", linewidth=0.6)
        axis.set_xscale("log")
        axis.set_xticks([0.1, 0.3, 1, 3, 10, 30], ["0.1", "0.3", "1", "3", "10", "30"])
        axis.set_title(title, fontsize=9)
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("seconds of learning and reading")
    for axis in axes[:, 0]:
        axis.set_ylabel("bits saved, % of base")
    handles = {
        name: handle
        for axis in axes.flat
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    shown = [name for name in names if name in handles]
    figure.legend([handles[name] for name in shown], shown, loc="lower center", ncols=7, fontsize=8)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _seconds(row: dict[str, Any]) -> float:
    return float(row["seconds"])


def _of_base(own: FloatArray, bits: FloatArray) -> list[float]:
    """Return the mean in % of base's, with the interval of the difference from base's."""
    return [round(100 + one, 3) for one in _interval(own - bits[:, 0])]


def _interval(values: FloatArray) -> list[float]:
    estimate = mean(values)
    return [round(one, 3) for one in (estimate.value, estimate.low, estimate.high)]
