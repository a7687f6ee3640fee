"""Measure how well and how fast each strategy answers from a collection, and fit a policy to it.

A passage is held back: its first half is the question, its second the answer, and no candidate
repeats the second. More is not known of a collection without labels.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from sift_core.answering.choosing import (
    Choice,
    LearningOptions,
    first_choice_arguments,
    make_choice,
)
from sift_core.answering.cost_model import BEFOREHAND, READING, CostModel, Strategy
from sift_core.answering.in_context import InContextAnswerer, PromptOptions
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.policy import CalibratedPolicy, VariancePolicy
from sift_core.answering.request import AnswerRequest
from sift_core.answering.sessions import Session, prepare_session
from sift_core.answering.settings import effort_for
from sift_core.checks import as_count, as_number, check_question, check_text, short_repr
from sift_core.choice import choose
from sift_core.errors import InvalidInputError
from sift_core.files import DAMAGE, seal, unseal, write_whole
from sift_core.options import ChoiceOptions
from sift_core.processor import n_threads
from sift_core.progress import timed
from sift_core.protocols import CandidateSource, Embedder, SamplableSource
from sift_core.text_overlap import middle_of, runs_in
from sift_core.types import AnswerMode, CandidatePool, FloatArray, Query

FORMAT = 3  # of the file
LEAST_EXAMPLES = 8  # guess: fewer say nothing
SHORTEST = 200  # bytes of a passage, both halves together: as many letters of English
MOST_SHARED = 0.05  # of the answer's runs of words that a candidate may have; a sentence has more
N_SPARE = 20  # candidates beyond K, in place of those that are left out
N_ERRORS = 1.645  # standard errors: 95 % on one side
EQUAL_SHARE = 0.002  # of base's bits: the quickest of the strategies so near to the best is taken
COSTS_S = 40.0  # of measuring costs, so that long prompts are timed, too


@dataclass(frozen=True, kw_only=True)
class MeasuredExample:
    """One example with every strategy.

    Args:
        bits_per_byte: Bits per byte of the answer, by strategy.
        seconds: Seconds of learning and reading, by strategy.
        question_tokens: Length of the prompt without chunks.
    """

    bits_per_byte: tuple[float, ...]
    seconds: tuple[float, ...]
    question_tokens: int


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Measures of every strategy on examples of a collection.

    `AnswerEngine(policy=calibration.policy, …)` goes by it in mode "auto".

    Args:
        strategies: w strategies, base first.
        examples: What was measured.
        cost_model: Seconds on the machine; None if they are of another one.
        model: Name of the language model.
        fingerprint: Of its weights.
        machine: Where it was measured.
    """

    strategies: tuple[Strategy, ...]
    examples: tuple[MeasuredExample, ...]
    cost_model: CostModel | None
    model: str
    fingerprint: str
    machine: str

    @property
    def bits_per_byte(self) -> FloatArray:
        """Of each example with each strategy, shape (n, w)."""
        return np.array([one.bits_per_byte for one in self.examples])

    @property
    def seconds(self) -> FloatArray:
        """Of each example's learning and reading with each strategy, shape (n, w)."""
        return np.array([one.seconds for one in self.examples])

    @cached_property
    def policy(self) -> CalibratedPolicy:
        """The policy of mode "auto": read, unless another strategy is significantly better.

        The quickest of those within 0.2 % of base's bits from the best comes first. Then come the
        others that are significantly better, reading, and the rest by their means.
        """
        reading = self.strategies.index(Strategy(AnswerMode.CONTEXT))
        bits, seconds = self.bits_per_byte, self.seconds.mean(axis=0)
        means = bits.mean(axis=0)
        gains = bits[:, [reading]] - bits
        errors = gains.std(axis=0, ddof=1) / np.sqrt(len(bits))
        order = [i for i in np.argsort(means, kind="stable").tolist() if i != reading]
        better = [i for i in order if gains[:, i].mean() > N_ERRORS * errors[i]]
        near = [i for i in better if means[i] <= means[better[0]] + EQUAL_SHARE * means[0]]
        near.sort(key=seconds.__getitem__)
        first = [*near, *better[len(near) :], reading]
        preferred = [*first, *(i for i in order if i not in first)]
        return CalibratedPolicy(
            saved={self.strategies[i]: float(1 - means[i] / means[0]) for i in preferred},
            n_examples=len(bits),
            shortest=min(one.question_tokens for one in self.examples),
            cost_model=self.cost_model,
        )

    def save(self, path: str | Path) -> None:
        """Write all of it to a file, in place of what was there.

        Raises:
            InvalidInputError: If it cannot be written.
        """
        try:
            write_whole(Path(path), seal(asdict(self) | {"format": FORMAT}, "calibration"))
        except OSError as error:
            raise InvalidInputError(
                f"the calibration could not be written to {str(path)!r}: {error}"
            ) from error

    @classmethod
    def load(cls, path: str | Path, language_model: LanguageModel) -> Calibration:
        """Return what `save` wrote; without a cost model if that is of another machine.

        Raises:
            InvalidInputError: If there is no such file, it is damaged, or of another model.
        """
        try:
            content = unseal(Path(path).read_bytes(), "calibration")
            if (form := content.pop("format")) != FORMAT:
                raise ValueError(f"its format is {form}, not {FORMAT}")
            content["strategies"] = tuple(
                Strategy(AnswerMode(one["mode"]), int(one["n_steps"]))
                for one in content["strategies"]
            )
            content["examples"] = tuple(
                MeasuredExample(
                    bits_per_byte=tuple(one["bits_per_byte"]),
                    seconds=tuple(one["seconds"]),
                    question_tokens=int(one["question_tokens"]),
                )
                for one in content["examples"]
            )
            if content["cost_model"] is not None:
                content["cost_model"] = CostModel(**content["cost_model"])
            loaded = cls(**content)
            rows = np.array([loaded.bits_per_byte, loaded.seconds], dtype=np.float64)
            if rows.shape[2:] != (len(loaded.strategies),) or not 0 <= rows.min() <= rows.max():
                raise ValueError("it has not a number >= 0 of each strategy")
            _ = loaded.policy  # raises where reading was not measured
        except FileNotFoundError as error:
            raise InvalidInputError(
                f"no calibration at {str(path)!r}; make one: sift calibrate, or `calibrate`"
            ) from error
        except (OSError, *DAMAGE) as error:
            raise InvalidInputError(
                f"the calibration at {str(path)!r} is of no use: {error}; delete it and calibrate "
                f"again"
            ) from error
        if loaded.fingerprint != language_model.fingerprint:
            raise InvalidInputError(
                f"the calibration at {str(path)!r} was made with {loaded.model!r}, or other "
                f"weights of that name, not with {language_model.name!r}; use that model, or "
                f"calibrate again"
            )
        is_here = loaded.machine == machine_of(language_model)
        return loaded if is_here else replace(loaded, cost_model=None)


def machine_of(language_model: LanguageModel) -> str:
    """Return what seconds depend on beside model and settings."""
    model = language_model.model
    computed = f"{model.device}, {str(model.dtype).removeprefix('torch.')}"
    return f"{platform.node()}, {n_threads()} {platform.machine()} threads, {computed}"


def calibrate(
    language_model: LanguageModel,
    source: CandidateSource,
    embedder: Embedder,
    *,
    options: ChoiceOptions | None = None,
    prompt: PromptOptions | None = None,
    learning: LearningOptions | None = None,
    cost_model: CostModel | None = None,
    n: int = 40,
    minutes: float = 10.0,
    questions: Sequence[tuple[str, str]] = (),
    seed: int = 0,
    on_example: Callable[[Calibration], object] | None = None,
) -> Calibration:
    """Return how well every strategy answers from a collection, for the policy of an engine.

    Holds passages back, with all that repeats them, and has each strategy predict their second
    half from the first: base, context, and learning and both with each effort up to that of
    `learning`. On a CPU an example takes some ten seconds with 135 M parameters.

    Args:
        language_model: The model that answers.
        source: The collection.
        embedder: The model that embedded the collection.
        options: As for `AnswerEngine`, like the next two. Default: those of an engine.
        prompt: How chunks are put.
        learning: How the model learns. Its cache is not used.
        cost_model: Seconds on this machine. Default: measured, in some 40 s.
        n: Number of examples at most, >= 8. Default: 40.
        minutes: No example begins after this many minutes, > 0. Default: 10.
        questions: Pairs of question and answer, in place of passages. Mode "learned" is measured
            on them alone: its adapter may have learned the passages. Default: none.
        seed: Seed of the passages that are drawn. Default: 0.
        on_example: Called after each example with the calibration so far. What it raises ends the
            calibration. Default: None.

    Raises:
        InvalidInputError: If the source cannot draw documents, or fewer than eight examples could
            be measured.
        CandidateSourceError: If the store fails.
        AnswerError: If the model fails.

    Example:
        >>> known = [(f"When does ferry {n} sail?", f"At {n} o'clock.") for n in range(1, 9)]
        >>> options = {"learning": LearningOptions(n_steps=1), "n": 8, "questions": known}
        >>> found = calibrate(language_model, source, embedder, **options)
        >>> [strategy.mode.value for strategy in found.strategies]
        ['base', 'context', 'fine_tune', 'both']
    """
    as_count("n", n, minimum=LEAST_EXAMPLES)
    as_number("minutes", minutes, above=0)
    end = time.monotonic() + 60 * minutes
    examples = _examples_of(questions) if questions else held_back_examples(source, n, seed)
    learning = LearningOptions() if learning is None else learning
    # From the cache, what was learned before would take no time.
    measurer = Measurer(
        source=source,
        embedder=embedder,
        answerer=InContextAnswerer(language_model=language_model, prompt=prompt or PromptOptions()),
        options=ChoiceOptions() if options is None else options,
        learning=replace(learning, cache=None),
    )
    calibration = Calibration(
        strategies=learning.strategies(with_learned=bool(questions)),
        examples=(),
        cost_model=cost_model
        or CostModel.measure(language_model, learning.settings, aim_s=COSTS_S),
        model=language_model.name,
        fingerprint=language_model.fingerprint,
        machine=machine_of(language_model),
    )
    for example in examples:
        measured = measurer.measure(example, calibration.strategies)
        if measured is not None:
            calibration = replace(calibration, examples=(*calibration.examples, measured))
            if on_example is not None:
                on_example(calibration)
        if len(calibration.examples) == n or time.monotonic() > end:
            break
    if (n_measured := len(calibration.examples)) < LEAST_EXAMPLES:
        why = f"no more {'questions' if questions else 'passages'} could be used"
        if time.monotonic() > end:
            why = f"{minutes:g} minutes were over"
        raise InvalidInputError(
            f"a calibration needs {LEAST_EXAMPLES} examples; {why} after {n_measured}. Give it "
            f"more time, documents of at least {SHORTEST} characters, or questions with answers"
        )
    return calibration


@dataclass(frozen=True, kw_only=True)
class Example:
    """One question with its answer, on which every strategy is measured.

    Args:
        question: A question, or the first half of a text.
        answer: The answer, or the second half.
        held_back: Id of the passage of the collection whose halves they are. Default: none.
    """

    question: str
    answer: str
    held_back: str | None = None


def _examples_of(questions: Sequence[tuple[str, str]]) -> Iterator[Example]:
    """Return an iterator of questions with answers, checked before any work."""
    if len(questions) < LEAST_EXAMPLES:
        raise InvalidInputError(
            f"`questions` must be at least {LEAST_EXAMPLES} pairs of question and answer, got "
            f"{len(questions)}"
        )
    for pair in questions:
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise InvalidInputError(
                f"`questions` must be pairs of question and answer, got {short_repr(pair)}"
            )
        check_question(pair[0])
        check_text("answer", pair[1])
        if not pair[1].strip():
            raise InvalidInputError(f"the answer to {short_repr(pair[0])} is empty")
    return (Example(question=question, answer=answer) for question, answer in questions)


def held_back_examples(source: CandidateSource, n: int, seed: int) -> Iterator[Example]:
    """Return an iterator of random passages of a store in two halves.

    Raises:
        InvalidInputError: If the store cannot draw documents.
    """
    if not isinstance(source, SamplableSource):
        raise InvalidInputError(
            f"{type(source).__name__} cannot draw documents (`sample`), which are held back; pass "
            f"`questions` with answers"
        )
    sample = source.sample(4 * n, np.random.default_rng(seed))
    halves = []
    for passage_id, text in zip(sample.document_ids, sample.texts, strict=True):
        middle = middle_of(text)
        question, answer = text[:middle], text[middle:]
        if len(text.encode(errors="replace")) >= SHORTEST and question.strip() and answer.strip():
            half = Example(question=question, answer=answer, held_back=passage_id)
            halves.append(half)
    return iter(halves)


@dataclass(frozen=True, kw_only=True)
class Measurer:
    """Measures strategies as an engine of these parts would answer."""

    source: CandidateSource
    embedder: Embedder
    answerer: InContextAnswerer
    options: ChoiceOptions
    learning: LearningOptions

    def measure(self, example: Example, strategies: Sequence[Strategy]) -> MeasuredExample | None:
        """Return an example with every strategy; None if there is no candidate."""
        question = example.question
        query = Query(text=question, embedding=self.embedder.embed_query(question))
        pool = self.source.fetch(query, self.options.n_candidates + N_SPARE)
        if example.held_back is not None:
            answer = runs_in(example.answer)
            kept = [  # but the passage itself and what repeats its second half
                row
                for row, text in enumerate(pool.texts)
                if pool.document_ids[row] != example.held_back
                and len(answer & runs_in(text)) <= MOST_SHARED * len(answer)
            ]
            pool = pool.take(kept)
        pool = pool.take(range(min(len(pool), self.options.n_candidates)))
        if not len(pool):
            return None
        choice = self._choose(query, pool)
        sessions = {n: self._learn(choice, n) for n in {one.n_steps for one in strategies}}
        bits, seconds = [], []
        for strategy in strategies:
            session = sessions[strategy.n_steps]
            if strategy.mode in BEFOREHAND:
                beforehand = replace(choice, mode=strategy.mode, read=None, learned=None)
                session = prepare_session(beforehand, self.answerer, self.learning)
            reading = choice.read if strategy.mode in READING else None
            chosen = replace(session.choice, mode=strategy.mode, read=reading)
            session = replace(session, choice=chosen)
            timings = {"fine_tune": 0.0, **session.timings}
            with timed(timings, "score"):
                if example.held_back is None:
                    scored = session.answer_bits_per_byte(example.answer)
                else:
                    scored = session.bits_per_byte(example.answer, opening=question)
            bits.append(scored)
            seconds.append(timings["fine_tune"] + timings["score"])
        prompt = self.answerer.prompt_for(query, pool.take([]))
        return MeasuredExample(
            bits_per_byte=tuple(bits),
            seconds=tuple(seconds),
            question_tokens=self.answerer.n_prompt_tokens(prompt),
        )

    def _choose(self, query: Query, pool: CandidatePool) -> Choice:
        """Return the chunks that are read and those that are learned."""
        request = AnswerRequest(question=query.text, mode=AnswerMode.BOTH)
        parts = self.answerer, self.options, self.learning
        arguments = first_choice_arguments(request, query, *parts)
        return make_choice(
            request,
            query,
            choose(pool, query, **arguments),
            answerer=self.answerer,
            learning=self.learning,
            policy=VariancePolicy(),
            timings={},
        )

    def _learn(self, choice: Choice, n_steps: int) -> Session:
        """Return the model after the first training steps."""
        learned = choice.learned.first(n_steps) if n_steps and choice.learned else None
        effort = effort_for(n_steps) if choice.effort else None
        choice = replace(choice, learned=learned, effort=effort)
        return prepare_session(choice, self.answerer, self.learning)
