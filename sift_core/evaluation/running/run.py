"""Runs the tasks of an experiment here, in several processes or on Ray, into one file.

The process that calls `run_tasks` alone writes, a row as soon as it is measured, so that the
order of rows differs between runs with several workers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from sift_core.checks import as_count
from sift_core.errors import InvalidInputError, SiftError
from sift_core.evaluation.running.progress import progress_bar
from sift_core.evaluation.running.results_file import ResultsFile, Row
from sift_core.evaluation.running.tasks import LOADING, Failure, MakeWorker, Task, measured, name_of

_T = TypeVar("_T", bound=Task)


def run_tasks(
    tasks: Sequence[_T],
    make_worker: MakeWorker[_T],
    *,
    file: ResultsFile,
    workers: int = 1,
    ray_address: str | None = None,
    progress: bool = True,
    n_done: int | None = None,
) -> int:
    """Have every task measured and its rows written to a file; return how many were written.

    What stops a run early (an error, a worker's death, Ctrl-C) leaves in the file whatever had
    been measured. A second run is given the tasks of which the file has no rows yet.

    With several processes, a script that calls this must be importable: its own work stands
    below `if __name__ == "__main__":`.

    Args:
        tasks: What is still to be measured, begun in this order.
        make_worker: Takes nothing and returns a worker, which takes a task and yields its rows.
            Called once a worker: this is where a model is loaded. With several workers it is
            pickled, and so are the tasks: a function or class at the top of an importable
            module, or a `functools.partial` of one.
        file: Where the rows go. Held for writing until the end.
        workers: How many tasks are measured at once: 1 in this process, more in a process each,
            which finds its share of the cores in the variable OMP_NUM_THREADS.
        ray_address: None for processes of this machine; "local" for a Ray that is started here
            and ended afterwards, "auto" for the one that this machine belongs to, or an address
            that `ray.init` knows ("ray://host:10001"). `workers` then are Ray actors of one CPU
            each, and of their share of the GPUs, at most one. The package and all that
            `make_worker` needs must be installed on Ray's machines.
        progress: Whether to show a bar on stderr if that is a terminal.
        n_done: Where the bar begins: how many rows the file has of this experiment. None
            counts every row with a key.

    Raises:
        InvalidInputError: If `workers` is not an integer >= 1, something cannot be pickled, or
            a worker yields what is no row.
        MissingDependencyError: If a bar is wanted and tqdm is missing, or Ray is wanted and
            missing.
        ExperimentError: If another process writes to the file, the system cannot write it, or a
            worker died or raised an error that is not of this library. An error that is
            of this library comes through as it is.
    """
    workers = as_count("workers", workers, minimum=1)
    run = _way_of_running(workers, ray_address)
    if not tasks:
        return 0
    n_written = 0
    n_rows = sum(as_count("n_rows", task.n_rows, minimum=0) for task in tasks)
    with file:
        n_done = len(file.keys()) if n_done is None else n_done
        total = n_done + n_rows
        with progress_bar(total, "measured", "rows", n_done=n_done, wanted=progress) as advance:

            def write(row: Row) -> None:
                nonlocal n_written
                n_written += file.append(row)
                advance(1)

            run(tasks, make_worker, write)
    return n_written


def _way_of_running(workers: int, ray_address: str | None) -> Callable[..., None]:
    if ray_address is not None:
        from sift_core.evaluation.running.ray_tasks import run_on_ray

        if not isinstance(ray_address, str) or not ray_address:
            raise InvalidInputError(
                f"`ray_address` must be 'local', 'auto' or an address, got {ray_address!r}"
            )
        return lambda *args: run_on_ray(*args, workers=workers, address=ray_address)
    if workers > 1:
        from sift_core.evaluation.running.process_tasks import run_in_processes

        return lambda *args: run_in_processes(*args, workers=workers)
    return _run_here


def _run_here(
    tasks: Sequence[_T], make_worker: MakeWorker[_T], write: Callable[[Row], None]
) -> None:
    with _foreign_errors(LOADING):
        worker = make_worker()
    for number, task in enumerate(tasks, start=1):
        doing = name_of(task, number, len(tasks))
        rows = measured(worker, task)
        while True:
            with _foreign_errors(doing):
                row = next(rows, None)
            if row is None:
                break
            write(row)


@contextlib.contextmanager
def _foreign_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except SiftError:
        raise
    except Exception as error:
        raise Failure.of(error).as_error(doing) from error
