"""The demo's later half: what a small model makes of each choice, at the machine's pace."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from demo_pace import Pace, count_that_fits
from demo_report import Comparison, ModeResult, print_answer_line, print_modes, progress
from rich.console import Console

from sift_core import CandidatePool, ChoiceOptions, InvalidInputError
from sift_core.answering import AdapterCache, AnswerEngine, LanguageModel, LearningOptions
from sift_core.cli.models import load_language_model
from sift_core.cli.output import counted

MODES = ("base", "context", "fine_tune", "both")
N_CHUNKS = 10
N_STEPS = 10  # of fine-tuning; the paper takes 50
N_NEW_TOKENS = 40  # of an answer
LONGEST_STAGE_S = 60
SHARED_CHARACTERS = 60  # with the held-back passage; more would give it away
MIN_HELD_BACK_BYTES = 300  # a shorter passage says little about a model


def answer_and_learn(
    console: Console,
    compared: Comparison,
    methods: Mapping[str, ChoiceOptions],
    *,
    model: str,
    cache: Path,
) -> list[ModeResult]:
    """Print an answer from each choice, then bits per byte in every mode; return the latter."""
    language_model = load_language_model(model)
    with console.status("Timing the language model …"):
        pace = Pace.kept(cache / "pace.json", language_model)
    engine = AnswerEngine(
        language_model=language_model,
        options=ChoiceOptions(n_select=N_CHUNKS),
        learning=LearningOptions(n_steps=N_STEPS, cache=AdapterCache(folder=cache / "adapters")),
        generation={"max_new_tokens": N_NEW_TOKENS},
    )
    engine = answer_from_each(console, engine, compared, methods, pace)
    return try_modes(console, engine, compared, pace)


def answer_from_each(
    console: Console,
    engine: AnswerEngine,
    compared: Comparison,
    methods: Mapping[str, ChoiceOptions],
    pace: Pace,
) -> AnswerEngine:
    """Print, as it is written, what the model answers from each choice.

    Return the engine, which reads fewer chunks and writes less where three whole answers would
    take more than a minute.
    """

    def n_new(n_chunks: int) -> int:
        return max(1, N_NEW_TOKENS * n_chunks // N_CHUNKS)

    def seconds(n_chunks: int) -> float:
        texts = [compared.chunks(name).texts[:n_chunks] for name in methods]
        n_read = sum(n_tokens(engine.language_model, one) for one in texts)
        return pace.answering_s(read=n_read, written=len(methods) * n_new(n_chunks))

    n_chunks = count_that_fits(N_CHUNKS, seconds, LONGEST_STAGE_S)
    if n_chunks < N_CHUNKS:
        console.print(
            f"\n[dim]Three answers of {N_NEW_TOKENS} tokens from {N_CHUNKS} chunks would take "
            f"about {seconds(N_CHUNKS):.0f} s on this machine: {n_chunks} chunks are read, and "
            f"{n_new(n_chunks)} tokens are written.[/]"
        )
    console.print(f"\n[dim]Three answers: about {seconds(n_chunks):.0f} s.[/]")
    options = replace(engine.options, n_select=n_chunks)
    engine = replace(engine, options=options, generation={"max_new_tokens": n_new(n_chunks)})
    for name, method in methods.items():
        reader = replace(engine, options=replace(method, n_select=n_chunks))
        choice = reader.choose_from(compared.query, compared.pool, mode="context")
        console.print(f"\n[bold]Answer from {name}[/]  ", end="")
        started, first = time.perf_counter(), None
        with reader.stream_from(choice) as stream:
            for piece in stream:
                first = first or time.perf_counter()
                console.print(piece, end="", markup=False, soft_wrap=True)
        print_answer_line(console, stream.answer(), started, first or time.perf_counter())
    return engine


def try_modes(
    console: Console, engine: AnswerEngine, compared: Comparison, pace: Pace
) -> list[ModeResult]:
    """Return and print bits per byte of a held-back passage in every mode."""
    pool, held_back = hold_back(compared.pool)
    model = engine.language_model
    both = engine.choose_from(compared.query, pool, mode="both")
    n_context = n_tokens(model, both.chunks(both.read).texts)
    learned = both.chunks(both.learned).texts

    def seconds(n_steps: int) -> float:
        n_read = len(MODES) * n_tokens(model, [held_back]) + 2 * n_context
        n_learned = n_tokens(model, learned[:n_steps])
        learning = pace.learning_s(tokens=n_learned, steps=n_steps)
        return learning + pace.answering_s(read=n_read, written=0)

    n_steps = count_that_fits(N_STEPS, seconds, LONGEST_STAGE_S)
    if n_steps < N_STEPS:
        console.print(
            f"\n[dim]{N_STEPS} steps of learning would take about {seconds(N_STEPS):.0f} s on "
            f"this machine. The demo takes {counted(n_steps, 'step')}.[/]"
        )
    console.print(
        f"\n[dim]Learning and scoring: about {seconds(n_steps):.0f} s; less if this was learned "
        f"before.[/]"
    )
    engine = replace(engine, learning=replace(engine.learning, n_steps=n_steps))
    with progress(console) as bar:
        task = bar.add_task("Learning and scoring", total=len(MODES) + 2 * n_steps)
        results = []
        for mode in MODES:
            choice = engine.choose_from(compared.query, pool, mode=mode)
            started = time.perf_counter()
            session = engine.prepare(choice, on_step=lambda _: bar.advance(task))
            bits = session.bits_per_byte(held_back)
            taken = time.perf_counter() - started
            results.append(ModeResult(mode=mode, bits_per_byte=bits, seconds=taken))
            bar.advance(task)
    print_modes(console, results, held_back, n_steps)
    return results


def n_tokens(model: LanguageModel, texts: Sequence[str]) -> int:
    return sum(map(model.n_tokens, texts))


def hold_back(candidates: CandidatePool) -> tuple[CandidatePool, str]:
    """Return the candidates without their nearest long passage and what shares words with it.

    Raises:
        InvalidInputError: If no candidate is long enough.
    """
    sizes = [len(text.encode()) for text in candidates.texts]
    long_ones = [i for i, size in enumerate(sizes) if size >= MIN_HELD_BACK_BYTES]
    if not long_ones:
        raise InvalidInputError(
            f"none of the {len(sizes)} nearest chunks has {MIN_HELD_BACK_BYTES} bytes to score a "
            f"model on; pass a folder with more text"
        )
    held = long_ones[0]
    passages = passages_of(candidates.texts[held])
    kept = [i for i, text in enumerate(candidates.texts) if not passages & passages_of(text)]
    return candidates.take(kept), candidates.texts[held]


def passages_of(text: str) -> set[str]:
    """Return every run of `SHARED_CHARACTERS` of a text; two that share one repeat each other."""
    one_line = " ".join(text.split())
    starts = range(max(len(one_line) - SHARED_CHARACTERS, 0) + 1)
    return {one_line[start : start + SHARED_CHARACTERS] for start in starts}
