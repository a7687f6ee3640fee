"""What a worker of an experiment is, and what it says to the process that writes the file."""

from __future__ import annotations

import pickle
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from sift_core.errors import ExperimentError, InvalidInputError, SiftError
from sift_core.evaluation.running.results_file import Row


class Task(Protocol):
    """A share of an experiment that one worker measures: any value that can be pickled.

    `str(task)` names it in messages.
    """

    @property
    def n_rows(self) -> int:
        """How many rows its worker will yield; the progress bar counts on it."""


LOADING = "its worker was made"
"""What a worker does before it has a task, for messages."""

_T = TypeVar("_T", bound=Task)
_Task = TypeVar("_Task", bound=Task, contravariant=True)


class Worker(Protocol[_Task]):
    """Measures tasks, one after the other."""

    def __call__(self, task: _Task, /) -> Iterable[Row]:
        """Yield the rows of a task, each as soon as it is measured."""


MakeWorker: TypeAlias = Callable[[], Worker[_T]]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An exception on its way to another process.

    Args:
        kind: The exception's class if that is one of this library, None for others: their
            classes may not exist where it goes, and many cannot be pickled.
        args: What the exception was made of, of a `kind`.
        state: Its attributes, of a `kind`.
        text: Its traceback as Python prints it.
    """

    kind: type[SiftError] | None
    args: tuple[Any, ...]
    state: dict[str, Any]
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the failure of an exception that has been caught."""
        text = "".join(traceback.format_exception(error)).strip()
        if isinstance(error, SiftError):
            ours = cls(kind=type(error), args=error.args, state=dict(vars(error)), text=text)
            if _can_be_pickled(ours):
                return ours
        return cls(kind=None, args=(), state={}, text=text)

    def as_error(self, doing: str) -> SiftError:
        """Return the exception: the same if it is one of this library.

        Args:
            doing: What the worker did, for the message of an `ExperimentError`.
        """
        if self.kind is None:
            return ExperimentError(
                f"an error ended the run while {doing}; a second run goes on from the results "
                f"file\n\n{self.text}"
            )
        # Not by its constructor: that of MissingDependencyError takes something else than args.
        error = self.kind.__new__(self.kind, *self.args)
        error.args = self.args
        vars(error).update(self.state)
        error.__cause__ = _InWorker(f"\n{self.text}")
        return error


class _InWorker(Exception):
    """The traceback of another process; never raised, but printed above what it is the cause of."""


Report: TypeAlias = "Row | Failure | None"
"""What a worker says: a row; None at a task's end; or what ended it."""


def measured(worker: Worker[_T], task: _T) -> Iterator[Row]:
    """Yield the rows of a task.

    Raises:
        InvalidInputError: If the worker yields something else.
    """
    for row in worker(task):
        if not isinstance(row, dict):
            raise InvalidInputError(f"a worker must yield dictionaries, got {type(row).__name__}")
        yield row


def reports(worker: Worker[_T], task: Callable[[], _T]) -> Iterator[Report]:
    """Yield the rows of a task, then None, or the failure that ended it.

    Args:
        worker: Measures it.
        task: Gives the task; what it raises is a failure, too.
    """
    try:
        yield from measured(worker, task())
    except Exception as error:  # a worker is anybody's code
        yield Failure.of(error)
    else:
        yield None


def message_of(report: Report) -> bytes:
    """Return a report for another process; one of a failure where a row cannot be pickled."""
    try:
        return pickled("a row", report)
    except InvalidInputError as error:
        return pickle.dumps(Failure.of(error))


def pickled(what: str, value: object) -> bytes:
    """Return `value` for another process.

    Raises:
        InvalidInputError: If it cannot be pickled.
    """
    try:
        return pickle.dumps(value)
    except Exception as error:  # pickle and the value's own methods raise anything
        raise InvalidInputError(
            f"{what} must be picklable to go to another process, got {value!r:.200}: {error}. Use "
            f"functions and classes at the top of a module, and functools.partial"
        ) from error


def name_of(task: Task, number: int, n_tasks: int) -> str:
    """Return what a worker does while it has a task, for messages."""
    name = textwrap.shorten(str(task), 120, placeholder=" ...")
    return f"task {number} of {n_tasks} ({name}) was measured"


def _can_be_pickled(value: object) -> bool:
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:  # pickle and the value's own methods raise anything
        return False
    return True
