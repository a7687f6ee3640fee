"""An answer: its text, where it comes from, and all of it as plain values that JSON takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from sift_core.answering.report import FineTuningReport
from sift_core.explanation import Pick, chunk_records, in_json, number_or_none
from sift_core.left_out import LeftOut
from sift_core.repeats import repeats_of
from sift_core.types import (
    AnswerMode,
    CandidatePool,
    FinishReason,
    Metadata,
    StopReason,
)


@dataclass(frozen=True, kw_only=True)
class Citation:
    """A mark such as [1] in an answer, and the chunk that it names.

    Args:
        mark: The number in it.
        start: Where the mark begins in the answer's text: its first bracket.
        end: Where it ends, behind its last bracket.
        position: Row of the chunk among the answer's `chunks`.
        document_id: The chunk's identifier.
    """

    mark: int
    start: int
    end: int
    position: int
    document_id: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """A generated text and where it comes from.

    Args:
        text: The generated text, without the question and the model's thoughts.
        mode: The mode that was used.
        chunks: The chunks used, in order of choice: first those that were read, then those that
            were learned from, which may repeat.
        n_read: How many of `chunks` were read, the first ones.
        standard_deviation: σ at the query given these chunks; NaN without any.
        reasons: Why this mode was used, one sentence each.
        timings: Seconds by stage.
        n_prompt_tokens: Tokens that the model read.
        n_new_tokens: Tokens that it wrote, the one that ended the text included.
        finish_reason: "stop" if the model or a stop string ended the text, "length" if it
            was cut at its full length.
        fine_tuning: How the model learned; None if it did not.
        effort: The named effort of the fine-tuning; None if it had no name.
        citations: The marks in `text` that name a chunk which was read, in order; empty where
            they were not asked for (`cite`), or the model put none.
        unknown_marks: Numbers in marks that name no chunk, each once.
        is_refusal: Whether `text` says that the documents have nothing on the question. No model
            wrote it.
        searched_for: The texts that candidates were searched for by; empty without a search.
        picks: Why each of `chunks` was chosen, in their order.
        stop_reason: Why no further chunk was chosen to be read; None if none was.
        nearest: Of a refusal the three nearest candidates, which no model read. Mode "context"
            answers from them. None otherwise.
        unrelated_cosine: Cosine of unrelated candidates, by which near-duplicates are marked; see
            `repeats_of`. Default: 0.
        thoughts: What the model thought before the answer, between <think> and </think>; empty
            unless `chat_template_kwargs` turn thinking on, or the model cannot do without.
        missing_names: Names and numbers in the question that no candidate has, in lower case.
            Empty if no chunk was chosen to be read.
        left_out: Near-copies of the chunks chosen to be read, and what limits left out.

    Example:
        >>> answer = engine.answer("When does the ferry sail?", mode="context")
        >>> answer.mode.value, answer.reasons, list(answer.timings)
        ('context', ('it was asked for',), ['embed', 'fetch', 'select', 'generate'])
        >>> answer.chunks.document_ids
        ('timetable', 'prices')
    """

    text: str
    mode: AnswerMode
    chunks: CandidatePool | None = None
    n_read: int = 0
    standard_deviation: float = float("nan")
    reasons: tuple[str, ...] = ()
    timings: Metadata = field(default_factory=dict)
    n_prompt_tokens: int = 0
    n_new_tokens: int = 0
    finish_reason: FinishReason = "stop"
    fine_tuning: FineTuningReport | None = None
    effort: str | None = None
    citations: tuple[Citation, ...] = ()
    unknown_marks: tuple[int, ...] = ()
    is_refusal: bool = False
    searched_for: tuple[str, ...] = ()
    picks: tuple[Pick, ...] = ()
    stop_reason: StopReason | None = None
    missing_names: tuple[str, ...] = ()
    nearest: CandidatePool | None = None
    unrelated_cosine: float = 0.0
    left_out: tuple[LeftOut, ...] = ()
    thoughts: str = ""

    def distinct_chunks(self) -> tuple[CandidatePool, list[int]]:
        """Return each chunk once, where it came first, and how often it came.

        Chunks with one id and different texts are different chunks.
        """
        chunks = CandidatePool.empty() if self.chunks is None else self.chunks
        keys = chunks.chunk_keys
        counts = Counter(keys)  # keeps the order
        return chunks.take([keys.index(key) for key in counts]), [*counts.values()]

    def as_dict(self) -> dict[str, Any]:
        """Return the answer in values that JSON takes, its texts unshortened.

        "chunks" has each chunk once, with why it was chosen and what it was used for. The rank of
        a citation is its chunk's among them, from 1.
        """
        ranks = self._ranks()
        return {
            "searched_for": list(self.searched_for),
            "text": self.text,
            **({"thoughts": self.thoughts} if self.thoughts else {}),
            "mode": self.mode.value,
            "effort": self.effort,
            "reasons": list(self.reasons),
            "finish_reason": self.finish_reason,
            "standard_deviation": number_or_none(self.standard_deviation),
            "n_prompt_tokens": self.n_prompt_tokens,
            "n_new_tokens": self.n_new_tokens,
            "timings": dict(self.timings),
            "fine_tuning": None if self.fine_tuning is None else asdict(self.fine_tuning),
            "citations": [
                {
                    "mark": one.mark,
                    "start": one.start,
                    "end": one.end,
                    "rank": ranks[one.position],
                    "document_id": one.document_id,
                }
                for one in self.citations
            ],
            "unknown_marks": list(self.unknown_marks),
            "is_refusal": self.is_refusal,
            "stop_reason": None if self.stop_reason is None else self.stop_reason.value,
            "missing_names": list(self.missing_names),
            "nearest": [] if self.nearest is None else _nearest_records(self.nearest),
            "left_out": [one.as_dict() for one in self.left_out],
            "chunks": self._chunk_records(ranks),
        }

    def _ranks(self) -> list[int]:
        """Return the rank of each of `chunks` among the distinct ones, from 1."""
        ranks: dict[tuple[str, str], int] = {}
        keys = [] if self.chunks is None else self.chunks.chunk_keys
        return [ranks.setdefault(key, len(ranks) + 1) for key in keys]

    def _chunk_records(self, ranks: list[int]) -> list[dict[str, Any]]:
        if not ranks:
            return []
        distinct, _ = self.distinct_chunks()
        repeats = repeats_of(distinct.embeddings, unrelated=self.unrelated_cosine)
        read, n_learned = set(ranks[: self.n_read]), Counter(ranks[self.n_read :])
        picks = [self.picks[ranks.index(rank + 1)] for rank in range(len(distinct))]
        return [
            {**record, "is_read": rank in read, "n_times_learned": n_learned[rank]}
            for rank, record in enumerate(chunk_records(distinct, picks, repeats), start=1)
        ]


def _nearest_records(nearest: CandidatePool) -> list[dict[str, Any]]:
    return [
        {
            "document_id": nearest.document_ids[i],
            "similarity": float(nearest.similarities[i]),
            "text": nearest.texts[i],
            "metadata": in_json(nearest.metadata[i]),
        }
        for i in range(len(nearest))
    ]
