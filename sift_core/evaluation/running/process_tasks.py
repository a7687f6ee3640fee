"""Tasks in several processes of this machine, each with its share of the cores.

A process is told its next task when it has ended one, through a pipe of its own: nothing is
shared that a process which is killed could leave locked, and it is known what it worked on.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TypeVar

from sift_core.errors import ExperimentError, SiftError
from sift_core.evaluation.running.results_file import Row
from sift_core.evaluation.running.tasks import (
    LOADING,
    Failure,
    MakeWorker,
    Report,
    Task,
    message_of,
    name_of,
    pickled,
    reports,
)

_T = TypeVar("_T", bound=Task)

_PATIENCE_S = 1.0  # a guess: SIGTERM ends a process at once unless it is about to end itself


@dataclass(kw_only=True)
class _Process:
    process: BaseProcess
    connection: Connection
    doing: str = field(default=LOADING)


def run_in_processes(
    tasks: Sequence[_T],
    make_worker: MakeWorker[_T],
    write: Callable[[Row], None],
    *,
    workers: int,
) -> None:
    """Have tasks measured by processes that are spawned; see `run_tasks`.

    Args:
        tasks: Given to the processes in this order.
        make_worker: Called once in each process.
        write: Called with every row, here.
        workers: How many processes; no more are started than there are tasks.

    Raises:
        InvalidInputError: If something cannot be pickled.
        ExperimentError: If a process died or an error that is not of this library was raised.
    """
    messages = (
        (name_of(task, number, len(tasks)), pickled("a task", task))
        for number, task in enumerate(tasks, start=1)
    )
    maker = pickled("`make_worker`", make_worker)
    processes: list[_Process] = []
    try:
        with environment(OMP_NUM_THREADS=str(n_threads(workers))):
            for _ in range(min(workers, len(tasks))):
                processes.append(_started())
        for process in processes:
            _tell(process, maker)
        _feed(processes, messages, write)
    finally:
        _end(processes)
        _write_the_rest(processes, write)


def _feed(
    processes: Sequence[_Process],
    messages: Iterator[tuple[str, bytes]],
    write: Callable[[Row], None],
) -> None:
    busy = {process.connection: process for process in processes}
    while busy:
        for ready in wait(list(busy)):
            process = busy[ready]  # type: ignore[index]  # only connections were waited for
            report = _report(process)
            if isinstance(report, Failure):
                raise report.as_error(process.doing)
            if report is not None:
                write(report)
                continue
            process.doing, message = next(messages, ("it ended", b""))
            _tell(process, message)
            if not message:
                del busy[process.connection]


def _tell(process: _Process, message: bytes) -> None:
    # One that is dead by now is found out where its reports are read.
    with contextlib.suppress(OSError):
        process.connection.send_bytes(message)


def _report(process: _Process) -> Report:
    """Return what a process says next.

    Raises:
        ExperimentError: If it is dead.
    """
    try:
        report: Report = pickle.loads(process.connection.recv_bytes())
    except (EOFError, OSError) as error:
        process.process.join(_PATIENCE_S)
        hint = (
            "; does the script start its work below `if __name__ == '__main__':`?"
            if process.doing == LOADING
            else ""
        )
        raise ExperimentError(
            f"a worker died ({_death(process.process.exitcode)}) while {process.doing}; a second "
            f"run goes on from the results file{hint}"
        ) from error
    return report


def _death(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"exit code {exit_code}"
    name = f"signal {-exit_code}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-exit_code).name
    return f"{name}: somebody or the system, out of memory, killed it" if exit_code == -9 else name


def _started() -> _Process:
    context = multiprocessing.get_context("spawn")  # torch does not survive a fork
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True)
    try:
        with theirs, _interrupts_blocked():
            process.start()
    except BaseException:
        ours.close()
        raise
    return _Process(process=process, connection=ours)


def _end(processes: Sequence[_Process]) -> None:
    """End all processes, within about a second; those without a task have ended by themselves."""
    for process in processes:
        if process.doing != "it ended":
            process.process.terminate()
    deadline = time.monotonic() + _PATIENCE_S
    for process in processes:
        process.process.join(max(0.0, deadline - time.monotonic()))
        if process.process.exitcode is None:
            process.process.kill()
            process.process.join()
        process.process.close()


def _write_the_rest(processes: Sequence[_Process], write: Callable[[Row], None]) -> None:
    """Write the rows that had been measured and not yet been read."""
    for process in processes:
        # A file that cannot be written has already been said to be so.
        with process.connection, contextlib.suppress(EOFError, OSError, SiftError):
            while True:
                report = pickle.loads(process.connection.recv_bytes())
                if isinstance(report, dict):
                    write(report)


def n_threads(workers: int) -> int:
    """Return the cores that a worker gets, and not more than the user set for one process."""
    if hasattr(os, "sched_getaffinity"):
        n_cores = len(os.sched_getaffinity(0))
    else:
        n_cores = os.cpu_count() or 1
    share = max(1, n_cores // workers)
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(share, int(wanted)) if wanted.isdecimal() and int(wanted) > 0 else share


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set variables for processes that are started meanwhile, which read them on importing."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Keep Ctrl-C, which reaches all processes of a terminal, from those started meanwhile."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection) -> None:
    """Be a worker: the first message is what makes it, the others are tasks, the last is empty."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Windows has no mask to inherit
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    with connection, contextlib.suppress(EOFError, OSError):  # the parent is gone
        try:
            worker = pickle.loads(connection.recv_bytes())()
        except Exception as error:  # a worker is anybody's code
            connection.send_bytes(message_of(Failure.of(error)))
            return
        connection.send_bytes(message_of(None))
        while message := connection.recv_bytes():
            for report in reports(worker, partial(pickle.loads, message)):
                connection.send_bytes(message_of(report))


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
