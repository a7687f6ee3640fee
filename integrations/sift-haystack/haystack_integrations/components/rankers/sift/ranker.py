"""The ranker: documents in, one choice, copies of the chosen documents out."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.components.embedders.types import DocumentEmbedder, TextEmbedder
from haystack.core.errors import DeserializationError
from haystack.utils import deserialize_callable, serialize_callable

from haystack_integrations.components.rankers.sift.documents import (
    chosen_documents,
    distinct_documents,
    document_pool,
)
from haystack_integrations.components.rankers.sift.embedding import (
    ModelEmbedder,
    run_awaited,
    texts_to_embed,
    vectors_of,
    without_embedding,
)
from haystack_integrations.components.rankers.sift.serialization import from_plain, to_plain
from sift_core import ChoiceOptions, InvalidInputError, Query, choose
from sift_core.options import unknown_option
from sift_core.plugins import SeenFacts

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sift_core.options import ChoiceKeywords

_logger = logging.getLogger(__name__)
_OPTIONS = {one.name for one in fields(ChoiceOptions)} - {"n_select", "n_candidates"}
_OWN = ("top_k", "score", "use_scores", "text_embedder", "document_embedder", "model")

_NO_TEXT = (
    "the question came as an embedding alone, so its words do not count; pass its text as `query` "
    "too, or make the ranker with words=0"
)


@component
class SIFTRanker:
    """Keeps the documents that together say most about a question, in order of choice.

    Put it behind a retriever that returns many documents (some 200) with their embeddings
    (`return_embedding=True`). Connect the text embedder's `embedding` to `query_embedding` too, and
    give the question as `query`, since its words count. Then nothing is embedded again. Documents
    and questions without an embedding are embedded by `text_embedder`, `document_embedder` or
    `model`.

    The documents come as copies. A document's `score` becomes the variance at the query before
    it was chosen. It never rises, so sorting by score keeps the order. `meta["sift"]` has the
    fields of `sift_core.Pick`: "similarity", "score", "relevance", "redundancy", "gain",
    "variance", and the ids of joined documents under "chunks". Words that led to a document are
    under "shares", "reached_from" and "reached_by". Of documents with one id and text the one with
    the highest score is kept.

    Args:
        top_k: Keep at most this many documents, >= 1.
        score: What becomes a kept document's score: "variance", or "similarity" for its cosine
            with the query, by which a threshold can cut. The order is that of choice in both.
        use_scores: Whether the order of the documents' scores is their relevance, as after a
            cross-encoder or a hybrid search. Default: if they say more than cosines.
        text_embedder: Embeds the query if no `query_embedding` arrives.
        document_embedder: Embeds documents that arrive without embedding.
        model: Name or folder of a sentence-transformers model that replaces a missing embedder
            (`sift_core.embedders`, loaded by `warm_up`).
        **options: The others are `sift_core.ChoiceOptions`. `hops` does nothing. `words` needs the
            text of the question, not its embedding alone. `document_key` is "file_path" by
            default; a chunk without it is of the document that a splitter split
            (`meta["source_id"]`), else a document of its own. A pipeline is saved with the import
            path of `count_tokens`, and with your own `selector` by its `to_dict` and `from_dict`.

    Raises:
        InvalidInputError: At construction (a ValueError), if a setting cannot be used.
        TypeError: At construction, if there is no option of a name.

    Example:
        >>> ranker = SIFTRanker(top_k=2)
        >>> found = ranker.run(documents, query="When?", query_embedding=query.embedding.tolist())
        >>> [document.id for document in found["documents"]]
        ['prices', 'timetable']
    """

    def __init__(
        self,
        top_k: int = 10,
        *,
        score: str = "variance",
        use_scores: bool | None = None,
        text_embedder: TextEmbedder | None = None,
        document_embedder: DocumentEmbedder | None = None,
        model: str | None = None,
        **options: Unpack[ChoiceKeywords],
    ) -> None:
        _check_top_k(top_k)
        if score not in ("variance", "similarity"):
            raise InvalidInputError(f"`score` must be 'variance' or 'similarity', got {score!r}")
        if unknown := options.keys() - _OPTIONS:
            raise TypeError(unknown_option("SIFTRanker", min(unknown), {*_OPTIONS, *_OWN}))
        self.options: ChoiceOptions = ChoiceOptions(n_select=top_k, n_candidates=top_k, **options)
        self.top_k = top_k
        self.score = score
        self.use_scores = use_scores
        self.text_embedder = text_embedder
        self.document_embedder = document_embedder
        self.model = model
        self._embeds_text: Any = text_embedder
        self._embeds_documents: Any = document_embedder
        self._seen = SeenFacts()

    def warm_up(self) -> None:
        """Load the model, and warm up the embedders.

        Raises:
            MissingDependencyError: If `model` is given and sentence-transformers is not installed.
            InvalidInputError: If there is no such model.
        """
        if self.model is not None and None in (self._embeds_text, self._embeds_documents):
            from sift_core.embedders import SentenceTransformerEmbedder

            embedder = ModelEmbedder(SentenceTransformerEmbedder(self.model))
            self._embeds_text = self._embeds_text or embedder
            self._embeds_documents = self._embeds_documents or embedder
        embedders: tuple[Any, ...] = (self.text_embedder, self.document_embedder)
        for each in embedders:
            if hasattr(each, "warm_up"):
                each.warm_up()

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, in which embedders are nested.

        Raises:
            InvalidInputError: If `selector` is neither of sift_core nor has a `to_dict`.
            haystack.core.errors.SerializationError: If `count_tokens` has no import path.
        """
        options = {name: getattr(self.options, name) for name in sorted(_OPTIONS)}
        if (count := options["count_tokens"]) is not None:
            options["count_tokens"] = serialize_callable(count)
        options["selector"] = to_plain(options["selector"])
        return default_to_dict(self, **{name: getattr(self, name) for name in _OWN}, **options)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SIFTRanker:
        """Return the ranker of `to_dict`; `data` is not changed.

        Classes that are neither Haystack's nor of sift_core are imported only if the pipeline is
        loaded with `allowed_modules` that name theirs.

        Raises:
            haystack.core.errors.DeserializationError: If an argument does not exist, or a class
                may not be imported.
        """
        settings = dict(data.get("init_parameters", {}))
        # Haystack itself refuses unknown names only where a class takes no `**options`.
        if unknown := sorted(settings.keys() - {*_OWN, *_OPTIONS}):
            raise DeserializationError(f"SIFTRanker has no argument {unknown[0]!r}")
        if isinstance(settings.get("count_tokens"), str):
            settings["count_tokens"] = deserialize_callable(settings["count_tokens"])
        settings["selector"] = from_plain(settings.get("selector"))
        ranker: SIFTRanker = default_from_dict(cls, {**data, "init_parameters": settings})
        return ranker

    @component.output_types(documents=list[Document])
    def run(
        self,
        documents: list[Document],
        query: str | None = None,
        query_embedding: list[float] | None = None,
        top_k: int | None = None,
        queries: list[str] | None = None,
    ) -> dict[str, list[Document]]:
        """Return copies of up to `top_k` of the documents, in order of choice.

        Args:
            documents: The candidates, in any order; not modified.
            query: The question. Without it, `query_embedding` is needed, and no words of the
                question count.
            query_embedding: Its embedding by the documents' model.
            top_k: For this call instead of the ranker's own.
            queries: Texts in place of the question, as of a `QueryExpander`: its parts, or
                rewrites. They are embedded, and each has its turns in the choice.

        Returns:
            "documents": the chosen ones.

        Raises:
            InvalidInputError: If an argument or an embedding cannot be used, or is missing and
                nothing makes it. A ValueError.
        """
        found, n = self._checked(documents, top_k)
        if not found:
            return {"documents": []}
        self.warm_up()
        texts = texts_to_embed(query, queries, query_embedding, self._embeds_text)
        vectors = [self._embeds_text.run(text=text)["embedding"] for text in texts]
        missing = without_embedding(found, self._embeds_documents)
        if missing:
            missing = self._embeds_documents.run(documents=missing)["documents"]
        asked = _asked(texts, vectors, query, query_embedding)
        return {"documents": self._choose(asked, found, missing, n)}

    @component.output_types(documents=list[Document])
    async def run_async(
        self,
        documents: list[Document],
        query: str | None = None,
        query_embedding: list[float] | None = None,
        top_k: int | None = None,
        queries: list[str] | None = None,
    ) -> dict[str, list[Document]]:
        """Return what `run` returns.

        Embedders are called by their `run_async`, else in a thread, where the selection runs too.
        """
        found, n = self._checked(documents, top_k)
        if not found:
            return {"documents": []}
        await asyncio.to_thread(self.warm_up)
        texts = texts_to_embed(query, queries, query_embedding, self._embeds_text)
        vectors = [(await run_awaited(self._embeds_text, text=one))["embedding"] for one in texts]
        missing = without_embedding(found, self._embeds_documents)
        if missing:
            missing = (await run_awaited(self._embeds_documents, documents=missing))["documents"]
        asked = _asked(texts, vectors, query, query_embedding)
        return {"documents": await asyncio.to_thread(self._choose, asked, found, missing, n)}

    def _checked(self, documents: list[Document], top_k: int | None) -> tuple[list[Document], int]:
        """Return the documents to choose from, each once, and how many to choose at most."""
        n = self.top_k if top_k is None else top_k
        _check_top_k(n)
        if not all(isinstance(document, Document) for document in documents):
            raise InvalidInputError(f"`documents` must be a list of Documents, got {documents!r}")
        message = (
            f"{len(documents)} documents arrived for top_k={n}, so there is nothing to choose "
            f"from; raise the retriever's top_k (Haystack's default is 10) to about 200"
        )
        if 0 < len(documents) <= n and self._seen.add(message):
            _logger.warning("%s", message)
        return distinct_documents(documents), n

    def _choose(
        self, query: Query, documents: list[Document], embedded: list[Document], n: int
    ) -> list[Document]:
        if self.options.words > 0 and not query.text.strip() and self._seen.add(_NO_TEXT):
            _logger.warning("%s", _NO_TEXT)
        vectors = vectors_of(documents, embedded)
        pool = document_pool(query, documents, vectors, use_scores=self.use_scores)
        chosen = choose(pool, query, replace(self.options, n_select=n))
        return chosen_documents(chosen, score=self.score)


def _asked(texts: list[str], vectors: list[Any], query: str | None, given: Any) -> Query:
    """Return the queries that were embedded here, else the one whose embedding was given."""
    return Query.of_each(texts, vectors) if vectors else Query.of_each([query or ""], [given])


def _check_top_k(value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInputError(f"`top_k` must be a whole number >= 1, got {value!r}")
