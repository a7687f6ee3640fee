"""The ranker: documents in, one call to a selector, chosen copies of them out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.components.embedders.types import DocumentEmbedder, TextEmbedder
from haystack.utils import deserialize_callable, serialize_callable

from haystack_integrations.components.rankers.sift.documents import (
    SOURCE_ID,
    chosen_documents,
    distinct_documents,
    document_pool,
    estimated_tokens,
    passage_metadata,
    source_of,
)
from haystack_integrations.components.rankers.sift.embedding import (
    ModelDocumentEmbedder,
    ModelTextEmbedder,
    run_awaited,
    texts_to_embed,
    vectors_of,
    without_embedding,
)
from haystack_integrations.components.rankers.sift.serialization import from_plain, to_plain
from sift_core import (
    ChoiceRules,
    ContextSelector,
    InvalidInputError,
    Query,
    Selector,
    check_score,
    place_of,
    select_texts,
)

_logger = logging.getLogger(__name__)

_DEFAULT_SELECTOR = ContextSelector()


@component
class SIFTRanker:
    """Keeps the documents that together say most about a question, in order of choice.

    Put it behind a retriever that returns many documents (some 200) with their embeddings
    (`return_embedding=True`), and connect the text embedder's `embedding` to `query_embedding` too:
    then nothing is embedded again. What arrives without is embedded by `text_embedder`,
    `document_embedder` or `model`.

    The documents come as copies. A document's `score` becomes the variance at the query before
    it was chosen, which never rises, so sorting by score keeps the order. What
    `sift_core.pick_metadata` says of it ("similarity", "score", "relevance", "redundancy",
    "gain", "variance") is in `meta["sift"]`. Of documents with one id the one with the highest
    score is kept.

    Args:
        top_k: How many documents to keep at most, >= 1.
        max_tokens: How many tokens the contents may have together; of the documents that still
            fit the one that tells most for its length is next. None for no limit.
        count_tokens: Counts those of a text. None for four characters a token, Haystack's own
            estimate. A pipeline is saved with its import path.
        max_per_document: How many chunks of one file at most. None for no limit.
        document_key: Where `meta` names it; a chunk without one is of the document that a
            splitter took it from (`meta["source_id"]`), else one of its own.
        newest: Where `meta` has a date, of which the newest is chosen among near-duplicates
            (`sift_core.by_date`). None for the most relevant.
        half_life_days: With `newest`: a document so many days older than the newest counts half.
        merge_neighbors: Whether kept chunks of one split document (`meta["source_id"]`) that touch,
            or have one other between them which fits, become one document with the text of all,
            whose ids are in `meta["sift"]["chunks"]`.
        score: What a kept document's score is: "variance", or "similarity" for its cosine with
            the query, which a threshold can cut by. Documents come in order of choice in both.
        use_scores: Take the order of the documents' scores for their relevance, as after a
            cross-encoder or a hybrid search. None: where they say more than cosines.
        selector: What chooses: any of sift_core, or your own; None for `ContextSelector()`. Your
            own is saved with a pipeline by its `to_dict` and `from_dict`.
        text_embedder: Embeds the query where no `query_embedding` arrives.
        document_embedder: Embeds documents that arrive without embedding.
        model: Name or folder of a sentence-transformers model for both, where no
            component is given (`sift_core.embedders`, loaded by `warm_up`).

    Raises:
        InvalidInputError: At construction (a ValueError), if a setting cannot be used.
    """

    def __init__(
        self,
        top_k: int = 10,
        *,
        max_tokens: int | None = None,
        count_tokens: Callable[[str], int] | None = None,
        max_per_document: int | None = None,
        document_key: str = "file_path",
        newest: str | None = None,
        half_life_days: float | None = None,
        merge_neighbors: bool = False,
        score: str = "variance",
        use_scores: bool | None = None,
        selector: Selector | None = None,
        text_embedder: TextEmbedder | None = None,
        document_embedder: DocumentEmbedder | None = None,
        model: str | None = None,
    ) -> None:
        _check_count("top_k", top_k)
        check_score(score)
        if selector is not None and not isinstance(selector, Selector):
            raise InvalidInputError(f"`selector` must have a method `select`, got {selector!r}")
        self.top_k = top_k
        self.max_tokens = max_tokens
        self.count_tokens = count_tokens
        self.max_per_document = max_per_document
        self.document_key = document_key
        self.newest = newest
        self.half_life_days = half_life_days
        self.merge_neighbors = merge_neighbors
        self.score = score
        self.use_scores = use_scores
        self.selector = selector
        self.text_embedder = text_embedder
        self.document_embedder = document_embedder
        self.model = model
        self._embeds_text: Any = text_embedder
        self._embeds_documents: Any = document_embedder
        self._warned_of_few_documents = False
        self._rules.check(selector)

    @property
    def _rules(self) -> ChoiceRules:
        return ChoiceRules(
            max_tokens=self.max_tokens,
            max_per_document=self.max_per_document,
            newest=self.newest,
            half_life_days=self.half_life_days,
            merge_neighbors=self.merge_neighbors,
        )

    def warm_up(self) -> None:
        """Load the model, and warm up the embedders.

        Raises:
            MissingDependencyError: If `model` is given and sentence-transformers is not installed.
            InvalidInputError: If there is no such model.
        """
        if self.model is not None and None in (self._embeds_text, self._embeds_documents):
            from sift_core.embedders import SentenceTransformerEmbedder

            embedder = SentenceTransformerEmbedder(self.model)
            self._embeds_text = self._embeds_text or ModelTextEmbedder(embedder)
            self._embeds_documents = self._embeds_documents or ModelDocumentEmbedder(embedder)
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
        count = self.count_tokens
        return default_to_dict(
            self,
            top_k=self.top_k,
            max_tokens=self.max_tokens,
            count_tokens=None if count is None else serialize_callable(count),
            max_per_document=self.max_per_document,
            document_key=self.document_key,
            newest=self.newest,
            half_life_days=self.half_life_days,
            merge_neighbors=self.merge_neighbors,
            score=self.score,
            use_scores=self.use_scores,
            selector=to_plain(self.selector),
            text_embedder=self.text_embedder,
            document_embedder=self.document_embedder,
            model=self.model,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SIFTRanker:
        """Return the ranker of `to_dict`; `data` is not changed.

        What is not Haystack's or ours is imported only if the pipeline is loaded with
        `allowed_modules` that name it.
        """
        settings = dict(data.get("init_parameters", {}))
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
            documents: What was found, in any order; not modified.
            query: The question; not needed with `query_embedding`.
            query_embedding: Its embedding by the documents' model.
            top_k: For this call instead of the ranker's own.
            queries: What was looked for in place of the question, as by a `QueryExpander`: its
                parts, or rewrites. They are embedded, and each has its turns in the choice.

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
        asked = [] if query_embedding is None else [query_embedding]
        if queries or not asked:
            texts = texts_to_embed(query, queries, self._embeds_text)
            asked = [self._embeds_text.run(text=text)["embedding"] for text in texts]
        missing = without_embedding(found, self._embeds_documents)
        if missing:
            missing = self._embeds_documents.run(documents=missing)["documents"]
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
        asked = [] if query_embedding is None else [query_embedding]
        if queries or not asked:
            texts = texts_to_embed(query, queries, self._embeds_text)
            made = [await run_awaited(self._embeds_text, text=text) for text in texts]
            asked = [each["embedding"] for each in made]
        missing = without_embedding(found, self._embeds_documents)
        if missing:
            missing = (await run_awaited(self._embeds_documents, documents=missing))["documents"]
        chosen = await asyncio.to_thread(self._choose, asked, found, missing, n)
        return {"documents": chosen}

    def _checked(self, documents: list[Document], top_k: int | None) -> tuple[list[Document], int]:
        """Return the documents to choose from, each once, and how many to choose at most."""
        if top_k is not None:
            _check_count("top_k", top_k)
        if not all(isinstance(document, Document) for document in documents):
            raise InvalidInputError(f"`documents` must be a list of Documents, got {documents!r}")
        n = self.top_k if top_k is None else top_k
        if 0 < len(documents) <= n and not self._warned_of_few_documents:
            self._warned_of_few_documents = True
            _logger.warning(
                "%d documents arrived for top_k=%d, so there is nothing to choose from; raise the "
                "retriever's top_k (Haystack's default is 10) to about 200",
                len(documents),
                n,
            )
        return distinct_documents(documents), n

    def _choose(
        self,
        query_embeddings: Sequence[Sequence[float]],
        documents: list[Document],
        embedded: list[Document],
        n: int,
    ) -> list[Document]:
        asked = Query.of_each([""] * len(query_embeddings), query_embeddings)
        vectors = vectors_of(documents, embedded)
        pool = document_pool(asked, documents, vectors, use_scores=self.use_scores)
        rules, count_tokens = self._rules, self.count_tokens or estimated_tokens
        told = rules.on(
            pool.texts,
            [document.meta for document in documents],
            count_tokens=count_tokens,
            documents=(source_of(document, self.document_key) for document in documents),
        )
        selection = select_texts(
            self.selector or _DEFAULT_SELECTOR,
            asked.vectors,
            pool.embeddings,
            n,
            text_of=pool.texts.__getitem__,
            relevance=pool.relevance,
            **told,
        )
        if rules.merge_neighbors:
            pool, selection = rules.merged(
                pool,
                selection,
                size=lambda row, text: count_tokens(text),
                places=[place_of(one.meta.get(SOURCE_ID), one.meta) for one in documents],
                metadata_of=lambda passage: passage_metadata(documents, passage),
            )
        return chosen_documents(pool, selection, score=self.score)


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInputError(f"`{name}` must be a whole number >= 1, got {value!r}")
