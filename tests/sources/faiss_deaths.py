"""Processes that die while they write a folder, and what a survivor finds in it.

Run as a program, since forking is safe in a process of one thread only:

    python -m tests.sources.faiss_deaths save|complete|add|read-only|full FOLDER DESCRIPTION
    python -m tests.sources.faiss_deaths kill FOLDER DESCRIPTION ROUNDS

Prints what it found as JSON; an AssertionError says what was wrong.
"""

import json
import os
import random
import resource
import select
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import faiss

from sift_core.errors import CandidateSourceError
from sift_core.sources import FaissSource
from tests.sources.faiss_corpus import NAME, add, built, contents, documents, remove, saved

EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "sqlite3.connect"}
DIED = 77


def die_at(n):
    """Make this process die just before its nth operation on files."""
    n_seen = 0

    def step():
        nonlocal n_seen
        n_seen += 1
        if n_seen == n:
            os._exit(DIED)

    sys.addaudithook(lambda event, arguments: step() if event in EVENTS else None)
    sync = os.fsync
    os.fsync = lambda descriptor: (step(), sync(descriptor))[1]


def forked(operation):
    """Run an operation in a child; return its exit status."""
    child = os.fork()
    if child == 0:
        try:
            operation()
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def stored(folder):
    return set(contents(FaissSource.load(folder)))


def save(folder, description):
    """Replace what is saved by another set of documents, dying at every step."""
    saved(folder, 5, description)
    current = set(range(5))
    outcomes = []
    for n in range(1, 200):
        size = 5 + n

        def replace(n=n, size=size):
            source = FaissSource(built(description, size), documents(size), embedder_name=NAME)
            die_at(n)
            source.save(folder)

        status = forked(replace)
        found = stored(folder)
        assert status in (0, DIED)
        assert found in (current, set(range(size))), (n, found)
        assert status == DIED or found == set(range(size))
        outcomes.append("new" if found == set(range(size)) else "old")
        current = found
        if status == 0:
            return {"outcomes": outcomes, "files": len(os.listdir(folder))}
    raise AssertionError("did not come to an end")


def complete(folder, description):
    """Add one document, then die at every step of writing the index to a new file."""
    saved(folder, 5, description)
    for n in range(1, 200):

        def finish(n=n):
            source = FaissSource.load(folder)
            add(source, [4 + n])
            die_at(n)
            source.complete()

        status = forked(finish)
        assert status in (0, DIED)
        assert stored(folder) == set(range(5 + n)), n
        if status == 0:
            saved_again = FaissSource.load(folder)
            saved_again.save(folder)
            return {"steps": n, "files": len(os.listdir(folder))}
    raise AssertionError("did not come to an end")


def append(folder, description):
    """Add documents, replacing one, dying at every step before the call returns."""
    saved(folder, 5, description)
    add(FaissSource.load(folder), range(5, 8))
    expected = set(range(8))
    for n in range(1, 200):
        new = {10 + 2 * n, 11 + 2 * n}

        def write(n=n, new=new):
            source = FaissSource.load(folder)
            die_at(n)
            add(source, [7, *sorted(new)])

        status = forked(write)
        found = stored(folder)
        assert status in (0, DIED)
        assert found in (expected, expected | new), (n, found)
        assert status == DIED or found == expected | new
        expected = found
        if status == 0:
            return {"steps": n}
    raise AssertionError("did not come to an end")


def kill(folder, description, rounds):
    """Kill a process that adds, removes and completes, at random moments."""
    saved(folder, 5, description)
    generator = random.Random(0)
    expected = set(range(5))
    n_calls = 0
    for first in range(5, 5 + 1000 * rounds, 1000):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            write_until_killed(folder, first, writer)
        os.close(writer)
        with os.fdopen(reader) as lines:
            select.select([lines], [], [], 10)  # until its first call has come back
            time.sleep(generator.uniform(0, 0.12))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            done = [json.loads(line) for line in lines if line.endswith("\n")]
        n_calls += len(done)
        allowed = after(expected, first, len(done)), after(expected, first, len(done) + 1)
        found = stored(folder)
        assert found in allowed, (found ^ allowed[0], found ^ allowed[1])
        expected = found
    source = FaissSource.load(folder)
    add(source, [0])  # SQLite leaves the unused journal of a dead process to the next writer
    source.save(folder)
    return {"calls": n_calls, "documents": len(expected), "files": len(os.listdir(folder))}


def refused(operation):
    """Return what an operation that must fail says."""
    try:
        operation()
    except CandidateSourceError as error:
        return str(error)
    return "nothing was refused"


def restricted(folder, description, restrict):
    """Load, save and add in a process that may not write; return what it was told."""
    saved(folder, 5, description)
    reader, writer = os.pipe()

    def attempt():
        large = FaissSource(built("Flat", 2000), documents(2000))
        stored(folder)  # imports what it needs while that may be read
        restrict(folder)
        source = FaissSource.load(folder)
        report = {
            "found": contents(source),
            "save": refused(lambda: large.save(folder)),
            "add": refused(lambda: add(source, range(5, 2000))),
            "found after": contents(source),
        }
        os.write(writer, json.dumps(report).encode())

    assert forked(attempt) == 0
    assert stored(folder) == set(range(5))
    report = json.loads(os.read(reader, 100_000))
    return {**report, "files": len(os.listdir(folder))}


def forbid(folder):
    """Take the right to write away from this process."""
    for path in Path(folder).parents:
        if path.stat().st_uid == os.geteuid() and path.is_relative_to(tempfile.gettempdir()):
            path.chmod(path.stat().st_mode | 0o055)
    for path in Path(folder).iterdir():
        path.chmod(0o444)
    Path(folder).chmod(0o555)
    if os.geteuid() == 0:
        os.setuid(65534)  # root may write everywhere


def fill_up(folder):
    """Let no file of this process become longer than 20 kB more than the documents are."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = max(path.stat().st_size for path in Path(folder).iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, size + 20_000))


def calls(first):
    """Yield what the child does, call by call: (method, numbers)."""
    for i in range(first, first + 900, 3):
        yield "add", [i, i + 1, i + 2]
        yield "remove", [i + 1]
        if i % 4 == 0:
            yield "complete", []


def after(numbers, first, n_calls):
    """Return which documents there are after so many calls."""
    numbers = set(numbers)
    for _, (method, changed) in zip(range(n_calls), calls(first), strict=False):
        numbers = numbers | set(changed) if method == "add" else numbers - set(changed)
    return numbers


def write_until_killed(folder, first, writer):
    source = FaissSource.load(folder)
    for method, numbers in calls(first):
        if method == "complete":
            source.complete()
        else:
            {"add": add, "remove": remove}[method](source, numbers)
        os.write(writer, b"1\n")
    os._exit(1)


if __name__ == "__main__":
    faiss.omp_set_num_threads(1)
    name, folder, description, *numbers = sys.argv[1:]
    program = {
        "save": save,
        "complete": complete,
        "add": append,
        "kill": kill,
        "read-only": partial(restricted, restrict=forbid),
        "full": partial(restricted, restrict=fill_up),
    }[name]
    sys.stdout.write(json.dumps(program(folder, description, *map(int, numbers))))
