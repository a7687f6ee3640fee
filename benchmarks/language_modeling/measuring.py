"""One prompt under its arms: what a worker does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.language_modeling.arms import Arm
from sift_core.answering import FineTuningSettings, LanguageModel
from sift_core.answering.fine_tuning import fine_tuned
from sift_core.answering.in_context import InContextAnswerer
from sift_core.answering.report import FineTuningReport
from sift_core.types import CandidatePool


@dataclass(frozen=True, kw_only=True)
class ChosenArm:
    """An arm, and what it chose for a prompt.

    Args:
        arm: The arm.
        key: Of its result.
        positions: Rows of the task's pool in order of choice, repeats included.
        variances: σ² at the prompt before the first and after every choice.
        select_s: What choosing took, the search for the candidates included.
    """

    arm: Arm
    key: str
    positions: Sequence[int]
    variances: Sequence[float]
    select_s: float


@dataclass(frozen=True, kw_only=True, eq=False)
class PromptTask:
    """All that is measured on one prompt.

    Args:
        prompt: What a row says of it.
        text: What is scored.
        experiment: Digest of the experiment.
        pool: Every chunk that one of the arms chose, once.
        arms: What is measured, and what was chosen for it.
    """

    prompt: dict[str, Any]
    text: str
    experiment: str
    pool: CandidatePool
    arms: Sequence[ChosenArm]


@dataclass(eq=False)
class Curve:
    """Bits per byte after so many chunks."""

    steps: list[int] = field(default_factory=list)
    bits_per_byte: list[float] = field(default_factory=list)

    def put(self, n: int, bits: float) -> None:
        """Add a point; one that is there already is replaced."""
        if self.steps and self.steps[-1] == n:
            self.steps.pop()
            self.bits_per_byte.pop()
        self.steps.append(n)
        self.bits_per_byte.append(bits)

    def finite(self) -> Curve:
        """Return the points that are numbers: a model may be useless for a step and recover."""
        points = zip(self.steps, self.bits_per_byte, strict=True)
        kept = [(n, bits) for n, bits in points if math.isfinite(bits)]
        return Curve(steps=[n for n, _ in kept], bits_per_byte=[bits for _, bits in kept])


class Measurer:
    """Measures tasks with one model.

    Args:
        language_model: The base model; it stays as it is.
        after: After how many chunks a prompt is scored; before the first and after the last it
            always is.
        settings: What is common to all arms that learn.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        *,
        after: tuple[int, ...],
        settings: FineTuningSettings,
    ) -> None:
        self._model, self._after, self._settings = language_model, after, settings
        self._reading = InContextAnswerer(language_model=language_model, max_new_tokens=1)

    def __call__(self, task: PromptTask) -> Iterator[dict[str, Any]]:
        """Yield a row an arm. Arms that learn the same share one fine-tuning."""
        groups: dict[Arm, list[ChosenArm]] = {}
        for one in task.arms:
            groups.setdefault(one.arm.without_context, []).append(one)
        for arm, members in groups.items():
            if arm.mode == "fine_tune":
                yield from self._learn(task, members)
            else:
                yield from (self._read(task, one) for one in members)

    def _read(self, task: PromptTask, one: ChosenArm) -> dict[str, Any]:
        """Return the row of the base model, or of one that reads the chunks first."""
        begin = time.perf_counter()
        n_read, bits = self._score_after_reading(task, one)
        curve = Curve(steps=[n_read], bits_per_byte=[bits])
        return _row(task, one, curve, time.perf_counter() - begin)

    def _learn(self, task: PromptTask, members: Sequence[ChosenArm]) -> list[dict[str, Any]]:
        """Return the rows of arms that learn the same, each with what it reads beside that."""
        begin = time.perf_counter()
        arm = members[0].arm
        curve = Curve()
        due = sorted({0, *self._after})

        def score(n: int) -> None:
            if due and n >= due[0]:
                curve.put(n, self._model.bits_per_byte(task.text))
                due[:] = [later for later in due if later > n]

        settings = replace(self._settings, learning_rate=arm.learning_rate)
        texts = [task.pool.texts[position] for position in members[0].positions]
        with fine_tuned(self._model, texts, settings, on_state=score) as tuned:
            is_lost = self._score_at_the_end(task, tuned.report, curve)
            seconds = time.perf_counter() - begin
            rows = []
            for one in members:
                own, own_is_lost = curve, is_lost
                if one.arm.mode == "both":
                    bits, own_is_lost = self._or_of_the_base(
                        lambda one=one: self._score_after_reading(task, one)[1]
                    )
                    own = Curve(steps=[curve.steps[-1]], bits_per_byte=[bits])
                report = {
                    "stop_reason": "diverged" if own_is_lost else tuned.report.stop_reason,
                    "n_refused": tuned.report.n_refused,
                }
                rows.append(_row(task, one, own.finite(), seconds, report))
        return rows

    def _score_at_the_end(self, task: PromptTask, how: FineTuningReport, curve: Curve) -> bool:
        """Add the last point unless it is there; return whether it had to be the base model's.

        A diverged fine-tuning has fallen back; so does one of which only the prompt shows that
        it is of no use.
        """
        n = max(len(how.learned), curve.steps[-1])
        if (
            how.stop_reason == "done"
            and curve.steps[-1] == n
            and math.isfinite(curve.bits_per_byte[-1])
        ):
            return False
        bits, is_lost = self._or_of_the_base(lambda: self._model.bits_per_byte(task.text))
        curve.put(n, bits)
        return is_lost

    def _or_of_the_base(self, score: Callable[[], float]) -> tuple[float, bool]:
        """Return a score, and whether it is the base model's since it was no number before."""
        bits = score()
        if math.isfinite(bits):
            return bits, False
        with self._model.adapted(None):
            return score(), True

    def _score_after_reading(self, task: PromptTask, one: ChosenArm) -> tuple[int, float]:
        """Return how many chunks fit into the window, and the prompt's bits per byte after them."""
        chunks = task.pool.take(list(dict.fromkeys(one.positions)))
        room = self._reading.room_for_chunks(task.text)
        if one.arm.context_tokens is not None:
            room = min(room, one.arm.context_tokens)
        read = self._reading.fit(chunks, room)
        return len(read), self._reading.bits_per_byte(task.text, read)


def _row(
    task: PromptTask,
    one: ChosenArm,
    curve: Curve,
    measure_s: float,
    report: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "kind": "result",
        "key": one.key,
        "experiment": task.experiment,
        "prompt": task.prompt,
        "arm": one.arm.as_record(),
        "steps": curve.steps,
        "bits_per_byte": [round(bits, 6) for bits in curve.bits_per_byte],
        "chosen": [task.pool.document_ids[position] for position in one.positions],
        "similarities": [round(float(task.pool.similarities[p]), 5) for p in one.positions],
        "variances": [round(variance, 6) for variance in one.variances],
        "seconds": {"select": round(one.select_s, 5), "measure": round(measure_s, 3)},
        "report": report,
    }
