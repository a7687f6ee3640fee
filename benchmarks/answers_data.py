"""What the benchmark of answers asks: questions, their collection, and the contexts to choose."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.retrieval import N_VERSIONS, restricted
from benchmarks.retrieval_methods import methods
from benchmarks.text_variants import textual_variants, versions
from sift_core.evaluation.data import (
    Passage,
    Question,
    RetrievalSet,
    read_json_lines,
    read_retrieval_set,
)
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.retrieval import choose, embed_questions
from sift_core.evaluation.search import N_CANDIDATES, Versions, pools
from sift_core.types import CandidatePool, FloatArray

FORMS = ("as it is", "redundant")
SIZES = (5, 10)  # chunks in a context
# DPP in the setting with the best mean recall of all DPPs of benchmarks.retrieval, both forms.
COMPARED = ("nn", "mmr .7", "pyversity dpp .5", "sift")
BOUNDS = ("no context", "gold alone")
N_QUESTIONS = 200  # of a set at most, by chance
N_PASSAGES = 1_000  # of a set: embedding four versions of each takes minutes, not hours
SEED = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Collection:
    """One set: passages in four textual versions each, questions in an order by chance.

    `versions` has all passages, then all their second versions, and so on, and a row of it names
    a chunk; `queries` (n, d) are the questions' embeddings, `answers` are by question id.
    """

    name: str
    passages: Sequence[Passage]
    questions: Sequence[Question]
    answers: Mapping[str, Sequence[str]]
    queries: FloatArray
    versions: Versions
    digest: str

    def contexts(self, i: int) -> dict[tuple[str, str, int], tuple[int, ...]]:
        """Return what is read for question i: (form, method, n) → rows in order of choice.

        The bounds have no form, and 0 for n.
        """
        gold = tuple(sorted(self.questions[i].gold))
        found = dict(zip([("", name, 0) for name in BOUNDS], [(), gold], strict=True))
        compared = methods()
        for form in FORMS:
            searched = self.versions.embeddings
            if form == FORMS[0]:
                searched = searched[: len(self.passages)]
            pool = next(pools(self.queries[i : i + 1], searched, N_CANDIDATES))
            for n in SIZES:
                for name in COMPARED:
                    chosen = pool.rows[choose(name, compared[name], pool, n)]
                    found[form, name, n] = tuple(chosen.tolist())
        return found

    def chunks(self, rows: Sequence[int]) -> CandidatePool:
        """Return chunks as they stand in a prompt, title and text."""
        return CandidatePool(
            document_ids=[str(row) for row in rows],
            texts=[self._text(row) for row in rows],
            embeddings=self.versions.embeddings[list(rows)],
            similarities=np.zeros(len(rows)),  # nobody asks for them here
        )

    def gold_found(self, i: int, rows: Sequence[int]) -> float:
        """Return the share of question i's gold passages of which a version was chosen."""
        gold = self.questions[i].gold
        return len(gold & {row % len(self.passages) for row in rows}) / len(gold)

    def _text(self, row: int) -> str:
        version, position = divmod(row, len(self.passages))
        passage = self.passages[position]
        texts = versions(passage.text, passage.passage_id, N_VERSIONS, SEED)
        return replace(passage, text=texts[version]).to_embed


def read_collection(folder: Path, name: str, cache: EmbeddingCache) -> Collection:
    """Return one set of a data folder, cut as `smaller` does, embedded."""
    corpus = folder / "corpus" / name / "corpus.jsonl.gz"
    asked = folder / "dev" / name / "queries.jsonl.gz"
    read = smaller(read_retrieval_set(corpus, asked, name=name))
    return Collection(
        name=name,
        passages=read.passages,
        questions=read.questions,
        answers={line.identifier("id"): line.values["answers"] for line in read_json_lines(asked)},
        queries=embed_questions(read.questions, cache),
        versions=textual_variants(read.passages, N_VERSIONS, SEED, cache),
        digest=hashlib.sha256(corpus.read_bytes() + asked.read_bytes()).hexdigest()[:16],
    )


def smaller(read: RetrievalSet) -> RetrievalSet:
    """Return `N_QUESTIONS` by chance, in that order, and `N_PASSAGES` in the corpus's order.

    These are the gold passages of the questions, and others by chance.
    """
    generator = np.random.default_rng(SEED)
    asked = [read.questions[i] for i in generator.permutation(len(read.questions))[:N_QUESTIONS]]
    gold = sorted(set().union(*(question.gold for question in asked)))
    others = generator.permutation(np.setdiff1d(np.arange(len(read.passages)), gold))
    kept = sorted([*gold, *others[: max(0, N_PASSAGES - len(gold))].tolist()])
    return restricted(replace(read, questions=asked), kept)
