"""From a question on the command line to its candidates."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sift_core.errors import InvalidInputError

if TYPE_CHECKING:
    from sift_core.cli.stores import StoreAddress
    from sift_core.embedders import SentenceTransformerEmbedder
    from sift_core.protocols import CandidateSource, Embedder
    from sift_core.sources import FaissSource, QdrantSource
    from sift_core.types import CandidatePool, Query


def question_from(argument: str) -> str:
    """Return the question that an argument means: itself, or what stdin has for "-".

    Raises:
        InvalidInputError: If it is empty.
    """
    from sift_core.checks import check_question

    question = sys.stdin.read().strip() if argument == "-" else argument
    check_question(question)
    return question


def embedder_of(
    source: FaissSource | QdrantSource, address: StoreAddress
) -> SentenceTransformerEmbedder:
    """Return the model that embedded an opened store's documents, loaded.

    Args:
        source: From `open_store`, which has compared it with what the caller asked for.
        address: Where it is, for messages.

    Raises:
        InvalidInputError: If nobody said which model that is, or there is no such model.
    """
    from sift_core.cli.showing_text import working
    from sift_core.cli.stores import load_embedder

    name = embedder_name_of(source, address)
    with working(f"Loading the embedder {name} …"):
        return load_embedder(name)


def embedder_name_of(source: FaissSource | QdrantSource, address: StoreAddress) -> str:
    """Return the name of the model that embedded an opened store's documents.

    Raises:
        InvalidInputError: If nobody said which model that is.
    """
    from sift_core.cli.stores import stored_embedder_name

    name = stored_embedder_name(source)
    if name is None:
        raise InvalidInputError(
            f"the store {address} does not say which model embedded its documents; pass it with "
            f"--embedder"
        )
    return name


def retrieved(
    source: CandidateSource,
    embedder: Embedder,
    question: str,
    n_candidates: int,
    *,
    n_distinct: int | None = None,
) -> tuple[Query, CandidatePool]:
    """Return the question with its embedding, and its candidates.

    Args:
        source: The store.
        embedder: The model behind its vectors.
        question: In words.
        n_candidates: How many to fetch.
        n_distinct: How many are to be chosen, to fetch more where candidates repeat one
            another; None to take them as they come.

    Raises:
        CandidateSourceError: If the store fails.
    """
    from sift_core.sources.oversampling import OversamplingSource
    from sift_core.types import Query

    query = Query(
        text=question, embedding=embedder.embed_query(question), embedder_name=embedder.name
    )
    if n_distinct is not None:
        source = OversamplingSource(source, n_select=n_distinct)
    return query, source.fetch(query, n_candidates)
