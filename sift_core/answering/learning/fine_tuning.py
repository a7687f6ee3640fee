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

from sift_core.answering.learning.learners import FullLearner, Learner, LoraLearner
from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.adapters import Adapter, ModelCopy
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.model.parts import MEMORY_ERRORS, is_out_of_memory
from sift_core.answering.model.passes import TokenWindow, WeightedWindow
from sift_core.errors import AnswerError, InvalidInputError, MissingDependencyError
from sift_core.types import FineTuningReport, FineTuningStop

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

    adapter: Adapter | ModelCopy
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
    finite loss. Where memory runs out the rows of a pass are halved, then activations are
    computed again in the backward pass. The report says so.

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
        AnswerError: If the model fails, or memory runs out however little is asked of it.
        InvalidInputError: If the model cannot learn so.
    """
    settings = settings or FineTuningSettings()
    model = language_model.model
    steps, n_skipped = _plan(language_model, texts, settings)
    if start_from is not None and settings.kind == "full":
        raise InvalidInputError('the scope "full" starts from no adapter; pass the scope "all"')
    with language_model.lock.held(), _failures_named():
        learner: Learner = (
            FullLearner(model, settings)
            if settings.kind == "full"
            else LoraLearner(model, settings, language_model.name, start_from)
        )
    run = _Run(language_model, learner, settings, on_step=on_step, on_state=on_state)
    run.take(steps)
    return run.result(n_skipped=n_skipped, key=key or uuid4().hex)


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


@dataclass(frozen=True, kw_only=True)
class _Step:
    """Windows whose summed gradient is one step, and how often that step is taken.

    Args:
        rows: The windows.
        chunks: Positions of the texts that they are of, repeats included.
        n_times: How often the step is taken.
    """

    rows: Sequence[WeightedWindow]
    chunks: Sequence[int]
    n_times: int = 1


def _plan(
    language_model: LanguageModel, texts: Sequence[str], settings: FineTuningSettings
) -> tuple[list[_Step], int]:
    """Return the steps, and how many texts have no token."""
    windows: dict[str, list[TokenWindow]] = {
        text: language_model.chunk_windows(
            text, chunk_format=settings.chunk_format, request=settings.chat_request
        )
        for text in dict.fromkeys(texts)
    }
    positions = [position for position, text in enumerate(texts) if windows[text]]
    n_skipped = len(texts) - len(positions)
    if settings.reuse_gradients:
        places: dict[str, list[int]] = {}
        for position in positions:
            places.setdefault(texts[position], []).append(position)
        return [
            _Step(rows=_rows(windows[text], n_chunks=1), chunks=chunks, n_times=len(chunks))
            for text, chunks in places.items()
        ], n_skipped
    size = settings.chunks_per_step
    groups = [positions[start : start + size] for start in range(0, len(positions), size)]
    steps = []
    for group in groups:
        rows = [_rows(windows[texts[position]], n_chunks=len(group)) for position in group]
        steps.append(_Step(rows=[row for some in rows for row in some], chunks=group))
    return steps, n_skipped


def _rows(windows: Sequence[TokenWindow], *, n_chunks: int) -> list[WeightedWindow]:
    """Return a chunk's windows; a step's loss is the mean over its chunks of their mean losses."""
    n_targets = sum(len(window.targets) for window in windows)
    return [WeightedWindow(window=window, weight=1 / n_targets / n_chunks) for window in windows]


class _Run:
    """The steps of one fine-tuning, and what is counted on the way."""

    def __init__(
        self,
        language_model: LanguageModel,
        learner: Learner,
        settings: FineTuningSettings,
        *,
        on_step: OnStep | None,
        on_state: OnState | None,
    ) -> None:
        self._language_model, self._learner = language_model, learner
        self._on_step, self._on_state = on_step, on_state
        on_cpu = language_model.model.device.type == "cpu"
        self._rows_per_pass = settings.rows_per_pass or (1 if on_cpu else settings.chunks_per_step)
        self._checkpointing = settings.checkpointing
        self._deadline = time.monotonic() + (settings.max_seconds or math.inf)
        self._falls = settings.schedule == "linear"
        self._n_planned = 0
        self._losses: list[float] = []
        self._taken: list[_Step] = []
        self._n_refused = 0
        self._stop_reason: FineTuningStop = "done"

    def take(self, steps: Sequence[_Step]) -> None:
        """Take the steps, as many of them as can be."""
        self._show_state()
        self._n_planned = sum(step.n_times for step in steps)
        n_refused = 0  # in a row
        for step in steps:
            if self._losses and time.monotonic() > self._deadline:
                self._stop_reason = "time"
                break
            if self._try_step(step):
                n_refused = 0
                continue
            n_refused += 1
            self._n_refused += 1
            if n_refused == 2:
                self._fall_back()
                break
        if self._losses and self._stop_reason != "diverged":
            if not self._can_compute(steps[-1].rows[0].window):
                self._fall_back()

    def _try_step(self, step: _Step) -> bool:
        """Return whether a step was taken: none is whose loss or gradient is not finite."""
        with self._language_model.lock.held(), _failures_named():
            loss = self._loss_and_gradient(step.rows)
            if not (math.isfinite(loss) and self._learner.has_finite_gradient()):
                self._learner.drop_gradient()
                return False
            self._learner.step([self._rate_share(i) for i in range(step.n_times)])
        self._losses += [loss] * step.n_times
        self._taken.append(step)
        if self._on_step is not None:
            for _ in range(step.n_times):
                self._on_step(loss)
        self._show_state()
        return True

    def _rate_share(self, ahead: int) -> float:
        """Return what share of the learning rate the step after `ahead` more is taken with."""
        return 1 - (len(self._losses) + ahead) / self._n_planned if self._falls else 1.0

    def result(self, *, n_skipped: int, key: str) -> FineTuned:
        """Return what was learned."""
        report = FineTuningReport(
            losses=tuple(self._losses),
            n_steps=len(self._losses),
            learned=tuple(sorted(chunk for step in self._taken for chunk in step.chunks)),
            n_refused=self._n_refused,
            n_skipped=n_skipped,
            stop_reason=self._stop_reason,
            rows_per_pass=self._rows_per_pass,
            checkpointing=self._checkpointing,
        )
        return FineTuned(adapter=self._learner.learned(key), report=report)

    def _show_state(self) -> None:
        """Let the caller compute with what has been learned so far."""
        if self._on_state is not None:
            with self._language_model.adapted(self._learner.learned(uuid4().hex)):
                self._on_state(sum(len(step.chunks) for step in self._taken))

    def _loss_and_gradient(self, rows: Sequence[WeightedWindow]) -> float:
        """Compute a step's loss and gradient with as much memory as there is.

        Raises:
            AnswerError: If one row with checkpointing is too much.
        """
        while True:
            try:
                loss = 0.0
                for start in range(0, len(rows), self._rows_per_pass):
                    part = rows[start : start + self._rows_per_pass]
                    loss += self._learner.backward(part, checkpointing=self._checkpointing)
                return loss
            except MEMORY_ERRORS as error:
                self._learner.drop_gradient()
                if not is_out_of_memory(error):
                    raise
                # Its frames hold all that the pass had computed.
                failure = error.with_traceback(None)
            self._take_less_memory(len(rows), failure)

    def _take_less_memory(self, n_rows: int, error: Exception) -> None:
        n_rows = min(n_rows, self._rows_per_pass)
        if n_rows > 1:
            self._rows_per_pass = n_rows // 2
        elif not self._checkpointing and self._language_model.can_checkpoint:
            self._checkpointing = True
        else:
            raise AnswerError(
                "memory ran out while fine-tuning on one chunk at a time, with checkpointing where "
                'it can be: pass shorter chunks, a lower rank, the scope "top:k" or "head", or a '
                "model in bfloat16, which is slow on a CPU without instructions for it "
                f"({str(error).splitlines()[0]})"
            ) from error
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
        n_undone = self._learner.fall_back()
        del self._taken[len(self._taken) - min(n_undone, len(self._taken)) :]
        self._stop_reason = "diverged"


@contextmanager
def _failures_named() -> Iterator[None]:
    """Turn what torch raises into an error of ours."""
    try:
        yield
    except MEMORY_ERRORS as error:
        raise AnswerError(f"fine-tuning failed: {error}") from error
