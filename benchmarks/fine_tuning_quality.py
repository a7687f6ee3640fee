"""What each way to save time costs: bits per byte of a passage after learning from its document.

A trained model, --model, learns the first chunks of documents of the mini-Pile's test part,
and is scored on what follows them. So every row has its speed and its
quality side by side; lower bits per byte are better.
"""

from __future__ import annotations

import json
import lzma
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from benchmarks import fine_tuning_rivals as rivals
from benchmarks.fine_tuning_cases import add_row
from benchmarks.report import Report
from sift_core.answering import FineTuningSettings, LanguageModel, fine_tuned

DOCUMENTS = "minipile/test_dev.jsonl.xz"
N_TOKENS = 256  # of a chunk
N_HELD_OUT = 512  # tokens after the chunks
CASE = "quality"


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """The first chunks of a document, and what follows them."""

    domain: str
    chunks: list[str]
    held_out: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Of one document: seconds to learn, the first time and again (NaN: not done), and quality."""

    seconds: float
    seconds_again: float
    bits_per_byte: float


def measure(
    report: Report, data: Path, *, model: str, threads: int, n_documents: int, n_chunks: int
) -> None:
    """Add a row a way with the means over documents; the first row is the model as it is."""
    report.heading(
        f"Quality: {model}, {n_documents} documents, {n_chunks} chunks of {N_TOKENS} tokens, "
        f"then {N_HELD_OUT} held out, {threads} thread(s)"
    )
    if not (data / DOCUMENTS).exists():
        report.skip(CASE, f"no {DOCUMENTS} in the folder of --data")
        return
    language_model = LanguageModel.from_pretrained(model, device="cpu", dtype="float32")
    lessons = read_lessons(language_model, data / DOCUMENTS, n_documents, n_chunks)
    before = float(np.mean([language_model.bits_per_byte(one.held_out) for one in lessons]))
    _row(report, "none, the model as it is", [], before, before, threads)
    half = LanguageModel.from_pretrained(model, device="cpu", dtype="float32")
    half.model.to(torch.bfloat16)
    for name, learner, settings in our_ways(language_model, half):
        outcomes = [ours(learner, one, settings) for one in lessons]
        _row(report, name, outcomes, before, _mean_bits(outcomes), threads)
    for name, way in (
        ("plain PEFT loop, fp32", rivals.plain_peft),
        ("HF Trainer, fp32", rivals.trained),
    ):
        if way is rivals.trained and (why := rivals.why_no_trainer()):
            report.skip(f"{CASE}, {name}", why)
            continue
        theirs = LanguageModel.from_pretrained(model, device="cpu", dtype="float32")
        outcomes = []
        for one in lessons:
            started = time.perf_counter()
            with way(theirs, one.chunks) as (learned, _):
                seconds = time.perf_counter() - started
                bits = rivals.bits_per_byte(learned, theirs, one.held_out)
            outcomes.append(
                Outcome(seconds=seconds, seconds_again=float("nan"), bits_per_byte=bits)
            )
        _row(report, name, outcomes, before, _mean_bits(outcomes), threads)


def our_ways(
    language_model: LanguageModel, half: LanguageModel
) -> Iterator[tuple[str, LanguageModel, FineTuningSettings]]:
    """Yield names, models (`half`: the bf16 one) and settings that learn every chunk once."""
    yield '"all", fp32', language_model, FineTuningSettings()
    yield '"all", bf16 base', half, FineTuningSettings()


def ours(language_model: LanguageModel, lesson: Lesson, settings: FineTuningSettings) -> Outcome:
    """Learn the chunks twice, each time from the model as it is."""
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        with fine_tuned(language_model, lesson.chunks, settings):
            seconds.append(time.perf_counter() - started)
            bits = language_model.bits_per_byte(lesson.held_out)
    return Outcome(seconds=seconds[0], seconds_again=seconds[1], bits_per_byte=bits)


def read_lessons(
    language_model: LanguageModel, path: Path, n_documents: int, n_chunks: int
) -> list[Lesson]:
    """Return the first long enough document of each of the first domains.

    Raises:
        ValueError: If there are fewer domains with one.
    """
    lessons: dict[str, Lesson] = {}
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if row["domain"] not in lessons:
                lesson = lesson_of(language_model, row["domain"], row["text"], n_chunks)
                if lesson is not None:
                    lessons[lesson.domain] = lesson
            if len(lessons) == n_documents:
                return list(lessons.values())
    raise ValueError(f"{path} has long documents of {len(lessons)} domains, not {n_documents}")


def lesson_of(
    language_model: LanguageModel, domain: str, text: str, n_chunks: int
) -> Lesson | None:
    """Cut a document into chunks and what follows them; None if it is too short."""
    encoded = language_model.tokenizer(
        text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
    )
    starts = [start for start, _ in encoded["offset_mapping"]]
    end = n_chunks * N_TOKENS
    if len(starts) < end + N_HELD_OUT:
        return None
    cuts = [*starts[: end + 1 : N_TOKENS], [*starts, len(text)][end + N_HELD_OUT]]
    parts = [text[a:b] for a, b in pairwise(cuts)]
    return Lesson(domain=domain, chunks=parts[:-1], held_out=parts[-1])


def _mean_bits(outcomes: Sequence[Outcome]) -> float:
    return float(np.mean([one.bits_per_byte for one in outcomes]))


def _row(
    report: Report,
    name: str,
    outcomes: Sequence[Outcome],
    before: float,
    after: float,
    threads: int,
) -> None:
    seconds = {}
    for field in ("seconds", "seconds_again"):
        values = [getattr(one, field) for one in outcomes]
        if values and not np.isnan(values).any():
            seconds[field] = round(float(np.mean(values)), 4)
    add_row(
        report,
        CASE,
        name,
        threads=threads,
        bits_per_byte_before=round(before, 5),
        bits_per_byte_after=round(after, 5),
        **seconds,
    )
