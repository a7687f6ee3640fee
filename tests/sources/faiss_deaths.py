"""A process that dies at every step of `save`.

Run as a program, since forking is safe in a process of one thread only:

    python -m tests.sources.faiss_deaths FOLDER DESCRIPTION
"""

import json
import os
import sys

from sift_core.sources import FaissSource
from tests.sources.faiss_corpus import NAME, built, contents, documents, saved

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


def die(folder, description):
    """Replace what is saved by another set of documents, dying at every step."""
    saved(folder, 5, description)
    current, outcomes = 5, []
    for n in range(1, 200):
        size = 5 + n
        child = os.fork()
        if child == 0:
            source = FaissSource(built(description, size), documents(size), embedder_name=NAME)
            die_at(n)
            source.save(folder)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        loaded = FaissSource.load(folder)
        found = contents(loaded)
        assert loaded.has_words
        assert status in (0, DIED)
        assert found in (list(range(current)), list(range(size))), (n, found)
        assert status == DIED or len(found) == size
        outcomes.append("new" if len(found) == size else "old")
        current = len(found)
        if status == 0:
            return {"outcomes": outcomes, "files": len(os.listdir(folder))}
    raise AssertionError("did not come to an end")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(die(*sys.argv[1:])) + "\n")
