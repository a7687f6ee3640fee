"""The first paragraph of a report: the main numbers as sentences, made from the rows."""

from __future__ import annotations

from collections.abc import Mapping

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.arm_grids import main_arms, mode_arms
from sift_core.evaluation.analysis.comparing import best_position, mean_percent, restrict
from sift_core.evaluation.analysis.rows import ArmRecord, Results, selector_label
from sift_core.evaluation.analysis.statistics import mean, paired_difference
from sift_core.evaluation.analysis.tables import BASELINES, paired_columns, pooled_bits_per_byte
from sift_core.evaluation.statistics import Estimate


def language_modeling_summary(results: Results) -> list[str]:
    """Return one paragraph: prompts, base model, SIFT, the strongest baseline, context.

    Raises:
        InvalidInputError: If there are no base rows.
    """
    n_prompts, n_domains = len(results.prompts), len(results.domains)
    sentences = [
        f"{_count(n_prompts, 'prompt')} of {_count(n_domains, 'domain')}: the base model needs "
        f"{pooled_bits_per_byte(results):.3f} bits per byte over all bytes."
    ]
    try:
        arms = main_arms(results)
    except InvalidInputError:
        return [*sentences, "Nothing was fine-tuned."]
    sentences += _selectors(results, arms)
    in_context = mode_arms(results).get("context")
    if in_context is not None:
        learned = results.percent_of_base(next(iter(arms.values())))
        read = restrict(results.percent_of_base(in_context), learned)
        label = selector_label(in_context)
        if read:
            sentences.append(
                f"Chunks of {label} in the context instead give "
                f"{interval(mean(list(read.values())))}, as a mean over "
                f"{_count(len(read), 'prompt')} of these."
            )
    return [" ".join(sentences)]


def interval(estimate: Estimate) -> str:
    """Return "86.4 % (90 % interval 85.3 to 87.4)"; without an interval where there is none."""
    if estimate.n < 2:
        return f"{estimate.value:.1f} %"
    return f"{estimate.value:.1f} % (90 % interval {estimate.low:.1f} to {estimate.high:.1f})"


def verdict(difference: Estimate, ours: str, theirs: str) -> str:
    """Return what a difference of bits per byte (ours minus theirs) lets one say."""
    if difference.n < 2 or difference.low <= 0 <= difference.high:
        return f"{ours} and {theirs} cannot be told apart"
    return f"{ours} is {'better' if difference.value < 0 else 'worse'} than {theirs}"


def _selectors(results: Results, arms: Mapping[str, ArmRecord]) -> list[str]:
    scores = {selector_label(arm): results.percent_of_base(arm) for arm in arms.values()}
    paired = {label: own for label, own in _paired(results, scores).items() if own}
    ours = next(iter(arms.values()))
    label = selector_label(ours)
    percent = mean(list(paired.get(label, scores[label]).values()))
    sentences = [
        f"After learning {ours.get('n_steps')} chunks that {label} chose, bits per byte are "
        f"{interval(percent)} of the base model's, as a mean over {_count(percent.n, 'prompt')}."
    ]
    rivals = [selector_label(arm) for name, arm in arms.items() if name in BASELINES]
    rivals = [rival for rival in rivals if rival in paired and rival != label]
    if rivals and label in paired:
        best = rivals[best_position([paired[rival] for rival in rivals])]
        gap = paired_difference(paired[label], paired[best])
        bounds = f" (90 % interval {gap.low:+.1f} to {gap.high:+.1f})" if gap.n > 1 else ""
        sentences.append(
            f"The strongest baseline, {best}, reaches {mean_percent(paired[best]):.1f} %; on the "
            f"same {_count(gap.n, 'prompt')} the difference is {gap.value:+.1f} points{bounds}: "
            f"{verdict(gap, label, best)}."
        )
    return sentences


def _paired(
    results: Results, scores: Mapping[str, Mapping[str, float]]
) -> dict[str, Mapping[str, float]]:
    return dict(paired_columns(scores, list(results.prompts)))


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"
