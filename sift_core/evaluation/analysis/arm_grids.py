"""Which of the measured arms belong together: the main settings and what was varied from them.

A results file says of each arm all its settings and nothing of the part that it was measured
for. The main settings are those under which the most selectors were fine-tuned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.rows import ArmRecord, Results

SELECTORS = ("SIFT", "NN", "NN-F", "US", "HullFT", "other prompt")
_OF_THE_SELECTOR = ("selector", "noise_variance")
_OF_LEARNING = ("mode", "scope", "learning_rate", "chunks_per_step", "order")


def main_arms(results: Results) -> dict[str, ArmRecord]:
    """Return by selector its fine-tuned arm at the main settings; SIFT first.

    Where a selector was measured with several λ, the one that most of its arms have counts,
    of equally many the one that was measured first.

    Raises:
        InvalidInputError: If no arm was fine-tuned.
    """
    tuned = results.arms_where(mode="fine_tune")
    if not tuned:
        raise InvalidInputError("no fine-tuned arm among the rows; `sift eval` measures them")
    shared: dict[Hashable, list[ArmRecord]] = {}
    for arm in tuned:
        shared.setdefault(_settings(arm, without=_OF_THE_SELECTOR), []).append(arm)
    main = max(shared.values(), key=lambda arms: len({arm["selector"] for arm in arms}))
    chosen: dict[str, ArmRecord] = {}
    for selector in _ordered(main):
        own = [arm for arm in main if arm["selector"] == selector]
        usual = Counter(arm["noise_variance"] for arm in tuned if arm["selector"] == selector)
        chosen[selector] = max(own, key=lambda arm: usual[arm["noise_variance"]])
    return chosen


def mode_arms(results: Results) -> dict[str, ArmRecord]:
    """Return the arms "context", "fine_tune" and "both" of the main selector, where measured.

    The main selector is the first of `SELECTORS` that was measured in any mode but fine-tuning
    and is in `main_arms`; without any, the first one fine-tuned.
    """
    main = main_arms(results)
    for arm in main.values():
        found = {"fine_tune": arm}
        for mode in ("context", "both"):
            ignored = _OF_LEARNING if mode == "context" else ("mode",)
            like = [
                other
                for other in results.arms_where(mode=mode)
                if _settings(other, without=ignored) == _settings(arm, without=ignored)
            ]
            found |= {mode: like[0]} if like else {}
        if len(found) > 1:
            return {mode: found[mode] for mode in ("context", "fine_tune", "both") if mode in found}
    return {"fine_tune": next(iter(main.values()))}


def varied(results: Results, *names: str) -> dict[str, list[ArmRecord]]:
    """Return by selector the fine-tuned arms that differ from the main one only in `names`.

    The arms of a selector, its main one among them, are sorted by these settings. A selector
    that was measured with one value alone is left out.

    Args:
        results: Of one experiment.
        *names: Keys of an arm, for instance "noise_variance".
    """
    groups: dict[str, list[ArmRecord]] = {}
    for selector, main in main_arms(results).items():
        like = [
            arm
            for arm in results.arms_where(mode="fine_tune", selector=selector)
            if _settings(arm, without=names) == _settings(main, without=names)
        ]
        if len(like) > 1:
            groups[selector] = sorted(like, key=lambda arm: tuple(_rank(arm[n]) for n in names))
    return groups


def _ordered(arms: list[ArmRecord]) -> list[str]:
    there = list(dict.fromkeys(str(arm["selector"]) for arm in arms))
    known = [selector for selector in SELECTORS if selector in there]
    return known + [selector for selector in there if selector not in known]


def _settings(arm: ArmRecord, *, without: tuple[str, ...]) -> Hashable:
    return tuple((name, value) for name, value in sorted(arm.items()) if name not in without)


def _rank(value: object) -> tuple[float, str]:
    if isinstance(value, (bool, int, float)):
        return float(value), ""
    return 0.0, str(value)
