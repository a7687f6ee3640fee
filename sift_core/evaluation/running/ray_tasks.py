"""Tasks on Ray: on the cores of this machine, or on a cluster.

A worker is an actor, which lives from the first task to the last, so that its model is loaded
once; Ray's tasks may be run by any process. Rows are asked for one at a time: that is some
milliseconds a row, works through Ray's client too, and every row is here when it is measured.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sift_core.errors import ExperimentError, InvalidInputError, MissingDependencyError, SiftError
from sift_core.evaluation.running.process_tasks import environment, n_threads
from sift_core.evaluation.running.results_file import Row
from sift_core.evaluation.running.tasks import (
    LOADING,
    Failure,
    MakeWorker,
    Report,
    Task,
    Worker,
    message_of,
    name_of,
    reports,
)

try:
    import ray
    from ray.exceptions import RayError
except ImportError as error:
    raise MissingDependencyError("ray", extra="ray") from error

_T = TypeVar("_T", bound=Task)

_STORE_BYTES = 100 * 1024 * 1024  # Ray asks for 75 MiB at least; tasks and rows are small


class _Bench(Generic[_T]):
    """What an actor does; each answer is a pickled report."""

    _worker: Worker[_T]
    _reports: Iterator[Report]

    def load(self, make_worker: MakeWorker[_T]) -> bytes:
        try:
            self._worker = make_worker()
        except Exception as error:  # a worker is anybody's code
            return message_of(Failure.of(error))
        return message_of(None)

    def begin(self, task: _T) -> bytes:
        self._reports = reports(self._worker, lambda: task)
        return self.go_on()

    def go_on(self) -> bytes:
        return message_of(next(self._reports))


@dataclass(kw_only=True)
class _Slot:
    actor: Any
    doing: str = field(default=LOADING)


def run_on_ray(
    tasks: Sequence[_T],
    make_worker: MakeWorker[_T],
    write: Callable[[Row], None],
    *,
    workers: int,
    address: str,
) -> None:
    """Have tasks measured by Ray's actors; see `run_tasks`.

    A Ray that this process is connected to already is used, whatever `address` says, and left
    as it is.

    Args:
        tasks: Given to the actors in this order.
        make_worker: Called once in each actor.
        write: Called with every row, here.
        workers: How many actors; no more are made than there are tasks. Where the cluster has
            fewer CPUs, the others do the work.
        address: As `ray.init` takes it.

    Raises:
        InvalidInputError: If something cannot be pickled, or there is no Ray at `address`.
        ExperimentError: If a worker died or an error that is not of this library was raised.
    """
    workers = min(workers, len(tasks))
    with _connected(address, workers):
        slots: list[_Slot] = []
        asked: dict[Any, _Slot] = {}
        try:
            for _ in range(workers):
                slots.append(_Slot(actor=_actor_class(workers).remote()))
            for slot in slots:
                asked[_ask(slot.actor.load, "`make_worker`", make_worker)] = slot
            _feed(asked, iter(enumerate(tasks, start=1)), len(tasks), write)
        finally:
            _write_the_rest(asked, write)
            for slot in slots:
                ray.kill(slot.actor)


def _feed(
    asked: dict[Any, _Slot],
    numbered: Iterator[tuple[int, _T]],
    n_tasks: int,
    write: Callable[[Row], None],
) -> None:
    n_to_end = n_tasks
    while n_to_end:  # not: while asked; an actor that finds no room is still asked to load
        (ready, *_), _ = ray.wait(list(asked), num_returns=1)
        report = _report(ready, asked[ready])
        slot = asked.pop(ready)
        if isinstance(report, Failure):
            raise report.as_error(slot.doing)
        if report is not None:
            asked[slot.actor.go_on.remote()] = slot
            write(report)
            continue
        n_to_end -= slot.doing != LOADING
        if (following := next(numbered, None)) is not None:
            number, task = following
            slot.doing = name_of(task, number, n_tasks)
            asked[_ask(slot.actor.begin, "a task", task)] = slot


def _ask(method: Any, what: str, value: object) -> Any:
    try:
        return method.remote(value)
    except TypeError as error:  # as Ray spells it
        raise InvalidInputError(
            f"{what} must be picklable to go to another process, got {value!r:.200}: {error}"
        ) from error


def _report(ready: Any, slot: _Slot) -> Report:
    try:
        report: Report = pickle.loads(ray.get(ready))
    except RayError as error:
        raise ExperimentError(
            f"a worker on Ray died while {slot.doing}; a second run goes on from the results "
            f"file. Ray says: {error}"
        ) from error
    return report


def _write_the_rest(asked: dict[Any, _Slot], write: Callable[[Row], None]) -> None:
    """Write the rows that had been measured and not yet been read."""
    if not asked:
        return
    for ready in ray.wait(list(asked), num_returns=len(asked), timeout=0)[0]:
        # What failed has been said to have failed.
        with contextlib.suppress(SiftError):
            if isinstance(report := _report(ready, asked[ready]), dict):
                write(report)


def _actor_class(workers: int) -> Any:
    resources = ray.cluster_resources()  # type: ignore[no-untyped-call]  # Ray's own omission
    n_gpus = min(1.0, resources.get("GPU", 0) / workers)
    return ray.remote(num_cpus=1, num_gpus=n_gpus)(_Bench)


@contextlib.contextmanager
def _connected(address: str, workers: int) -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    local: dict[str, Any] = {
        "num_cpus": workers,
        "include_dashboard": False,
        "object_store_memory": _STORE_BYTES,
    }
    settings = local if address == "local" else {}
    variables = {"RAY_USAGE_STATS_ENABLED": "0"}  # it would report this run to Ray's makers
    if address == "local":
        variables["OMP_NUM_THREADS"] = str(n_threads(workers))
        variables["RAY_worker_niceness"] = "0"  # 15 if unsaid: slower than processes without Ray
    with _traces_removed():
        with environment(**variables):
            try:
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **settings)
            except (OSError, ValueError, RuntimeError) as error:
                raise InvalidInputError(
                    f"`ray_address` must lead to a Ray that can be used, got {address!r}: {error}"
                ) from error
        try:
            yield
        finally:
            ray.shutdown()


@contextlib.contextmanager
def _traces_removed() -> Iterator[None]:
    """Undo what Ray leaves in this process: a handler of SIGTERM and variables of its own."""
    handler, names = signal.getsignal(signal.SIGTERM), set(os.environ)
    try:
        yield
    finally:
        for name in set(os.environ) - names:
            del os.environ[name]
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
