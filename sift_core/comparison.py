"""The choice beside those of nearest neighbours and MMR, from the same candidates."""

from __future__ import annotations

from collections.abc import Mapping

from sift_core.choice import choose
from sift_core.explanation import Chosen
from sift_core.options import ChoiceOptions
from sift_core.protocols import Selector
from sift_core.selection.baselines import MMRSelector, NearestNeighborSelector

MMR_WEIGHT = 0.7  # of relevance: the middle one of those that `sift eval retrieval` measures
TITLES = {"nearest": "nearest neighbours", "mmr": f"MMR, weight {MMR_WEIGHT}", "sift": "SIFT"}


def compare_methods(chosen: Chosen, n_select: int) -> Mapping[str, Chosen]:
    """Return what each method of `TITLES` chooses from the candidates of a choice, it the last.

    MMR is the one that `sift eval retrieval` measures, so that a user who goes on to measure
    meets the same method. Both go by embeddings alone, whatever the choice went by.

    Args:
        chosen: The choice.
        n_select: How many chunks the others choose, >= 1.
    """
    selectors: dict[str, Selector] = {
        "nearest": NearestNeighborSelector(),
        "mmr": MMRSelector(relevance_weight=MMR_WEIGHT),
    }
    others = {}
    for name, one in selectors.items():
        options = ChoiceOptions(n_select=n_select, words=0, selector=one)
        others[name] = choose(chosen.pool, chosen.query, options)
    return {**others, "sift": chosen}
