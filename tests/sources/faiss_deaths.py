"""A process that dies while it saves, and one of two that begin a folder at once.

Run as a program, since forking is safe in a process of one thread only:

    python -m tests.sources.faiss_deaths die FOLDER DESCRIPTION    at every step of `save`
    python -m tests.sources.faiss_deaths begin FOLDER N_DOCUMENTS  as one of several first writers
"""

import json
import os
import sys

import faiss

from sift_core.documents import index_documents
from sift_core.errors import CandidateSourceError
from sift_core.sources import FaissSource
from sift_core.testing import HashingEmbedder
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
        found = contents(FaissSource.load(folder))
        assert status in (0, DIED)
        assert found in (list(range(current)), list(range(size))), (n, found)
        assert status == DIED or len(found) == size
        outcomes.append("new" if len(found) == size else "old")
        current = len(found)
        if status == 0:
            return {"outcomes": outcomes, "files": len(os.listdir(folder))}
    raise AssertionError("did not come to an end")


def begin(folder, n):
    """Wait for a line, then begin a folder and index into it, as others do at this moment."""
    embedder = HashingEmbedder(16)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    try:
        source = FaissSource.open(folder, faiss.IndexFlatIP(16), embedder_name=embedder.name)
        report = index_documents(
            source, documents(int(n)), embedder, batch_size=3, delete_vanished=False, progress=False
        )
    except CandidateSourceError as error:
        return {"refused": str(error)}
    return {"added": report.n_added}


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    result = {"die": die, "begin": begin}[command](*arguments)
    sys.stdout.write(json.dumps(result) + "\n")
