"""How long answering takes on this machine, predicted from a few seconds of measuring."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count, pairwise
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

from sift_core.answering.learning.fine_tuning import fine_tuned
from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.policy import (
    LEARNING,
    MODES,
    READING,
    PolicyFeatures,
    PredictedSeconds,
)
from sift_core.cache_folder import default_cache_folder
from sift_core.errors import InvalidInputError, MissingDependencyError

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error

LONGEST = 1024  # tokens; a longer prompt is extrapolated
SHARES = (1 / 16, 1 / 4, 1.0)  # of the longest length: where the lines bend
N_NEW = 8  # tokens written to time one
REPEATS = 3  # what is kept is the least: a busy moment must not stay in a cache for ever
SENTENCE = "Seven of the 38 old ships were sold; nobody asked why, or at what price.\n"
FORMAT = 1  # of the file and of what is measured: raise it when either changes

_CURVES = ("prefill", "adapted_prefill", "step")
_NUMBERS = ("new_token_s", "adapted_new_token_s", "setup_s")
_logger = logging.getLogger(__name__)

Curve: TypeAlias = tuple[tuple[int, float], ...]


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """Seconds by tokens, each as a broken line through lengths that were measured.

    A broken line rather than a fit: it holds the fixed cost of a call at short lengths and
    attention's square at long ones, and no coefficient of it can come out negative. Below the
    shortest length the first line goes on, and beyond the longest the last one; the square is
    then underestimated, as for chunks longer than the window, which take several passes.

    Args:
        prefill: (tokens, seconds) of reading a prompt, at least two, lengths ascending.
        adapted_prefill: The same with an adapter active.
        step: The same for a training step on one chunk.
        new_token_s: Seconds to write a token.
        adapted_new_token_s: The same with an adapter active.
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
        for name in _CURVES:
            curve = getattr(self, name)
            lengths = [n for n, _ in curve]
            if len(curve) < 2 or lengths != sorted(set(lengths)) or lengths[0] < 0:
                raise InvalidInputError(
                    f"`{name}` must have two or more ascending numbers of tokens, got {lengths}"
                )
            _check_seconds(name, [seconds for _, seconds in curve])
        for name in _NUMBERS:
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

        What is timed is one chunk a step, whatever the settings say of several.

        Args:
            language_model: The model.
            settings: How it learns; the paper's if None.
            aim_s: Seconds after which nothing is repeated and no further length is tried; two
                lengths are tried in any case, so that a large model takes longer.

        Raises:
            AnswerError: If the model fails.
        """
        settings = replace(
            settings or FineTuningSettings(),
            chunks_per_step=1,
            reuse_gradients=False,
            max_seconds=None,
        )
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

    def predict(self, features: PolicyFeatures) -> PredictedSeconds:
        """Return the seconds of every mode, for the longest answer, by the numbers of tokens."""
        answer = {}
        for mode in MODES:
            n_read = features.question_tokens + (features.read_tokens if mode in READING else 0)
            curve, each = self.prefill, self.new_token_s
            if mode in LEARNING:
                curve, each = self.adapted_prefill, self.adapted_new_token_s
            answer[mode] = seconds_at(curve, n_read) + features.max_new_tokens * each
        return PredictedSeconds(
            answer=answer,
            setup=self.setup_s,
            steps=tuple(seconds_at(self.step, n) for n in features.learn_tokens),
        )

    @classmethod
    def from_record(cls, record: Any) -> CostModel:
        """Return the costs of a record, what JSON made of `dataclasses.asdict`.

        Raises:
            InvalidInputError: If it is none.
        """
        try:
            curves = {
                name: tuple((int(n), float(seconds)) for n, seconds in record[name])
                for name in _CURVES
            }
            numbers = {name: float(record[name]) for name in _NUMBERS}
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(f"no cost model: {error!r}") from error
        return cls(**curves, **numbers)  # type: ignore[arg-type]  # two kinds of fields


def cached_cost_model(
    language_model: LanguageModel,
    settings: FineTuningSettings | None = None,
    *,
    folder: str | Path | None = None,
) -> CostModel:
    """Return the costs of a model on this machine: read, or measured once and written.

    Args:
        language_model: The model.
        settings: How it learns; the paper's if None.
        folder: Where the file is, `default_cache_folder()` if None; made where missing. Its
            name is a hash. A file that cannot be read or written is logged as a warning and
            does no harm: the costs are measured again.

    Raises:
        AnswerError: If the model fails while it is measured.
    """
    name = f"cost-{cost_key(language_model, settings)}.json"
    path = Path(folder or default_cache_folder()) / name
    try:
        return CostModel.from_record(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        pass
    except (OSError, ValueError, RecursionError) as error:
        _logger.warning("the cost model in %s is of no use and is measured again: %s", path, error)
    measured = CostModel.measure(language_model, settings)
    unfinished = path.with_suffix(f".{os.getpid()}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.write_text(json.dumps(asdict(measured)), encoding="utf-8")
            os.replace(unfinished, path)  # a reader sees all of it or nothing
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        _logger.warning("the cost model could not be kept in %s: %s", path, error)
    return measured


def cost_key(language_model: LanguageModel, settings: FineTuningSettings | None = None) -> str:
    """Return a hash of all that the costs depend on: model's shape, machine, settings, torch."""
    model = language_model.model
    config = model.config.to_dict()
    for name in ("_name_or_path", "transformers_version"):  # where from, not what
        config.pop(name, None)
    identity = {
        "format": FORMAT,
        "config": config,
        "dtype": str(model.dtype),
        "window": language_model.window,
        "device": _device_name(model.device),
        "n_threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "settings": (settings or FineTuningSettings()).as_record(),
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()


def _device_name(device: torch.device) -> str:
    """Return the name of a GPU; of a CPU the model, or the architecture where nobody tells it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor() or platform.machine()
    return f"{device.type} {processor} {os.cpu_count()}"


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
    settings: FineTuningSettings,
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
    language_model: LanguageModel, texts: Sequence[str], settings: FineTuningSettings
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


def _check_seconds(name: str, values: Sequence[float]) -> None:
    if not all(isfinite(value) and value >= 0 for value in values):
        raise InvalidInputError(f"`{name}` must be in seconds, finite and >= 0, got {values}")
