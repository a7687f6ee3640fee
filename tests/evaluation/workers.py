"""Tasks and workers for the tests of running, where a process that is spawned can import them."""

import hashlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from sift_core import NumericalError, select
from sift_core.errors import MissingDependencyError
from sift_core.testing import HashingEmbedder


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Choose 1..n_rows of some texts; `trouble` says what happens before the last row."""

    name: str
    n_rows: int = 3
    trouble: str = ""
    seconds: float = 0.0

    def __str__(self):
        return self.name


def key_of(task, n_select):
    return hashlib.sha256(f"{task.name} {n_select}".encode()).hexdigest()


class Chooser:
    """Measures how far the variance falls."""

    def __init__(self):
        self.embedder = HashingEmbedder(dimension=16)
        texts = [f"text {i} of {i % 3} kinds" for i in range(12)]
        self.candidates = self.embedder.embed_documents(texts)

    def __call__(self, task):
        query = self.embedder.embed_query(task.name)
        for n_select in range(1, task.n_rows + 1):
            if n_select == task.n_rows:
                bring(task.trouble)
            time.sleep(task.seconds)
            selection = select(query, self.candidates, n_select)
            yield {
                "kind": "result",
                "key": key_of(task, n_select),
                "prompt": task.name,
                "chosen": selection.positions.tolist(),
                "variances": selection.variances.tolist(),
            }


class Unpicklable(NumericalError):
    def __init__(self, one, two):
        super().__init__(f"{one} {two}")
        self.function = lambda: one


def bring(trouble):
    if trouble == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if trouble == "exit":
        os._exit(3)
    if trouble == "ours":
        raise NumericalError("σ² of the prompt is NaN")
    if trouble == "missing":
        raise MissingDependencyError("peft", extra="fine-tune")
    if trouble == "unpicklable":
        raise Unpicklable("a", "b")
    if trouble == "theirs":
        raise ZeroDivisionError("nothing to divide by")


def make_logged(log):
    """Write a line into a file for every worker that is made."""
    with Path(log).open("a") as file:
        file.write(f"{os.getpid()} {os.environ.get('OMP_NUM_THREADS')}\n")
    return Chooser()


def make_broken(trouble):
    bring(trouble)
    return Chooser()


def make_odd(odd):
    """Make a worker that yields what is no row."""
    return {"text": yield_text, "none": yield_none, "function": yield_function}[odd]


def yield_text(task):
    yield "key"


def yield_none(task):
    yield None


def yield_function(task):
    yield {"key": task.name, "function": lambda: None}
