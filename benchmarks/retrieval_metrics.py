"""How much of what answers a question is among the first n chosen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

CUTS = (5, 10, 20)


def metrics(chosen: Sequence[int], gold: Collection[int]) -> dict[str, float]:
    """Return recall and all_gold of one question at every cut, as fractions.

    recall@n is the share of the distinct gold passages of which some version is among the
    first n; all_gold@n is 1 where that are all of them, else 0.

    Args:
        chosen: Rows of the corpus in order of choice; versions of one passage are one row.
        gold: Distinct rows of the corpus, at least one.
    """
    found = {cut: len(set(chosen[:cut]) & set(gold)) for cut in CUTS}
    return {
        **{f"recall@{cut}": found[cut] / len(gold) for cut in CUTS},
        **{f"all_gold@{cut}": float(found[cut] == len(gold)) for cut in CUTS},
    }


def mean(questions: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the average over questions of each metric."""
    return {name: float(np.mean([one[name] for one in questions])) for name in questions[0]}
