"""How much of what answers a question is among the first n chosen. All metrics are fractions.

Choices are rows of the corpus in order of choice. All versions of a passage are one row, which may
thus be chosen several times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from sift_core.errors import InvalidInputError

CUTS = (5, 10, 20)
GAIN_CUT = 10  # of nDCG and α-nDCG
ALPHA = 0.5  # Clarke et al., section 5
KINDS = ("recall", "all_gold", "ndcg", "alpha_ndcg")
METRICS = (
    *(f"recall@{cut}" for cut in CUTS),
    *(f"all_gold@{cut}" for cut in CUTS),
    f"ndcg@{GAIN_CUT}",
    f"alpha_ndcg@{GAIN_CUT}",
)


def check_metric(name: str) -> tuple[str, int]:
    """Return the kind of a metric and its cut: "recall@2" is ("recall", 2).

    Raises:
        InvalidInputError: If there is no such kind, or the cut is no whole number of at least 1.
    """
    kind, _, cut = name.partition("@")
    if kind not in KINDS or not cut.isdecimal() or not int(cut):
        raise InvalidInputError(
            f"there is no metric {name!r}; there are {', '.join(f'{one}@n' for one in KINDS)}, "
            f"with n >= 1"
        )
    return kind, int(cut)


def all_metrics(
    chosen: Sequence[int],
    grades: Mapping[int, float],
    n_versions: Mapping[int, int] | None = None,
    names: Sequence[str] = METRICS,
) -> dict[str, float]:
    """Return every metric of one question.

    "all_gold@n" is 1 if all gold passages are among the first n, else 0.

    Args:
        chosen: Rows in order of choice.
        grades: Row → how relevant it is, > 0; at least one.
        n_versions: Row → how many versions of it the corpus has. Default: 1 each.
        names: Which metrics. Default: `METRICS`.

    Raises:
        InvalidInputError: If there is no such metric.
    """
    versions = {row: 1 if n_versions is None else n_versions[row] for row in grades}
    found = {}
    for name in names:
        kind, cut = check_metric(name)
        if kind == "ndcg":
            found[name] = ndcg(chosen, grades, cut)
        elif kind == "alpha_ndcg":
            found[name] = alpha_ndcg(chosen, versions, cut)
        else:
            share = recall(chosen, grades, cut)
            found[name] = share if kind == "recall" else float(share == 1)
    return found


def recall(chosen: Sequence[int], gold: Collection[int], cut: int) -> float:
    """Return the share of the gold passages of which a version is among the first `cut`.

    Args:
        chosen: Rows in order of choice.
        gold: Distinct rows, at least one.
        cut: At least 1.
    """
    return len(set(chosen[:cut]) & set(gold)) / len(gold)


def ndcg(chosen: Sequence[int], grades: Mapping[int, float], cut: int) -> float:
    """Return DCG over that of the ideal order, as trec_eval has it if no row is repeated.

    The i-th choice gains grade / log₂(i + 1). A further version of a passage takes up its place
    and gains nothing, so that the ideal order has every passage once.

    Args:
        chosen: Rows in order of choice.
        grades: Row → how relevant it is, > 0; all others are not. At least one.
        cut: At least 1.

    References:
        Järvelin and Kekäläinen (2002), Cumulated gain-based evaluation of IR techniques, TOIS.
    """
    left = dict(grades)
    gains = [left.pop(row, 0.0) for row in chosen[:cut]]
    return _discounted(gains) / _discounted(sorted(grades.values(), reverse=True)[:cut])


def alpha_ndcg(
    chosen: Sequence[int], n_versions: Mapping[int, int], cut: int, alpha: float = ALPHA
) -> float:
    """Return α-nDCG with every gold passage as one nugget, which all its versions hold.

    A version of a gold passage of which t were chosen before gains (1 - α)^t, over log₂(i + 1)
    at place i; grades don't count. The ideal order takes the version with the largest gain at
    each place. Since no document holds two nuggets, this greedy order is the best one.

    Passages that are not gold gain nothing. So once all that is gold was chosen, one more copy of
    it gains more than anything else, and a question with one gold passage rewards its copies:
    read it beside `recall` and `ndcg`, which don't.

    Args:
        chosen: Rows in order of choice.
        n_versions: Gold row → how many versions of it there are to be found, >= 1.
        cut: At least 1.
        alpha: In [0, 1]: 0 takes repeats for as good as new, 1 for worthless.

    References:
        Clarke et al. (2008), Novelty and Diversity in Information Retrieval Evaluation, SIGIR,
        eq. 2 to 4 with one nugget a document.
    """
    times: Counter[int] = Counter()
    gains = []
    for row in chosen[:cut]:
        gains.append((1.0 - alpha) ** times[row] if row in n_versions else 0.0)
        times[row] += 1
    # What each version gains after those before it.
    ideal = ((1.0 - alpha) ** t for n in n_versions.values() for t in range(min(n, cut)))
    return _discounted(gains) / _discounted(sorted(ideal, reverse=True)[:cut])


def _discounted(gains: Sequence[float]) -> float:
    """Return the sum of the gains, that of place i (from 1) over log₂(i + 1)."""
    places = np.arange(1, len(gains) + 1)
    return float(np.sum(np.asarray(gains, dtype=np.float64) / np.log2(places + 1)))
