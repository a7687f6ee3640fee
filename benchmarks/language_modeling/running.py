"""Long runs: a file of rows that an interrupted run goes on from, and workers that make rows."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from joblib import Parallel, delayed
from tqdm import tqdm

from benchmarks.language_modeling.measuring import Measurer, PromptTask
from sift_core.errors import ExperimentError, InvalidInputError

Row = dict[str, Any]


class MakesMeasurer(Protocol):
    """A hashable value that loads a worker; it goes to other processes."""

    def load_measurer(self) -> Measurer: ...


class ResultsFile:
    """Rows on disk, one JSON object a line, held for writing in a `with`.

    A row is known by `row["key"]`; one without, the description of an experiment, by
    `row["experiment"]`. A kill leaves whole lines and perhaps the beginning of one, which is
    dropped when the file is opened again.

    Args:
        path: Made where missing, its folder too.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self.rows: list[Row] = []
        self.keys: set[str] = set()  # how the rows are known

    def append(self, row: Row) -> None:
        """Write one row to the disk unless it is there."""
        if _name(row) in self.keys:
            return
        self._file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.rows.append(row)
        self.keys.add(_name(row))

    def __enter__(self) -> ResultsFile:
        self._file = self._path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise ExperimentError(f"another run is writing to {self._path}") from error
        content = self._path.read_bytes()
        self._file.truncate(content.rfind(b"\n") + 1)
        self.rows = read_rows(self._path)
        self.keys = {_name(row) for row in self.rows}
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a results file."""
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise InvalidInputError(f"{path}, line {number}: no row of results") from error
    return rows


def run_tasks(
    worker: MakesMeasurer,
    tasks: Sequence[PromptTask],
    file: ResultsFile,
    *,
    workers: int = 1,
) -> None:
    """Measure tasks and write their rows, each prompt's as soon as it is done.

    Args:
        worker: Loads the model, once a process.
        tasks: What is missing.
        file: Held for writing.
        workers: How many processes; each has its share of the cores.
    """
    calls = (delayed(_measured)(worker, task) for task in tasks)
    results = Parallel(n_jobs=workers, return_as="generator_unordered")(calls)
    for rows in tqdm(results, total=len(tasks), desc="measured", unit=" prompts", disable=None):
        for row in rows:
            file.append(row)


def _measured(worker: MakesMeasurer, task: PromptTask) -> list[Row]:
    return list(_loaded(worker)(task))


@lru_cache(maxsize=1)
def _loaded(worker: MakesMeasurer) -> Measurer:
    return worker.load_measurer()


def _name(row: Row) -> str:
    return row.get("key") or row["experiment"]
