"""What is told of picks, comparisons and answers, in plain values that JSON takes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sift_core.choice_rules import ChoiceRules, estimated_tokens
from sift_core.protocols import Selector
from sift_core.repeated_texts import select_texts
from sift_core.selection.baselines import MMRSelector, NearestNeighborSelector
from sift_core.selection.explain import pick_metadata
from sift_core.selection.posterior import posterior_variances
from sift_core.types import Answer, CandidatePool, FloatArray, Query, Selection

if TYPE_CHECKING:
    from sift_core.answering import Choice

# As README.md and the demo define "redundant"; two chunks this close say mostly the same.
REDUNDANT_COSINE = 0.8

# Versions of one text by MiniLM: the demo holds back passages by this. A guess by eye.
COPY_COSINE = 0.95

MMR_WEIGHT = 0.7  # of relevance: the middle one of those that `sift eval retrieval` measures


def explained(variances: Sequence[float]) -> float:
    """Return which share of the first variance is gone after the last, in [0, 1]."""
    return 1.0 - variances[-1] / variances[0] if variances[0] else 0.0


def number_or_none(value: float) -> float | None:
    """Return a number that JSON can hold; None for NaN and infinity."""
    return float(value) if math.isfinite(value) else None


def in_json(value: Any) -> Any:
    """Return metadata as JSON can hold it.

    NaN and infinity are None, arrays lists, keys texts; what JSON has no form for is its text.
    """
    if isinstance(value, Mapping):
        return {str(key): in_json(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [in_json(one) for one in value]
    if isinstance(value, float):
        return number_or_none(value)
    return value if value is None or isinstance(value, str | int) else str(value)


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """The earlier chunk that a chunk is most like.

    Args:
        rank: Of the earlier chunk, from 1.
        cosine: Of the two, >= `REDUNDANT_COSINE`.
        is_copy: Whether it hardly differs: its cosine is >= `COPY_COSINE`.
        mark: The sign and the rank, such as "≈3".
    """

    rank: int
    cosine: float
    is_copy: bool
    mark: str


def repeats_of(embeddings: FloatArray) -> list[Repeat | None]:
    """Return for each chunk the earlier one that it repeats; None where it repeats none.

    Args:
        embeddings: In order of choice, shape (k, d), no row all zero.
    """
    rows = np.asarray(embeddings, dtype=np.float64)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = np.minimum(rows @ rows.T, 1.0)
    found: list[Repeat | None] = [None] * len(rows)
    for i in range(1, len(rows)):
        rank, cosine = int(np.argmax(cosines[i, :i])) + 1, float(cosines[i, :i].max())
        is_copy = cosine >= COPY_COSINE
        if cosine >= REDUNDANT_COSINE:
            mark = f"{'≡' if is_copy else '≈'}{rank}"
            found[i] = Repeat(rank=rank, cosine=cosine, is_copy=is_copy, mark=mark)
    return found


def chunk_records(
    chunks: CandidatePool, picks: Sequence[Mapping[str, float | None]]
) -> list[dict[str, Any]]:
    """Return the chunks for JSON, in order of choice and unshortened.

    Args:
        chunks: The chunks.
        picks: What is said of each: from `pick_metadata`.
    """
    return [
        {
            "rank": i + 1,
            "document_id": chunks.document_ids[i],
            **picks[i],
            "near_duplicate_of": (
                None if repeat is None else {"rank": repeat.rank, "cosine": repeat.cosine}
            ),
            "is_copy": repeat is not None and repeat.is_copy,
            "text": chunks.texts[i],
            "metadata": in_json(chunks.metadata[i]),
        }
        for i, repeat in enumerate(repeats_of(chunks.embeddings))
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """What one method chose.

    Args:
        title: Name of the method, for a reader.
        pool: What it chose from, behind it passages that were merged.
        selection: Its choice.
        question_variances: Shape (k + 1,), σ² at the question before the first and after every
            choice, in the paper's setting: the same measure for every method. A passage counts as
            the chunk of it that was chosen first.
    """

    title: str
    pool: CandidatePool
    selection: Selection
    question_variances: FloatArray

    @property
    def chunks(self) -> CandidatePool:
        """Return the chosen rows."""
        return self.pool.take(self.selection.positions)

    @property
    def n_redundant(self) -> int:
        """Return how many of the chunks are like an earlier one, copies counted."""
        return sum(repeat is not None for repeat in repeats_of(self.chunks.embeddings))

    @property
    def n_copies(self) -> int:
        """Return how many of the chunks are nearly copies of an earlier one."""
        return sum(repeat.is_copy for repeat in repeats_of(self.chunks.embeddings) if repeat)

    def record(self) -> dict[str, Any]:
        """Return the column for JSON."""
        return {
            "chunks": chunk_records(self.chunks, pick_metadata(self.pool, self.selection)),
            "n_redundant": self.n_redundant,
            "n_copies": self.n_copies,
            "question_variances": self.question_variances.tolist(),
            "explained": explained(self.question_variances.tolist()),
            "variances": self.selection.variances.tolist(),
            "stop_reason": self.selection.stop_reason.value,
        }


def compared_columns(
    query: Query, pool: CandidatePool, selector: Selector, n_select: int
) -> Mapping[str, Column]:
    """Return the columns of the comparison by their names in JSON, SIFT the last.

    MMR is the one that `sift eval retrieval` measures, so that a user who goes on to measure
    meets the same method.
    """
    selectors: dict[str, tuple[str, Selector]] = {
        "nearest": ("nearest neighbours", NearestNeighborSelector()),
        "mmr": (f"MMR, weight {MMR_WEIGHT}", MMRSelector(relevance_weight=MMR_WEIGHT)),
        "sift": ("SIFT", selector),
    }
    return {
        name: column_of(title, query, pool, chosen_by, n_select)
        for name, (title, chosen_by) in selectors.items()
    }


def column_of(
    title: str,
    query: Query,
    pool: CandidatePool,
    selector: Selector,
    n_select: int,
    rules: ChoiceRules | None = None,
    *,
    count_tokens: Callable[[str], int] = estimated_tokens,
) -> Column:
    """Return what a selector chooses, going by the store's own scores where it can.

    Args:
        title: Name of the method, for a reader.
        query: The question.
        pool: The candidates.
        selector: The method.
        n_select: How many to choose at most.
        rules: What the choice must keep; for selectors that can.
        count_tokens: Counts those of a text, where a rule asks for it.
    """
    rules = rules or ChoiceRules()
    selection = select_texts(
        selector,
        query.vectors,
        pool.embeddings,
        n_select,
        text_of=pool.texts.__getitem__,
        relevance=pool.relevance,
        **rules.on(pool.texts, pool.metadata, count_tokens=count_tokens),
    )
    pool, selection = rules.merged(pool, selection, size=lambda row, text: count_tokens(text))
    rows = pool.embeddings[selection.positions]
    return Column(
        title=title,
        pool=pool,
        selection=selection,
        question_variances=posterior_variances(query.vectors, rows) / (1 + len(query.also)),
    )


def answer_record(
    question: str, answer: Answer, choice: Choice, known: Mapping[str, Any]
) -> dict[str, Any]:
    """Return an answer for JSON, unshortened."""
    return {
        "question": question,
        "searched_for": list(answer.searched_for),
        **known,
        "text": answer.text,
        "mode": answer.mode.value,
        "effort": choice.effort,
        "reasons": list(answer.reasons),
        "finish_reason": answer.finish_reason,
        "standard_deviation": number_or_none(answer.standard_deviation),
        "n_prompt_tokens": answer.n_prompt_tokens,
        "n_new_tokens": answer.n_new_tokens,
        "timings": dict(answer.timings),
        "fine_tuning": None if answer.fine_tuning is None else asdict(answer.fine_tuning),
        "citations": citation_records(answer),
        "unknown_marks": list(answer.unknown_marks),
        "is_refusal": answer.is_refusal,
        "stop_reason": None if choice.read is None else choice.read.stop_reason.value,
        "chunks": [] if answer.chunks is None else used_records(answer.chunks, answer, choice),
    }


def citation_records(answer: Answer) -> list[dict[str, Any]]:
    """Return the answer's citations for JSON; `rank` is the chunk's among its sources."""
    return [
        {
            "mark": one.mark,
            "start": one.start,
            "end": one.end,
            "rank": one.position + 1,
            "document_id": one.document_id,
        }
        for one in answer.citations
    ]


def used_records(chunks: CandidatePool, answer: Answer, choice: Choice) -> list[dict[str, Any]]:
    """Return each chunk once for JSON, with what it was used for and why it was chosen.

    What was read is described as a pick for the prompt, the others as picks to learn from.
    """
    distinct, _ = distinct_chunks(chunks)
    read = set(chunks.document_ids[: answer.n_read])
    n_learned = Counter(chunks.document_ids[answer.n_read :])
    picks: dict[str, dict[str, float | None]] = {}
    for selection in (choice.read, choice.learned):
        if selection is not None:
            ids = choice.chunks(selection).document_ids
            for name, pick in zip(ids, pick_metadata(choice.pool, selection), strict=True):
                if name in read or selection is choice.learned:
                    picks.setdefault(name, pick)
    records = chunk_records(distinct, [picks[name] for name in distinct.document_ids])
    return [
        {**record, "is_read": name in read, "n_times_learned": n_learned[name]}
        for name, record in zip(distinct.document_ids, records, strict=True)
    ]


def distinct_chunks(chunks: CandidatePool) -> tuple[CandidatePool, list[int]]:
    """Return each chunk once where it came first, and how often it came."""
    counts = Counter(chunks.document_ids)  # keeps the order
    return chunks.take([chunks.document_ids.index(name) for name in counts]), [*counts.values()]
