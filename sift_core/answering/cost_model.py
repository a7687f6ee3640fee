"""How long answering takes on this machine, predicted from a few seconds of measuring."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import count, pairwise
from math import isfinite
from typing import Any

from sift_core.answering.learning.fine_tuning import fine_tuned
from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.situation import LEARNING, MODES, READING, PredictedSeconds
from sift_core.errors import InvalidInputError
from sift_core.types import AnswerMode

LONGEST = 1024  # tokens; a longer prompt is extrapolated
SHARES = (1 / 16, 1 / 4, 1.0)  # of the longest length: where the lines bend
N_NEW = 8  # tokens written to time one
REPEATS = 3  # what is kept is the least: a busy moment must not stay in a cache for ever
SENTENCE = "Seven of the 38 old ships were sold; nobody asked why, or at what price.\n"

Curve = tuple[tuple[int, float], ...]


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """Seconds by tokens, each as a broken line through lengths that were measured.

    A broken line rather than a fit: it holds the fixed cost of a call at short lengths and
    attention's square at long ones, and no coefficient of it can come out negative. Below the
    shortest length the first line goes on, and beyond the longest the last one; the square is
    then underestimated. Chunks longer than the window, which take several passes a step, are
    on that last line too.

    Args:
        prefill: (tokens, seconds) of reading a prompt, at least two, lengths ascending.
        adapted_prefill: The same with an adapter in force.
        step: The same for a training step on one chunk.
        new_token_s: Seconds to write a token.
        adapted_new_token_s: The same with an adapter in force.
        setup_s: Seconds to put an adapter in and out again.

    Raises:
        InvalidInputError: If a line has fewer than two lengths or a number is out of its range.
    """

    prefill: Curve
    adapted_prefill: Curve
    step: Curve
    new_token_s: float
    adapted_new_token_s: float
    setup_s: float

    def __post_init__(self) -> None:
        for name in ("prefill", "adapted_prefill", "step"):
            curve = getattr(self, name)
            lengths = [n for n, _ in curve]
            if len(curve) < 2 or lengths != sorted(set(lengths)) or lengths[0] < 0:
                raise InvalidInputError(
                    f"`{name}` must have two or more ascending numbers of tokens, got {lengths}"
                )
            _check_seconds(name, [seconds for _, seconds in curve])
        for name in ("new_token_s", "adapted_new_token_s", "setup_s"):
            _check_seconds(name, [getattr(self, name)])

    @classmethod
    def measure(
        cls,
        language_model: LanguageModel,
        settings: FineTuningSettings | None = None,
        *,
        aim_s: float = 4.0,
    ) -> CostModel:
        """Return the costs of a model, measured now; the machine should be idle.

        Settings that make several chunks one step, reuse gradients
        or end early are left aside: what is timed is one chunk a step.

        Args:
            language_model: The model.
            settings: How it learns; the paper's if None.
            aim_s: Seconds after which nothing is repeated and no further length is tried; two
                lengths are tried in any case, so that a large model takes longer.

        Raises:
            AnswerError: If the model fails.
        """
        settings = None if settings is None else _one_chunk_a_step(settings)
        longest = min(LONGEST, language_model.window)
        lengths = [max(1 + i, int(longest * share)) for i, share in enumerate(SHARES)]
        short = _text(language_model, lengths[0], 0)
        with fine_tuned(language_model, [short], settings):  # what comes first allocates
            _seconds_of_writing(language_model, short, 1 + N_NEW)
        deadline = time.perf_counter() + aim_s
        prefill, new_token_s = _generation(language_model, lengths, deadline - 2 / 3 * aim_s)
        with fine_tuned(language_model, [short], settings):
            adapted, adapted_new_token_s = _generation(
                language_model, lengths, deadline - aim_s / 3
            )
        step, setup_s = _steps(language_model, lengths, settings, deadline)
        return cls(
            prefill=prefill,
            adapted_prefill=adapted,
            step=step,
            new_token_s=new_token_s,
            adapted_new_token_s=adapted_new_token_s,
            setup_s=setup_s,
        )

    def predict(
        self,
        *,
        question_tokens: int,
        read_tokens: int,
        learn_tokens: Sequence[int],
        max_new_tokens: int,
    ) -> PredictedSeconds:
        """Return the seconds of every mode, for the longest answer.

        Args:
            question_tokens: Length of the prompt without chunks.
            read_tokens: Length of the chunks that are read.
            learn_tokens: Length of the chunk of each training step.
            max_new_tokens: Length of the answer; 0 where a text is only scored.
        """
        answer = {}
        for mode in MODES:
            n_read = question_tokens + (read_tokens if mode in READING else 0)
            curve, each = self.prefill, self.new_token_s
            if mode in LEARNING:
                curve, each = self.adapted_prefill, self.adapted_new_token_s
            answer[AnswerMode(mode)] = seconds_at(curve, n_read) + max_new_tokens * each
        return PredictedSeconds(
            answer=answer,
            setup=self.setup_s,
            steps=tuple(seconds_at(self.step, n) for n in learn_tokens),
        )

    def as_record(self) -> dict[str, Any]:
        """Return what JSON can hold and `from_record` reads."""
        return dict(vars(self))

    @classmethod
    def from_record(cls, record: Any) -> CostModel:
        """Return the costs of a record.

        Raises:
            InvalidInputError: If it is none.
        """
        try:
            curves = {
                name: tuple((int(n), float(seconds)) for n, seconds in record[name])
                for name in ("prefill", "adapted_prefill", "step")
            }
            numbers = {
                name: float(record[name])
                for name in ("new_token_s", "adapted_new_token_s", "setup_s")
            }
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(f"no cost model: {error!r}") from error
        return cls(**curves, **numbers)  # type: ignore[arg-type]  # two kinds of fields


def seconds_at(curve: Curve, n_tokens: int) -> float:
    """Return the seconds of so many tokens on a broken line, >= 0."""
    i = sum(n < n_tokens for n, _ in curve[1:-1])  # the piece that has it, or is next to it
    (n0, s0), (n1, s1) = curve[i], curve[i + 1]
    return max(0.0, s0 + (s1 - s0) * (n_tokens - n0) / (n1 - n0))


def _generation(
    language_model: LanguageModel, lengths: Sequence[int], deadline: float
) -> tuple[Curve, float]:
    """Return the seconds of reading prompts, and of each token that is written."""
    numbers = count()

    def write(n_tokens: int, n_new: int) -> tuple[int, float]:
        # No two prompts begin alike: where prefixes are kept the second would cost nothing.
        prompt = _text(language_model, n_tokens - N_NEW - 1, next(numbers))
        return len(language_model.prompt_ids(prompt)), _seconds_of_writing(
            language_model, prompt, n_new
        )

    points = [_least(partial(write, lengths[0], 1), deadline)]
    _, more = _least(partial(write, lengths[0], 1 + N_NEW), deadline)
    one = points[0][1]
    for n in lengths[1:]:
        if len(points) >= 2 and time.perf_counter() > deadline:
            break
        points.append(_least(partial(write, n, 1), deadline))
    return _rising(points), max(0.0, more - one) / N_NEW


def _steps(
    language_model: LanguageModel,
    lengths: Sequence[int],
    settings: FineTuningSettings | None,
    deadline: float,
) -> tuple[Curve, float]:
    """Return the seconds of training steps, and of all else that an adapter takes."""
    points: list[tuple[int, float]] = []
    setups: list[float] = []
    for i, n in enumerate(lengths):
        if len(points) >= 2 and time.perf_counter() > deadline:
            break
        n_steps = 1 + (REPEATS if time.perf_counter() < deadline else 1)
        # No two alike: scopes that keep what they computed would find it.
        texts = [_text(language_model, n, 10 * i + j) for j in range(n_steps)]
        begin = time.perf_counter()
        ends = _ends_of_steps(language_model, texts, settings)
        over = time.perf_counter() - ends[-1]
        step = min(after - before for before, after in pairwise(ends))
        points.append((language_model.n_tokens(texts[0]), step))
        setups.append(max(0.0, ends[0] - begin - step) + over)
    return _rising(points), min(setups)


def _ends_of_steps(
    language_model: LanguageModel, texts: Sequence[str], settings: FineTuningSettings | None
) -> list[float]:
    """Take a step on each text and return the moments at which each was over."""
    ends: list[float] = []
    with fine_tuned(
        language_model, texts, settings, on_step=lambda _: ends.append(time.perf_counter())
    ):
        return ends


def _seconds_of_writing(language_model: LanguageModel, prompt: str, n_new: int) -> float:
    started = time.perf_counter()
    language_model.generate(prompt, max_new_tokens=n_new, min_new_tokens=n_new)
    return time.perf_counter() - started


def _text(language_model: LanguageModel, n_tokens: int, number: int) -> str:
    """Return a text of about so many tokens, at least 2; another one for another number."""
    n_tokens = max(2, n_tokens)
    ids: list[int] = []
    text = f"{number}. "
    while len(ids) < n_tokens:
        text += SENTENCE * (1 + n_tokens // 16)
        ids = language_model.token_ids(text)
    return str(language_model.tokenizer.decode(ids[:n_tokens]))


def _least(call: Callable[[], tuple[int, float]], deadline: float) -> tuple[int, float]:
    """Return tokens and seconds of the quickest of `REPEATS` calls; of fewer once time is up.

    One more goes before them, not counted: the first of its length allocates.
    """
    call()
    calls = [call()]
    while len(calls) < REPEATS and time.perf_counter() < deadline:
        calls.append(call())
    return min(calls, key=lambda made: made[1])


def _rising(points: Sequence[tuple[int, float]]) -> Curve:
    """Return the points by length, none quicker than a shorter one: that would be noise."""
    curve: dict[int, float] = {}
    most = 0.0
    for n, seconds in sorted(points):
        curve[n] = most = max(most, seconds)
    if len(curve) == 1:  # a window so small that all lengths are one
        curve[next(iter(curve)) + 1] = most
    return tuple(curve.items())


def _one_chunk_a_step(settings: FineTuningSettings) -> FineTuningSettings:
    plain = {"chunks_per_step": 1, "reuse_gradients": False, "max_seconds": None}
    known = {field.name for field in fields(settings)}
    return replace(settings, **{name: plain[name] for name in plain.keys() & known})  # type: ignore[arg-type]


def _check_seconds(name: str, values: Sequence[float]) -> None:
    if not all(isfinite(value) and value >= 0 for value in values):
        raise InvalidInputError(f"`{name}` must be in seconds, finite and >= 0, got {values}")
