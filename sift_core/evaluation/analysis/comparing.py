"""Which arms can be compared, on which prompts, and which of them is not worse than the best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.arm_grids import main_arms
from sift_core.evaluation.analysis.result_row import arm_key, arm_label, selector_label
from sift_core.evaluation.analysis.rows import ArmRecord, Results
from sift_core.evaluation.analysis.statistics import mean, paired_difference

Scores: TypeAlias = Mapping[str, float]  # % of base by prompt id

_OF_THE_SELECTOR = ("selector", "noise_variance")
SETTING_NAMES = {
    "noise_variance": "λ",
    "n_candidates": "K",
    "n_steps": "N",
    "is_normalized": "normalized",
    "learning_rate": "learning rate",
    "chunks_per_step": "chunks a step",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class ArmGroup:
    """Arms that are equal in all settings but some.

    Args:
        shared: The settings that all of them have.
        arms: In order of first appearance.
        n_rows: Rows of all of them together.
    """

    shared: Mapping[str, Any]
    arms: tuple[ArmRecord, ...]
    n_rows: int


def groups_varying(results: Results, fields: Sequence[str], **where: Any) -> list[ArmGroup]:
    """Return the groups of arms that differ in `fields` alone.

    Args:
        results: The rows.
        fields: Names of settings, for instance ("learning_rate",).
        **where: Settings that every arm has, for instance `mode="fine_tune"`.

    Returns:
        Groups, the one with most arms first, then the one with most rows, then the earliest.
    """
    groups: dict[Any, list[ArmRecord]] = {}
    for arm in results.arms_where(**where):
        rest = {name: value for name, value in arm.items() if name not in fields}
        groups.setdefault(arm_key(rest), []).append(arm)
    made = [
        ArmGroup(
            shared={k: v for k, v in arms[0].items() if k not in fields},
            arms=tuple(arms),
            n_rows=sum(len(results.rows_of(arm)) for arm in arms),
        )
        for arms in groups.values()
    ]
    return sorted(made, key=lambda group: (-len(group.arms), -group.n_rows))


def main_by_selector(results: Results) -> dict[str, ArmRecord]:
    """Return the fine-tuned arms at the main settings by selector (`main_arms`).

    Raises:
        InvalidInputError: If no arm was fine-tuned; it says what was measured.
    """
    if not results.arms_where(mode="fine_tune"):
        raise not_measured(results, "no fine-tuned arm")
    return main_arms(results)


def main_group(results: Results) -> ArmGroup:
    """Return the fine-tuned arms that differ from those of `main_by_selector` in λ alone.

    Raises:
        InvalidInputError: As there.
    """
    main = arm_key(_without_selector(next(iter(main_by_selector(results).values()))))
    groups = groups_varying(results, _OF_THE_SELECTOR, mode="fine_tune")
    return next(group for group in groups if arm_key(group.shared) == main)


def not_measured(results: Results, what: str, part: str = "main") -> InvalidInputError:
    """Return the error that says what is missing, what is there and which part measures it."""
    there = ", ".join(dict.fromkeys(arm_label(arm) for arm in results.arms)) or "nothing"
    return InvalidInputError(
        f"{what}; measured were: {there}. The part '{part}' of `sift eval` measures it"
    )


def diverged_note(results: Results, arms: Iterable[ArmRecord]) -> str:
    """Return which arms diverged and on how many prompts, "" where none did.

    Their rows have the base model's bits per byte, which flatters a rate that is too high.
    """
    counts = {}
    for arm in arms:
        rows = results.rows_of(arm).values()
        n = sum(row.report.get("stop_reason") == "diverged" for row in rows)
        if n:
            rate = setting(arm.get("learning_rate"))
            name = f"{selector_label(arm)}, {arm.get('scope')}, rate {rate}"
            counts[name] = f"{name}: {n} of {len(rows)}"
    if not counts:
        return ""
    return f" Diverged, so that the base model's 100 % stands for it: {'; '.join(counts.values())}."


def common_prompts(columns: Iterable[Scores]) -> list[str]:
    """Return the prompts that all columns have, in the order of the first one."""
    first, *others = columns
    return [key for key in first if all(key in other for other in others)]


def restrict(scores: Scores, prompt_ids: Iterable[str]) -> dict[str, float]:
    """Return the scores of these prompts; those without one are left out."""
    return {key: scores[key] for key in prompt_ids if key in scores}


def best_position(columns: Sequence[Scores]) -> int:
    """Return the position of the column with the lowest mean; the first of equal ones."""
    return int(np.argmin([np.mean(list(column.values())) for column in columns]))


def not_worse_than_best(columns: Sequence[Scores]) -> list[bool]:
    """Return which columns are not significantly worse than the one with the lowest mean.

    A column is worse where the 90 % bootstrap interval of its paired difference to the best one
    lies above 0. With one prompt there is no interval, so that every other column is worse
    unless it is equal.

    Args:
        columns: At least one, each with at least one prompt, all with the same prompts.
    """
    best = columns[best_position(columns)]
    flags = []
    for column in columns:
        gap = paired_difference(column, best)
        flags.append(bool(gap.low <= 0 if gap.n > 1 else gap.value <= 0))
    return flags


def mean_percent(scores: Scores) -> float:
    """Return the mean of the scores."""
    return mean(list(scores.values()), n_resamples=1).value


def _without_selector(arm: ArmRecord) -> ArmRecord:
    return {name: value for name, value in arm.items() if name not in _OF_THE_SELECTOR}


def distinct_labels(arms: Sequence[ArmRecord]) -> list[str]:
    """Return the labels of the arms' selectors, with λ where two of them would be the same."""
    labels = [selector_label(arm) for arm in arms]
    by_label: dict[str, set[Any]] = {}
    for label, arm in zip(labels, arms, strict=True):
        by_label.setdefault(label, set()).add(arm.get("noise_variance"))
    return [
        f"{label}({setting(arm.get('noise_variance'))})" if len(by_label[label]) > 1 else label
        for label, arm in zip(labels, arms, strict=True)
    ]


def describe(groups: Sequence[ArmGroup]) -> list[str]:
    """Return of every group its selector and the settings in which the groups differ."""
    names = dict.fromkeys(name for group in groups for name in group.shared)
    differing = [
        name
        for name in names
        if name not in _OF_THE_SELECTOR
        and len({repr(group.shared.get(name)) for group in groups}) > 1
    ]
    return [
        ", ".join(
            [
                label,
                *(f"{SETTING_NAMES.get(k, k)} {setting(group.shared.get(k))}" for k in differing),
            ]
        )
        for label, group in zip(distinct_labels([g.shared for g in groups]), groups, strict=True)
    ]


def setting(value: Any) -> str:
    """Return a setting's value as a reader would write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)
