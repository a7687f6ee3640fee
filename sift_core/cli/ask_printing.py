"""What `sift ask` says about an answer: sources, decision, certainty, timings; and as JSON."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sift_core.answering import VariancePolicy
from sift_core.cli.showing_chunks import LEGEND, chunk_records, print_chunks, repeats_of
from sift_core.cli.showing_text import number_or_none, plain
from sift_core.types import Answer, CandidatePool

if TYPE_CHECKING:
    from rich.console import Console

LONG_SELECTION_S = 0.3  # it takes milliseconds; the first of a process loads Numba or compiles
N_SOURCES = 10  # that are listed; a fine-tuning may have learned from fifty

_UNBROKEN = "\u00a0"  # a space that keeps a stage, its number and its unit on one line

# Stage of `Answer.timings` → what a reader calls it, in the order of the work.
_STAGES = {
    "embed": "embedding",
    "fetch": "retrieval",
    "select": "selection",
    "fine_tune": "fine-tuning",
    "read": "reading",
    "generate": "generation",
}


def answer_record(question: str, answer: Answer, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer for JSON, unshortened.

    Args:
        question: What was asked.
        answer: The answer.
        asked: What else is known about the question, such as the store.
    """
    return {
        "question": question,
        **asked,
        "text": answer.text,
        "mode": answer.mode.value,
        "reasons": list(answer.reasons),
        "finish_reason": answer.finish_reason,
        "standard_deviation": number_or_none(answer.standard_deviation),
        "n_prompt_tokens": answer.n_prompt_tokens,
        "n_new_tokens": answer.n_new_tokens,
        "timings": dict(answer.timings),
        "fine_tuning": None if answer.fine_tuning is None else asdict(answer.fine_tuning),
        "chunks": [] if answer.chunks is None else _source_records(answer.chunks, answer.n_read),
    }


def _source_records(chunks: CandidatePool, n_read: int) -> list[dict[str, Any]]:
    """Return each chunk once for JSON, with what it was used for."""
    distinct, _ = _distinct(chunks)
    read = set(chunks.document_ids[:n_read])
    n_learned = Counter(chunks.document_ids[n_read:])
    return [
        {**record, "is_read": key in read, "n_times_learned": n_learned[key]}
        for key, record in zip(distinct.document_ids, chunk_records(distinct), strict=True)
    ]


def print_about(console: Console, answer: Answer, *, n_lines: int = 0) -> None:
    """Print everything about an answer but its text.

    Args:
        console: Where.
        answer: The answer.
        n_lines: Lines of text of each source at most.
    """
    print_sources(console, answer, n_lines=n_lines)
    _print_pair(console, "mode", f"{answer.mode.value}: {'; '.join(answer.reasons)}")
    report = answer.fine_tuning
    if report is not None and report.losses:
        learned = "learned before" if report.source != "trained" else "learned now"
        _print_pair(
            console,
            "learning",
            f"{report.n_steps} steps, {learned}; loss {fmean(report.losses):.2f} nats a token in "
            f"the mean",
        )
    if answer.chunks is not None and len(answer.chunks):
        _print_pair(console, "σ²", _certainty(answer.standard_deviation))
    _print_pair(console, "time", _times(answer))
    if answer.finish_reason == "length":
        _print_pair(
            console, "note", f"cut at {answer.n_new_tokens} tokens; --max-new-tokens allows more"
        )


def print_sources(
    console: Console, answer: Answer, *, n_lines: int, all_of_them: bool = False
) -> None:
    """Print the distinct chunks that an answer rests on, in order of choice.

    Args:
        console: Where.
        answer: The answer.
        n_lines: Lines of text of each at most.
        all_of_them: Whether to print more than the first ten.
    """
    if answer.chunks is None or not len(answer.chunks):
        console.print("sources: none; the model answered from what it knows", style="dim")
        return
    distinct, counts = _distinct(answer.chunks)
    n_shown = len(distinct) if all_of_them else min(N_SOURCES, len(distinct))
    shown = distinct.take(range(n_shown))
    console.print("sources", style="bold")
    print_chunks(console, shown, counts=counts, n_lines=n_lines)
    if n_shown < len(distinct):
        console.print(f"    … and {len(distinct) - n_shown} more", style="dim")
    if any(repeats_of(shown.embeddings)):
        console.print(f"    {LEGEND}", style="dim")


def _distinct(chunks: CandidatePool) -> tuple[CandidatePool, list[int]]:
    """Return each chunk once where it came first, and how often it came."""
    counts = Counter(chunks.document_ids)
    first = {document_id: i for i, document_id in reversed(list(enumerate(chunks.document_ids)))}
    positions = sorted(first.values())
    return chunks.take(positions), [counts[chunks.document_ids[i]] for i in positions]


def _certainty(sigma: float) -> str:
    """Return what σ² at the question means; in the paper's setting it is 1 without sources."""
    share = 1.0 - sigma**2
    little = "" if share >= VariancePolicy().min_explained else "; they may be off the topic"
    return (
        f"1.00 → {sigma**2:.2f}: the sources explain {share:.0%} of what is uncertain about the "
        f"question{little}"
    )


def _times(answer: Answer) -> str:
    names = dict(_STAGES)
    if answer.timings.get("select", 0.0) > LONG_SELECTION_S and "numba" in sys.modules:
        names["select"] = "selection and loading its compiled code"
    parts = [
        f"{name}{_UNBROKEN}{answer.timings[stage]:.2f}{_UNBROKEN}s"
        for stage, name in names.items()
        if stage in answer.timings
    ]
    seconds = answer.timings.get("generate", 0.0)
    if seconds:
        parts[-1] += f" ({answer.n_new_tokens / seconds:.0f} tokens a second)"
    return ", ".join(parts)


def _print_pair(console: Console, name: str, text: str) -> None:
    """Print a name and, in a column of its own, what is said under it."""
    filled = textwrap.fill(
        plain(text),
        max(console.width, 40),
        initial_indent=f"{name:<10}",
        subsequent_indent=" " * 10,
    )
    console.print(filled.replace(_UNBROKEN, " "), soft_wrap=True)
