"""One row of a results file: a prompt, the arm that was measured on it, and what came out.

An arm is the mapping of settings that stands under "arm" in a row; two rows belong to one
column of a table where these mappings are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from sift_core.errors import InvalidInputError

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
ArmRecord: TypeAlias = Mapping[str, Any]
ArmKey: TypeAlias = tuple[tuple[str, Any], ...]

_MOST_STEPS = 2**53  # up to here every whole number is a float64


class RecordedArm(Protocol):
    """Anything that says which "arm" mapping its rows have."""

    def as_record(self) -> Mapping[str, Any]:
        """Return the mapping that stands under "arm" in a row."""
        ...


ArmLike: TypeAlias = ArmRecord | RecordedArm


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One test prompt.

    Args:
        prompt_id: Its identifier.
        domain: The part of the data that it comes from.
        n_bytes: Length in UTF-8 bytes, at least 1.
        near_duplicate: Share of its 8-grams that the data space has, in [0, 1]; None where
            nobody measured it.
    """

    prompt_id: str
    domain: str
    n_bytes: int
    near_duplicate: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ResultRow:
    """What one arm gave on one prompt.

    Args:
        prompt_id: The prompt.
        arm: The arm's mapping.
        steps: Chunks learned (or put into the context) when scored, increasing, shape (m,).
        bits_per_byte: Beside `steps`, at least 0.
        chosen: Document ids in order of choice, repeats included.
        similarities: Cosines to the prompt, beside `chosen`.
        variances: σ² at the prompt after 0, 1, … choices; empty where nobody measured it.
        seconds: Time by part.
        report: What the fine-tuning said of itself; empty elsewhere.
    """

    prompt_id: str
    arm: ArmRecord
    steps: Ints
    bits_per_byte: Floats
    chosen: tuple[str, ...] = ()
    similarities: Floats
    variances: Floats
    seconds: Mapping[str, float]
    report: Mapping[str, Any]

    @property
    def last_bits_per_byte(self) -> float:
        """Bits per byte after the last step."""
        return float(self.bits_per_byte[-1])

    @property
    def n_unique(self) -> int:
        """How many different documents were chosen."""
        return len(set(self.chosen))

    def bits_per_byte_at(self, step: float) -> float:
        """Return bits per byte after `step` chunks.

        Between two measured steps it lies on the straight line between them; after the last
        one, where nothing more was learned, it stays as it is.
        """
        return float(np.interp(step, self.steps, self.bits_per_byte))


def arm_record(arm: ArmLike) -> ArmRecord:
    """Return the mapping that stands under "arm" in the rows of `arm`."""
    return arm if isinstance(arm, Mapping) else arm.as_record()


def arm_label(arm: ArmLike) -> str:
    """Return the arm in a few letters: "base", "NN", "SIFT(0.1)"; "context SIFT(0.1)" and so on."""
    record = arm_record(arm)
    mode = record.get("mode")
    if mode == "base":
        return "base"
    return ("" if mode == "fine_tune" else f"{mode} ") + selector_label(record)


def selector_label(arm: ArmLike) -> str:
    """Return the arm's selector, with λ where it is a SIFT: "NN", "SIFT(0.1)"."""
    record = arm_record(arm)
    selector = str(record.get("selector"))
    noise_variance = record.get("noise_variance")
    if selector == "SIFT" and noise_variance is not None:
        return f"SIFT({noise_variance:g})"
    return selector


def arm_key(arm: ArmRecord) -> ArmKey:
    """Return a hashable form of the mapping: equal where the mappings are."""
    return tuple(
        (name, tuple(value) if isinstance(value, list) else value)
        for name, value in sorted(arm.items())
    )


def read_row(row: Mapping[str, Any], number: int) -> tuple[Prompt, ResultRow]:
    """Return the prompt and the result of one object of kind "result".

    Args:
        row: The object.
        number: Its place among the result rows, for the message of an error.

    Raises:
        InvalidInputError: If something is missing, of another type or not finite, or lengths
            do not fit.
    """
    try:
        of = row["prompt"]
        share = of.get("near_duplicate")
        prompt = Prompt(
            prompt_id=str(of["id"]),
            domain=str(of["domain"]),
            n_bytes=int(of["n_bytes"]),
            near_duplicate=None if share is None else float(share),
        )
        result = ResultRow(
            prompt_id=prompt.prompt_id,
            arm=dict(row["arm"]),
            steps=_whole(row["steps"]),
            bits_per_byte=np.asarray(row["bits_per_byte"], dtype=np.float64),
            chosen=tuple(str(document_id) for document_id in row.get("chosen") or ()),
            similarities=np.asarray(row.get("similarities") or (), dtype=np.float64),
            variances=np.asarray(row.get("variances") or (), dtype=np.float64),
            seconds=dict(row.get("seconds") or {}),
            report=dict(row.get("report") or {}),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidInputError(f"result row {number} cannot be read: {error!r}") from error
    problem = _problem(prompt, result)
    if problem:
        raise InvalidInputError(
            f"result row {number} (prompt {prompt.prompt_id}, {arm_label(result.arm)}): {problem}"
        )
    return prompt, result


def _whole(numbers: Any) -> Ints:
    """Return whole numbers as they are; what is none is refused, not rounded."""
    floats = np.asarray(numbers, dtype=np.float64)
    if not np.all(np.abs(floats) < _MOST_STEPS) or np.any(floats % 1):
        raise ValueError(f"`steps` must be whole numbers, got {numbers!r:.80}")
    return floats.astype(np.int64)


def _problem(prompt: Prompt, row: ResultRow) -> str:
    problem = _problem_of_the_arm(row.arm)
    if problem:
        return problem
    if prompt.n_bytes < 1:
        return f"`n_bytes` must be at least 1, got {prompt.n_bytes}"
    if row.steps.ndim != 1 or row.steps.size == 0 or row.steps.shape != row.bits_per_byte.shape:
        return (
            f"`steps` and `bits_per_byte` must be of one length, at least 1, "
            f"got {row.steps.shape} and {row.bits_per_byte.shape}"
        )
    if np.any(np.diff(row.steps) <= 0) or row.steps[0] < 0:
        return f"`steps` must increase from 0 or more, got {row.steps.tolist()}"
    if not np.all(np.isfinite(row.bits_per_byte)) or np.any(row.bits_per_byte < 0):
        return f"`bits_per_byte` must be finite and >= 0, got {row.bits_per_byte.tolist()}"
    for name, values in (("similarities", row.similarities), ("variances", row.variances)):
        if values.ndim != 1 or not np.all(np.isfinite(values)):
            return f"`{name}` must be a list of finite numbers, got {values.tolist()!r:.80}"
    if prompt.near_duplicate is not None and not 0 <= prompt.near_duplicate <= 1:
        return f"`near_duplicate` must be in [0, 1], got {prompt.near_duplicate}"
    if row.variances.size not in (0, len(row.chosen) + 1):
        return (
            f"`variances` must be one more than `chosen`, "
            f"got {row.variances.size} and {len(row.chosen)}"
        )
    return ""


def _problem_of_the_arm(arm: ArmRecord) -> str:
    """Say what keeps an arm from standing in a table: rows of another program or version do."""
    for name, value in arm.items():
        if not isinstance(value, (str, int, float, bool, type(None))):
            return f"the arm's {name!r} must be a text or a number, got {value!r:.80}"
    if arm.get("mode") == "base":
        return ""
    absent = [name for name in ("mode", "selector", "noise_variance") if name not in arm]
    if absent:
        return f"the arm lacks {absent}; was it measured by another version?"
    if not isinstance(arm["mode"], str) or not isinstance(arm["selector"], str):
        return (
            f"the arm's mode and selector must be texts, got {arm['mode']!r} and "
            f"{arm['selector']!r}"
        )
    return ""
