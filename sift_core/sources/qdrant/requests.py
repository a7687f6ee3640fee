"""What is asked of Qdrant for a query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import ValidationError
from qdrant_client import models

from sift_core.errors import InvalidInputError
from sift_core.sources.contract import as_float32, check_fetch_arguments
from sift_core.sources.qdrant.points import vectors_wanted
from sift_core.sources.qdrant.words import WORDS
from sift_core.types import Query

Prefetch: TypeAlias = Callable[[Query, int], "models.Prefetch | Sequence[models.Prefetch]"]
Fusion: TypeAlias = "models.Fusion | models.FusionQuery | models.RrfQuery | models.FormulaQuery"

# Qdrant ranks quantised vectors by the originals again if asked; for others this says nothing.
RESCORE = models.SearchParams(quantization=models.QuantizationSearchParams(rescore=True))


@dataclass(frozen=True, kw_only=True)
class RequestMaker:
    """Makes the requests of a `QdrantSource`, whose docstring explains the options.

    Raises:
        InvalidInputError: If options do not go together.
    """

    vector_name: str
    search_params: models.SearchParams | None
    score_threshold: float | None
    prefetch: Prefetch | None
    fusion: Fusion | None

    def __post_init__(self) -> None:
        if self.prefetch is not None and not callable(self.prefetch):
            raise InvalidInputError(
                f"`prefetch` must be a function of the query and the number of candidates, got "
                f"{type(self.prefetch).__name__}"
            )
        if self.fusion is not None and self.prefetch is None:
            raise InvalidInputError("`fusion` ranks what `prefetch` finds; pass that too")

    @property
    def restricts(self) -> bool:
        """Whether an answer may be empty although there are documents."""
        return self.score_threshold is not None or self.prefetch is not None

    def make(
        self,
        queries: Sequence[Query],
        n_candidates: int,
        condition: models.Filter | None,
        *,
        embedder_name: str | None,
    ) -> list[models.QueryRequest]:
        """Return what to ask, one request a query.

        Raises:
            InvalidInputError: If an argument or an option cannot be used.
        """
        _check_filter(condition)
        n_candidates = check_fetch_arguments(
            queries, n_candidates, dimension=None, embedder_name=embedder_name
        )
        return [self._request(query, n_candidates, condition) for query in queries]

    def make_for_words(
        self, words: models.SparseVector, n_candidates: int, condition: models.Filter | None
    ) -> models.QueryRequest:
        """Return what to ask for documents with words; no option of dense searches holds.

        Raises:
            InvalidInputError: If the filter is of another kind.
        """
        _check_filter(condition)
        return models.QueryRequest(
            query=models.NearestQuery(nearest=words),
            using=WORDS,
            filter=condition,
            limit=n_candidates,
            with_payload=True,
            with_vector=[self.vector_name],
        )

    def _request(
        self, query: Query, n: int, condition: models.Filter | None
    ) -> models.QueryRequest:
        ranking: Any = self.fusion  # of what was prefetched
        if isinstance(ranking, models.Fusion):
            ranking = models.FusionQuery(fusion=ranking)
        is_fused = ranking is not None
        prefetch = None if self.prefetch is None else self.prefetch(query, n)
        try:
            return models.QueryRequest(
                query=ranking or models.NearestQuery(nearest=as_float32(query.vector).tolist()),
                prefetch=list(prefetch) if isinstance(prefetch, Sequence) else prefetch,
                using=None if is_fused else self.vector_name or None,
                filter=condition,
                params=None if is_fused else self.search_params,
                score_threshold=self.score_threshold,
                limit=n,
                with_payload=True,
                # Alone, also if it is unnamed: a hit's words would be half as much again. Of what
                # a prefetch finds, a point may have other vectors, which an error then names.
                with_vector=vectors_wanted(self.vector_name) if prefetch else [self.vector_name],
            )
        except ValidationError as error:
            first = error.errors()[0]
            raise InvalidInputError(
                f"`search_params`, `score_threshold`, `fusion` and what `prefetch` returns must be "
                f"as qdrant_client.models has them: {first['msg']} at {first['loc']}"
            ) from error


def _check_filter(condition: object) -> None:
    if not isinstance(condition, models.Filter | None):
        raise InvalidInputError(
            f"`filter` must be a qdrant_client.models.Filter, got {type(condition).__module__}."
            f"{type(condition).__name__}; each kind of store has its own kind of filter"
        )


def rescored(params: models.SearchParams | None) -> models.SearchParams:
    """Return parameters with which quantised vectors are ranked by the originals again."""
    if params is None:
        return RESCORE
    if not isinstance(params, models.SearchParams) or params.quantization is not None:
        return params
    return params.model_copy(update={"quantization": RESCORE.quantization})
