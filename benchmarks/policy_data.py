"""What the benchmark of policies asks: three collections, and what is judged on each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.answers_data import smaller
from benchmarks.embedding_cache import project_cache
from benchmarks.language_modeling.documents import Document, cut, read_documents, token_spans
from sift_core.answering import LanguageModel
from sift_core.answering.calibration import Example
from sift_core.cli.models import load_embedder
from sift_core.cli.options import DEFAULT_EMBEDDER
from sift_core.evaluation.data import read_json_lines, read_retrieval_set
from sift_core.protocols import Embedder
from sift_core.sources import InMemorySource

TEXTS, QUESTIONS = "texts", "questions"  # kinds of examples that are judged
PASSAGES = "passages"  # held back: what a calibration has without labels
TEXT_TOKENS = 500  # of a test document, both halves
CHUNK_TOKENS = 256  # of a document of the data space: what MiniLM reads of it
N_TRAIN = 3000  # documents of the data space


@dataclass(frozen=True, kw_only=True, eq=False)
class Collection:
    """A store, and examples that no calibration has: texts or questions with answers."""

    name: str
    source: InMemorySource
    kind: str
    examples: Sequence[Example]


def mini_pile(folder: Path, model: LanguageModel, n: int) -> Collection:
    """Return test documents over the first tokens of the train documents."""
    shorten = partial(token_spans, model)
    train = cut(some(read_documents(folder / "train.jsonl.xz"), N_TRAIN), shorten, CHUNK_TOKENS)
    tests = cut(some(read_documents(folder / "test_dev.jsonl.xz"), n), shorten, TEXT_TOKENS)
    return Collection(
        name="mini-Pile",
        source=_source([one.text for one in train], [one.document_id for one in train]),
        kind=TEXTS,
        examples=[_halves(one.text) for one in tests],
    )


def question_set(folder: Path, name: str, n: int) -> Collection:
    """Return questions with their first gold answers over a set's passages."""
    asked = folder / "dev" / name / "queries.jsonl.gz"
    corpus = folder / "corpus" / name / "corpus.jsonl.gz"
    read = smaller(read_retrieval_set(corpus, asked, name=name))
    answers = {line.identifier("id"): line.values["answers"] for line in read_json_lines(asked)}
    passages = read.passages
    return Collection(
        name=name,
        source=_source([one.to_embed for one in passages], [one.passage_id for one in passages]),
        kind=QUESTIONS,
        examples=[
            Example(question=one.text, answer=answers[one.question_id][0])
            for one in read.questions[:n]
        ],
    )


def embedder() -> Embedder:
    """Return what embeds questions, as `sift` does."""
    return load_embedder(DEFAULT_EMBEDDER)


def some(documents: Sequence[Document], n: int) -> list[Document]:
    """Return n documents, as evenly from the domains as can be, by chance within each."""
    domains: dict[str, list[Document]] = defaultdict(list)
    for one in sorted(documents, key=lambda one: one.digest):
        domains[one.domain].append(one)
    ranked = [
        (rank, domain, one)
        for domain, members in domains.items()
        for rank, one in enumerate(members[:n])
    ]
    return [one for _, _, one in sorted(ranked, key=lambda entry: entry[:2])][:n]


def _source(texts: Sequence[str], ids: Sequence[str]) -> InMemorySource:
    vectors = np.asarray(project_cache().embed(texts, "passages"))
    return InMemorySource(vectors, texts, document_ids=ids)


def _halves(text: str) -> Example:
    middle = text.find(" ", len(text) // 2)
    middle = middle if middle > 0 else len(text) // 2
    return Example(question=text[:middle], answer=text[middle:], is_text=True)
