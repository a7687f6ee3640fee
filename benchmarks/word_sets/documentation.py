"""FastAPI's documentation and its 46 questions. Chunks are chosen, and gold are whole pages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.demo_questions import chunks_of, read_lines
from sift_core.embedders import OnnxEmbedder, SentenceTransformerEmbedder
from sift_core.evaluation.data import Passage, Question, RetrievalSet


@dataclass(frozen=True, kw_only=True, eq=False)
class Documentation:
    """The questions of a documentation, over its chunks.

    Args:
        retrieval_set: The chunks as `sift index` cuts them, without titles. All chunks of a
            question's gold pages have a grade, so judge by `covered` and not by recall of chunks.
        pages: The page of each chunk, one id a row.
    """

    retrieval_set: RetrievalSet
    pages: Sequence[str]

    def gold_pages(self, question: Question) -> frozenset[str]:
        """Return the pages that answer a question."""
        return self._pages_of(question.gold)

    def covered(self, question: Question, rows: Collection[int]) -> frozenset[str]:
        """Return the gold pages of a question that have a chunk among these rows."""
        return self.gold_pages(question) & self._pages_of(rows)

    def recall(self, question: Question, rows: Collection[int]) -> float:
        """Return the share of a question's gold pages that have a chunk among these rows."""
        return len(self.covered(question, rows)) / len(self.gold_pages(question))

    def _pages_of(self, rows: Collection[int]) -> frozenset[str]:
        return frozenset(self.pages[row] for row in rows if row < len(self.pages))


def read_documentation(
    data: Path, embedder: OnnxEmbedder | SentenceTransformerEmbedder | None = None
) -> Documentation:
    """Return FastAPI's documentation with its questions.

    Args:
        data: Folder that holds demo/.
        embedder: Counts tokens: a chunk is as long as it reads. Default: all-MiniLM-L6-v2.
    """
    folder = data / "demo"
    chunks = chunks_of(read_lines(folder / "pages.jsonl.gz"), embedder or OnnxEmbedder())
    pages = [chunk.metadata["source"] for chunk in chunks]
    rows_of: dict[str, list[int]] = {}
    for row, page in enumerate(pages):
        rows_of.setdefault(page, []).append(row)
    questions = [
        Question(
            question_id=asked["id"],
            text=asked["question"],
            grades={row: 1.0 for page in asked["gold"] for row in rows_of[page]},
        )
        for asked in read_lines(folder / "questions.jsonl")
    ]
    passages = [
        Passage(passage_id=chunk.document_id, title="", text=chunk.text) for chunk in chunks
    ]
    found = RetrievalSet(name="fastapi", passages=passages, questions=questions)
    return Documentation(retrieval_set=found, pages=pages)
