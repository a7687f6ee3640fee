"""Checks of the candidates before a choice, and of the choice after it."""

from __future__ import annotations

import numpy as np

from sift_core.checks import short_repr, warn
from sift_core.errors import EmptyEntryWarning, MissingKeyWarning, NothingFitsWarning
from sift_core.explanation import Chosen
from sift_core.options import ChoiceOptions
from sift_core.token_estimate import estimated_tokens
from sift_core.types import CandidatePool


def with_vectors(pool: CandidatePool, left_out: set[str]) -> CandidatePool:
    """Return the rows that have a direction, with one warning of the others.

    Args:
        pool: The candidates.
        left_out: Ids of which there was a warning before; the others are added.
    """
    has_vector = pool.embeddings.any(axis=1)
    if has_vector.all():
        return pool
    empty = {pool.document_ids[row] for row in np.flatnonzero(~has_vector).tolist()}
    if new := sorted(empty - left_out):
        left_out |= empty
        warn(
            f"{len(new)} of {len(pool)} candidates are left out, since their vectors are all zero: "
            f"{short_repr(new)}; was an empty text embedded? Delete them, or embed them again",
            EmptyEntryWarning,
        )
    return pool.take(np.flatnonzero(has_vector))


def warn_of_keys(pool: CandidatePool, options: ChoiceOptions) -> None:
    """Warn of a key of the options that no candidate has, with the keys that there are."""
    has_groups = options.max_per_document is not None or options.merge_neighbors
    keys = {"newest": options.newest, "document_key": options.document_key if has_groups else None}
    for name, key in keys.items():
        if key is None or any(key in metadata for metadata in pool.metadata):
            continue
        there = {str(each) for metadata in pool.metadata for each in metadata}
        if not there:
            continue
        warn(
            f"no candidate has the metadata key {key!r}, so `{name}` does nothing; there are "
            f"{short_repr(sorted(there))}",
            MissingKeyWarning,
        )


def warn_of_length(chosen: Chosen, options: ChoiceOptions) -> None:
    """Warn if nothing was chosen since each candidate alone is over the limit on tokens."""
    pool = chosen.pool
    if options.max_tokens is None or len(chosen.positions) or not len(pool):
        return
    shortest = min(token_costs(pool, options))
    if shortest > options.max_tokens:
        warn(
            f"nothing is chosen: the shortest of {len(pool)} candidates has {shortest} tokens, and "
            f"`max_tokens` is {options.max_tokens}; raise it, or index shorter chunks",
            NothingFitsWarning,
        )


def token_costs(pool: CandidatePool, options: ChoiceOptions) -> list[int]:
    """Return how many tokens each candidate has; a text without one costs one."""
    count = options.count_tokens or estimated_tokens
    return [max(1, count(pool.as_read(row, text))) for row, text in enumerate(pool.texts)]
