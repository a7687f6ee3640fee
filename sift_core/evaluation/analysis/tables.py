"""The paper's tables per domain: the selectors, λ, and context against fine-tuning.

A cell is the mean over prompts of bits per byte in % of the base model's, with its standard
error; lower is better. A line compares its columns on the prompts that all of them have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.arm_grids import mode_arms
from sift_core.evaluation.analysis.comparing import (
    Scores,
    best_position,
    common_prompts,
    distinct_labels,
    diverged_note,
    main_by_selector,
    main_group,
    not_measured,
    not_worse_than_best,
    restrict,
    setting,
)
from sift_core.evaluation.analysis.result_row import arm_label, selector_label
from sift_core.evaluation.analysis.rows import NEAR_DUPLICATE, ArmRecord, Results
from sift_core.evaluation.analysis.statistics import mean, paired_difference
from sift_core.evaluation.analysis.table import (
    Cell,
    Table,
    count,
    difference,
    missing,
    number,
    with_error,
    word,
)
from sift_core.evaluation.statistics import Estimate

ALL = "All"
BASELINES = ("US", "NN", "NN-F", "HullFT")
CONTROL = "other prompt"
CELL_NOTE = (
    "Bits per byte in % of the base model (lower is better): mean over prompts, standard error "
    "in round brackets, 90 % bootstrap interval in square ones."
)
BOLD_NOTE = (
    "Bold (or *): not worse than the best of the line by the 90 % interval of the paired "
    "difference."
)
NearDuplicates = Literal["all", "without", "only"]
_Difference = Callable[[Mapping[str, Scores]], "Estimate | None"]


def main_table(
    results: Results,
    *,
    noise_variances: Sequence[float] | None = None,
    near_duplicates: NearDuplicates = "all",
    near_duplicate_share: float = NEAR_DUPLICATE,
    min_prompts: int = 1,
) -> Table:
    """Return the selectors by domain after the last step, fine-tuned at the main settings.

    The paper's table "main_results_per_dataset".

    Args:
        results: Of one experiment.
        noise_variances: The λ of SIFT to show; None for that of the main settings (`main_arms`).
            With several, Δ takes the best of each line.
        near_duplicates: Whether prompts with near-duplicates in the data space are left out
            ("without") or alone shown ("only").
        near_duplicate_share: From which share of common 8-grams a prompt is such a one.
        min_prompts: Domains with fewer prompts are not shown; they still count in All. The
            paper's is 10.

    Raises:
        InvalidInputError: If there is no base row, no fine-tuned arm, or no prompt left.
    """
    results = _by_near_duplicates(results, near_duplicates, near_duplicate_share)
    arms = main_group(results).arms
    shown = _shown_noise_variances(results, arms, noise_variances)
    kept = [
        arm
        for arm in sorted(arms, key=_order)
        if arm["selector"] != "SIFT" or arm["noise_variance"] in shown
    ]
    labelled = dict(zip(distinct_labels(kept), kept, strict=True))
    columns = {label: results.percent_of_base(arm) for label, arm in labelled.items()}
    sifts = [label for label, arm in labelled.items() if arm["selector"] == "SIFT"]
    rivals = [label for label, arm in labelled.items() if arm["selector"] in BASELINES]
    few = " Δ is from the best λ of the line, which flatters it." if len(shown) > 1 else ""
    return Table(
        title="Selectors, " + _which(near_duplicates, near_duplicate_share),
        heads=("", "n", "base", *columns, "Δ"),
        rows=_domain_rows(
            results,
            columns,
            lambda line: _gain(line, sifts, rivals),
            min_prompts=min_prompts,
        ),
        note=f"{CELL_NOTE} {BOLD_NOTE} n: prompts. base: its bits per byte over all bytes. "
        f"Δ: SIFT minus the strongest of {', '.join(BASELINES)} of the line, in points, paired; "
        f"below 0 SIFT is better.{few}{diverged_note(results, kept)}",
    )


def noise_variance_table(results: Results, *, min_prompts: int = 1) -> Table:
    """Return every λ of SIFT at the main settings beside NN and NN-F, by domain.

    The paper's table "lambda_results".

    Args:
        results: Of one experiment.
        min_prompts: As in `main_table`.

    Raises:
        InvalidInputError: If there is no base row, or fewer than 2 λ were measured.
    """
    arms = main_group(results).arms
    sifts = sorted((arm for arm in arms if arm["selector"] == "SIFT"), key=_order)
    if len(sifts) < 2:
        raise not_measured(
            results, f"a table of λ needs at least 2, got {len(sifts)}", "noise_variance"
        )
    rivals = [arm for arm in sorted(arms, key=_order) if arm["selector"] in ("NN", "NN-F")]
    columns = {setting(float(arm["noise_variance"])): results.percent_of_base(arm) for arm in sifts}
    labels = list(columns)
    columns |= {selector_label(arm): results.percent_of_base(arm) for arm in rivals}
    return Table(
        title="λ of SIFT",
        heads=("", "n", "base", *columns, "Δ"),
        rows=_domain_rows(
            results, columns, lambda line: _gain(line, labels, ("NN",)), min_prompts=min_prompts
        ),
        note=f"{CELL_NOTE} {BOLD_NOTE} Δ: the best λ of the line minus NN, paired. It was chosen "
        "on these prompts, which flatters it.",
    )


def context_table(results: Results, *, min_prompts: int = 1) -> Table:
    """Return the same chunks in the context, learned, and both, by domain.

    The paper's table "gpt2_ttft".

    Args:
        results: Of one experiment.
        min_prompts: As in `main_table`.

    Raises:
        InvalidInputError: If there is no base row, nothing was fine-tuned, or neither context
            nor both was measured with the same selector.
    """
    group = main_group(results)
    arms = mode_arms(results)
    if len(arms) < 2:
        raise not_measured(
            results, "no arm of mode 'context' or 'both' beside fine-tuning", "context"
        )
    columns: dict[str, Scores] = {
        mode: results.percent_of_base(arms[mode]) if mode in arms else {}
        for mode in ("context", "fine_tune", "both")
    }
    for arm in _other_readers(results, arms.get("context")):
        columns[arm_label(arm)] = results.percent_of_base(arm)
    return Table(
        title=f"Context against fine-tuning, chunks of {selector_label(arms['fine_tune'])}",
        heads=("", "n", "base", *columns, "Δ"),
        rows=_domain_rows(
            results,
            columns,
            lambda line: _gain(line, ["fine_tune"], ("context",)),
            min_prompts=min_prompts,
        ),
        note=f"{CELL_NOTE} {BOLD_NOTE} base: its bits per byte over all bytes. Δ: fine_tune minus "
        "context, in points, paired. context has as many chunks as fitted, fine_tune learns "
        f"{group.shared.get('n_steps')}. Further columns: context with other selectors.",
    )


def pooled_bits_per_byte(results: Results, prompt_ids: Sequence[str] | None = None) -> float:
    """Return the base model's bits over all bytes of the prompts (None: all that have a row).

    Raises:
        InvalidInputError: If there is no base row for one of them.
    """
    base = results.base()
    ids = list(base) if prompt_ids is None else list(prompt_ids)
    absent = [key for key in ids if key not in base]
    if absent or not ids:
        raise InvalidInputError(f"no base row for the prompts {absent}, of {len(ids)} asked for")
    n_bytes = np.array([results.prompts[key].n_bytes for key in ids], dtype=np.float64)
    bits = np.array([base[key].last_bits_per_byte for key in ids])
    return float(bits @ n_bytes / n_bytes.sum())


def percent_cells(columns: Mapping[str, Scores]) -> list[Cell]:
    """Return the cells of one line: a mean a column, the best bold; "–" for an empty column.

    Args:
        columns: By head, in order; those that are not empty have the same prompts.
    """
    there = {head: scores for head, scores in columns.items() if scores}
    flags = dict(zip(there, not_worse_than_best(list(there.values())), strict=True))
    return [
        with_error(mean(list(scores.values())), is_bold=flags[head] and len(there) > 1)
        if scores
        else missing()
        for head, scores in columns.items()
    ]


def paired_columns(columns: Mapping[str, Scores], prompt_ids: Sequence[str]) -> dict[str, Scores]:
    """Return the columns on those of the prompts that every column has.

    A column that has none of the prompts stays, empty, and does not count.

    Args:
        columns: By head.
        prompt_ids: For instance those of a domain.
    """
    own = {head: restrict(scores, prompt_ids) for head, scores in columns.items()}
    there = [scores for scores in own.values() if scores]
    common = common_prompts(there) if there else []
    return {head: restrict(scores, common) for head, scores in own.items()}


def _other_readers(results: Results, context: ArmRecord | None) -> list[ArmRecord]:
    """The context arms that differ from `context` in selector alone; SIFT's λ is not varied."""
    if context is None:
        return []
    same = [name for name in context if name not in ("selector", "noise_variance")]
    return [
        arm
        for arm in results.arms_where(mode="context")
        if arm["selector"] != context["selector"]
        and all(arm.get(name) == context[name] for name in same)
    ]


def _domain_rows(
    results: Results,
    columns: Mapping[str, Scores],
    gain: _Difference,
    *,
    min_prompts: int,
) -> tuple[tuple[Cell, ...], ...]:
    """One line a domain, the largest gain first, and All below."""
    lines: list[tuple[float, tuple[Cell, ...]]] = []
    for domain in results.domains:
        ids = [key for key, prompt in results.prompts.items() if prompt.domain == domain]
        line, rank = _line(results, domain, paired_columns(columns, ids), gain, min_prompts)
        lines += [(rank, line)] if line else []
    lines.sort(key=lambda pair: pair[0])
    everything, _ = _line(results, ALL, paired_columns(columns, list(results.prompts)), gain, 1)
    if not everything:
        raise InvalidInputError(
            f"no prompt was measured under all of {', '.join(columns)}; run `sift eval` on the "
            "same file once more, it adds what is missing"
        )
    return (*(line for _, line in lines), everything)


def _line(
    results: Results,
    name: str,
    columns: Mapping[str, Scores],
    gain: _Difference,
    min_prompts: int,
) -> tuple[tuple[Cell, ...], float]:
    ids = list(next((scores for scores in columns.values() if scores), {}))
    if len(ids) < max(1, min_prompts):
        return (), np.inf
    delta = gain(columns)
    base = number(pooled_bits_per_byte(results, ids))
    cells = (word(name), count(len(ids)), base, *percent_cells(columns))
    if delta is None:
        return (*cells, missing()), np.inf
    return (*cells, difference(delta)), delta.value


def _gain(
    columns: Mapping[str, Scores], ours: Sequence[str], theirs: Sequence[str]
) -> Estimate | None:
    """The best of ours minus the best of theirs, on the same prompts; None without one of them."""
    sides = [[columns[head] for head in side if columns.get(head)] for side in (ours, theirs)]
    if not all(sides):
        return None
    best = [side[best_position(side)] for side in sides]
    return paired_difference(best[0], best[1])


def _order(arm: ArmRecord) -> tuple[int, float]:
    selectors = ("US", "NN", "NN-F", "HullFT", "SIFT", CONTROL)
    selector = arm["selector"]
    place = selectors.index(selector) if selector in selectors else len(selectors)
    return place, float(arm.get("noise_variance") or 0.0)


def _shown_noise_variances(
    results: Results, arms: Sequence[ArmRecord], wanted: Sequence[float] | None
) -> list[float]:
    measured = sorted({arm["noise_variance"] for arm in arms if arm["selector"] == "SIFT"})
    if wanted is None:
        main = main_by_selector(results).get("SIFT")
        return [] if main is None else [float(main["noise_variance"])]
    absent = sorted(set(wanted) - set(measured))
    if absent:
        raise not_measured(results, f"no SIFT with λ of {absent}", "noise_variance")
    return list(wanted)


def _by_near_duplicates(results: Results, which: NearDuplicates, share: float) -> Results:
    if which == "all":
        return results
    if which == "without":
        return results.without_near_duplicates(share)
    if which == "only":
        return results.with_near_duplicates(share)
    raise InvalidInputError(f"`near_duplicates` must be 'all', 'without' or 'only', got {which!r}")


def _which(near_duplicates: NearDuplicates, share: float) -> str:
    if near_duplicates == "all":
        return "all prompts"
    sign = "below" if near_duplicates == "without" else "of at least"
    return f"prompts with a near-duplicate share {sign} {share:g}"
