"""The values that pass between a store and the selection, and what every store shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from sift_core import CandidateSourceError, InvalidInputError, Query, Selection

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Search:
    """What to ask a store for.

    Args:
        query: The question and its embedding, finite.
        n_candidates: How many documents at most, >= 1.
        filter: The store's own kind of filter; None for no restriction.
        options: Further arguments in the store's own words.
    """

    query: Query
    n_candidates: int
    filter: Any
    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """Documents with their embeddings; row i belongs to document i.

    Args:
        documents: n documents, nearest first. They may alias what the store keeps.
        embeddings: Shape (n, d); checked by the selector.
    """

    documents: Sequence[Document]
    embeddings: FloatArray


@contextmanager
def store_failures(store: object, place: str, advice: str) -> Iterator[None]:
    """Turn whatever a store raises inside the block into an error that says what to do.

    Args:
        store: The store, named by its class.
        place: What was searched, for instance "collection 'docs'".
        advice: What to check.

    Raises:
        CandidateSourceError: If the block raises; the store's exception is its cause.
    """
    try:
        yield
    except Exception as error:  # stores share no ancestor: ValueError, RpcError, AssertionError, …
        raise CandidateSourceError(
            f"{type(store).__name__} could not search {place}: {error!r}; {advice}"
        ) from error


def refuse_options(store: object, names: set[str]) -> None:
    """Refuse search options that would be ignored or would clash.

    Raises:
        InvalidInputError: If `names` is not empty.
    """
    if names:
        raise InvalidInputError(
            f"{type(store).__name__} cannot be searched by SIFTRetriever with the option(s) "
            f"{sorted(names)}; leave them out of `search_kwargs` and of the call"
        )


def chosen_documents(candidates: Candidates, query: Query, selection: Selection) -> list[Document]:
    """Return copies of the chosen documents, in order of choice, with a "sift" in metadata.

    The originals are not modified, nor is anything that they hold shared.
    """
    embeddings = candidates.embeddings[selection.positions]
    similarities = cosine_similarities(query.embedding, embeddings)
    documents = []
    for step, position in enumerate(selection.positions):
        document = candidates.documents[position].model_copy(deep=True)
        document.metadata["sift"] = {
            "similarity": float(similarities[step]),
            "gain": float(selection.gains[step]),
            "variance_before": float(selection.variances[step]),
            "variance_after": float(selection.variances[step + 1]),
        }
        documents.append(document)
    return documents


def cosine_similarities(query: FloatArray, embeddings: FloatArray) -> FloatArray:
    """Return the cosine of `query` (d,) and each row of `embeddings` (n, d), shape (n,).

    float64, in [-1, 1]. No vector may be all zero.
    """
    rows = embeddings.astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cosines: FloatArray = rows @ (query / np.linalg.norm(query))
    return np.clip(cosines, -1.0, 1.0)
