"""Query-time fine-tuning: what one query learns from the chosen documents, and nobody else sees.

Paper: section 5 and appendix "Low-Rank Adaptation"; one gradient step a document in the
order of choice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from sift_core.answering.model.adapters import Adapter
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.model.layers import MEMORY_ERRORS, is_out_of_memory
from sift_core.answering.model.training import LoraLearner, TokenWindow, fresh_values
from sift_core.answering.report import FineTuningReport, FineTuningStop
from sift_core.answering.settings import FineTuningSettings
from sift_core.errors import AnswerError, MissingDependencyError, reason_of

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error

OnStep = Callable[[float], object]
OnState = Callable[[int], object]
PROBE_TOKENS = 32  # guess: enough to see whether the last step left the model able to compute


@dataclass(frozen=True, kw_only=True, eq=False)
class FineTuned:
    """What was learned, and how that went.

    Args:
        adapter: For `LanguageModel.adapted`, as often as wanted.
        report: Steps, losses, and what went wrong.
    """

    adapter: Adapter
    report: FineTuningReport

    @property
    def losses(self) -> tuple[float, ...]:
        """Return the loss before each step in nats per token."""
        return self.report.losses


def fine_tune(
    language_model: LanguageModel,
    texts: Sequence[str],
    settings: FineTuningSettings | None = None,
    *,
    on_step: OnStep | None = None,
    on_state: OnState | None = None,
    start_from: Adapter | None = None,
    key: str = "",
) -> FineTuned:
    """Return what a model learns from texts, one Adam step each; the model stays as it is.

    Any number may learn from one model at once, in threads or asyncio tasks; they take turns,
    a step each, and none sees another's.

    A step whose loss or gradient is not finite is not taken. Two in a row, or a last step that
    leaves the model unable to compute, end the learning with the parameters that last gave a
    finite loss. After memory has run out, activations are computed again in the backward pass.
    The report says so.

    Args:
        language_model: The model to learn with.
        texts: What to learn, in order. A text longer than the window is learned from in
            several windows whose gradients are summed into its one step. A text without
            a token teaches nothing.
        settings: The paper's if None.
        on_step: Called after each step with the loss before it, for a progress bar. What
            it raises ends the fine-tuning.
        on_state: Called before the first step with 0, and after each with the number of chunks
            learned from so far. While it runs the model computes, in this flow of control, with
            what has been learned by then: to score a text along the way. What it raises ends
            the fine-tuning.
        start_from: An adapter of this model to go on from, with its rank and alpha; it stays as
            it is. It must be on the layers that the settings name. A fresh one if None.
        key: What tells this adapter from every other of the model, for caches; drawn if "".

    Raises:
        AnswerError: If the model fails, or memory runs out with checkpointing too.
        InvalidInputError: If the model cannot learn so.

    Example:
        >>> learned = fine_tune(language_model, ["The ferry sails at nine."] * 2)
        >>> learned.losses[1] < learned.losses[0]
        True
        >>> with language_model.adapted(learned.adapter):
        ...     text = language_model.generate("The ferry sails", max_new_tokens=2).text
    """
    windows = {text: language_model.windows(text) for text in dict.fromkeys(texts)}
    return fine_tune_windows(
        language_model,
        [_of_one_text(windows[text]) for text in texts],
        settings,
        on_step=on_step,
        on_state=on_state,
        start_from=start_from,
        key=key,
    )


def fine_tune_windows(
    language_model: LanguageModel,
    steps: Sequence[Sequence[tuple[TokenWindow, float]]],
    settings: FineTuningSettings | None = None,
    *,
    on_step: OnStep | None = None,
    on_state: OnState | None = None,
    start_from: Adapter | None = None,
    key: str = "",
) -> FineTuned:
    """Return what a model learns from windows, one Adam step for each sequence of them.

    `steps` has the windows of each step, and the weight of each target of a window in the loss. A
    step without a window teaches nothing. The other arguments, errors and failures are those of
    `fine_tune`.
    """
    settings = settings or FineTuningSettings()
    planned = [_Step(windows=step, chunk=i) for i, step in enumerate(steps) if step]
    with language_model.lock.held(), _failures_named():
        learner = _learner(language_model, settings, start_from)
    run = _Run(language_model, learner, settings, on_step=on_step, on_state=on_state)
    run.take(planned)
    return run.result(n_skipped=len(steps) - len(planned), key=key or uuid4().hex)


def _of_one_text(windows: Sequence[TokenWindow]) -> list[tuple[TokenWindow, float]]:
    """Return a text's windows, in which each token has the same weight."""
    n_targets = sum(len(window.targets) for window in windows)
    return [(window, 1 / n_targets) for window in windows]


@contextmanager
def fine_tuned(
    language_model: LanguageModel,
    texts: Sequence[str],
    settings: FineTuningSettings | None = None,
    *,
    on_step: OnStep | None = None,
    on_state: OnState | None = None,
    start_from: Adapter | None = None,
) -> Iterator[FineTuned]:
    """Let a model have learned from texts for the `with` block, in this flow of control alone.

    Other threads and asyncio tasks see the model as it is. Arguments and errors are those of
    `fine_tune`.

    Yields:
        What was learned, and how that went.
    """
    tuned = fine_tune(
        language_model, texts, settings, on_step=on_step, on_state=on_state, start_from=start_from
    )
    with language_model.adapted(tuned.adapter):
        yield tuned


def _learner(
    language_model: LanguageModel, settings: FineTuningSettings, start_from: Adapter | None
) -> LoraLearner:
    """Return what learns, at its start."""
    rank = settings.rank if start_from is None else start_from.rank
    layout = language_model.layers.layout(rank=rank, lora=settings.lora)
    with torch.inference_mode(False):
        start = Adapter(
            layout=layout,
            alpha=settings.alpha if start_from is None else start_from.alpha,
            values=fresh_values(layout, settings.seed)
            if start_from is None
            else start_from.arranged(layout),
            base_name=language_model.name,
        )
    return LoraLearner(language_model.layers, start, settings.step_size)


@dataclass(frozen=True, kw_only=True)
class _Step:
    """The windows of one chunk with their weights, and the chunk's position among the texts."""

    windows: Sequence[tuple[TokenWindow, float]]
    chunk: int


class _Run:
    """The steps of one fine-tuning, and what is counted on the way."""

    def __init__(
        self,
        language_model: LanguageModel,
        learner: LoraLearner,
        settings: FineTuningSettings,
        *,
        on_step: OnStep | None,
        on_state: OnState | None,
    ) -> None:
        self._language_model, self._learner = language_model, learner
        self._on_step, self._on_state = on_step, on_state
        self._checkpointing = settings.checkpointing
        self._deadline = time.monotonic() + (settings.max_seconds or math.inf)
        self._falls = settings.schedule == "linear"
        self._losses: list[float] = []
        self._learned: list[int] = []
        self._n_refused = 0
        self._stop_reason: FineTuningStop = "done"

    def take(self, steps: Sequence[_Step]) -> None:
        """Take the steps, as many of them as can be."""
        self._show_state()
        n_refused = 0  # in a row
        for step in steps:
            if self._losses and time.monotonic() > self._deadline:
                self._stop_reason = "time"
                break
            if self._try_step(step, len(steps)):
                n_refused = 0
                continue
            n_refused += 1
            self._n_refused += 1
            if n_refused == 2:
                self._fall_back()
                break
        if self._losses and self._stop_reason != "diverged":
            if not self._can_compute(steps[-1].windows[0][0]):
                self._fall_back()

    def _try_step(self, step: _Step, n_planned: int) -> bool:
        """Return whether a step was taken: none is whose loss or gradient is not finite."""
        with self._language_model.lock.held(), _failures_named():
            loss = self._loss_and_gradient(step.windows)
            if not (math.isfinite(loss) and self._learner.has_finite_gradient()):
                self._learner.drop_gradient()
                return False
            self._learner.step(1 - len(self._losses) / n_planned if self._falls else 1.0)
        self._losses.append(loss)
        self._learned.append(step.chunk)
        if self._on_step is not None:
            self._on_step(loss)
        self._show_state()
        return True

    def result(self, *, n_skipped: int, key: str) -> FineTuned:
        """Return what was learned."""
        report = FineTuningReport(
            losses=tuple(self._losses),
            n_steps=len(self._losses),
            learned=tuple(self._learned),
            n_refused=self._n_refused,
            n_skipped=n_skipped,
            stop_reason=self._stop_reason,
            checkpointing=self._checkpointing,
        )
        return FineTuned(adapter=self._learner.learned(key), report=report)

    def _show_state(self) -> None:
        """Let the caller compute with what has been learned so far."""
        if self._on_state is not None:
            with self._language_model.adapted(self._learner.learned(uuid4().hex)):
                self._on_state(len(self._learned))

    def _loss_and_gradient(self, windows: Sequence[tuple[TokenWindow, float]]) -> float:
        """Compute a chunk's weighted loss and its gradient, with less memory after it ran out.

        Raises:
            AnswerError: If memory runs out with checkpointing too.
        """
        while True:
            try:
                return sum(
                    self._learner.backward(window, weight, checkpointing=self._checkpointing)
                    for window, weight in windows
                )
            except MEMORY_ERRORS as error:
                self._learner.drop_gradient()
                if not is_out_of_memory(error):
                    raise
                # Its frames hold all that the pass had computed.
                failure = error.with_traceback(None)
            if self._checkpointing or not self._language_model.layers.decoder_layers:
                raise AnswerError(
                    "memory ran out while fine-tuning on one chunk, with checkpointing where it "
                    "can be: pass shorter chunks, a lower rank, fewer layers "
                    "(`layers_to_transform` of `LoraConfig`), or a model in bfloat16, which is "
                    "slow on a CPU without instructions for it "
                    f"({reason_of(failure)})"
                ) from failure
            self._checkpointing = True
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _can_compute(self, window: TokenWindow) -> bool:
        """Return whether the parameters after the last step give a finite loss."""
        if not self._learner.is_finite():
            return False
        n = min(PROBE_TOKENS, len(window.targets))
        n_lead = len(window.inputs) - len(window.targets)
        probe = TokenWindow(inputs=window.inputs[: n_lead + n], targets=window.targets[:n])
        with self._language_model.lock.held(), _failures_named():
            return math.isfinite(self._learner.loss(probe))

    def _fall_back(self) -> None:
        if self._learner.fall_back():
            self._learned.pop()
        self._stop_reason = "diverged"


@contextmanager
def _failures_named() -> Iterator[None]:
    """Turn what torch raises into an error of ours."""
    try:
        yield
    except MEMORY_ERRORS as error:
        raise AnswerError(f"fine-tuning failed: {error}") from error
