"""A process that dies while it saves, and one of two that begin a folder at once.

Run as a program, since forking is safe in a process of one thread only:

    python -m tests.sources.faiss_deaths die FOLDER DESCRIPTION  at every step of `save`
    python -m tests.sources.faiss_deaths begin FOLDER FIRST N    as one of several first writers
    python -m tests.sources.faiss_deaths race N_ROUNDS N_WRITERS several of them, round after round
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import faiss

from sift_core.documents import index_documents
from sift_core.errors import CandidateSourceError
from sift_core.sources import FaissSource
from sift_core.testing import HashingEmbedder
from tests.sources.faiss_corpus import NAME, built, contents, document, documents, saved

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


def begin(folder, first, n):
    """Wait for a line, then begin a folder and index N documents, as others do at this moment."""
    embedder = HashingEmbedder(16)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    own = [document(int(first) + i) for i in range(int(n))]
    try:
        source = FaissSource.open(folder, faiss.IndexFlatIP(16), embedder_name=embedder.name)
        index_documents(source, own, embedder, batch_size=3, delete_vanished=False, progress=False)
    except CandidateSourceError as error:
        stored = re.search(r"with (\d+) new documents safely stored", str(error))
        return {"error": str(error), "stored": int(stored[1]) if stored else 0}
    return {"error": None, "stored": len(own)}


def race(n_rounds, n_writers, n_documents=40):
    """Let several processes begin a folder at once; return how many came through.

    What any of them said was stored must be there when all have ended, and nothing else of theirs
    be left behind.
    """
    program = [sys.executable, "-m", "tests.sources.faiss_deaths"]
    whole = 0
    for _ in range(int(n_rounds)):
        with TemporaryDirectory() as parent:
            folder = Path(parent, "index")
            writers = [
                subprocess.Popen(
                    [*program, "begin", folder, str(i * 1000), str(n_documents)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for i in range(int(n_writers))
            ]
            for writer in writers:
                assert writer.stdout.readline() == "ready\n"
            for writer in writers:
                writer.stdin.write("\n")
                writer.stdin.flush()
            results = [json.loads(writer.communicate(timeout=120)[0]) for writer in writers]
            kept = FaissSource.load(folder).documents().values()
            held = {each.metadata["number"] for each in kept}
            for i, result in enumerate(results):
                assert held >= {i * 1000 + k for k in range(result["stored"])}, (held, results)
            assert len(os.listdir(folder)) == 5
            whole += sum(result["error"] is None for result in results)
    return {"whole": whole}


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    result = {"die": die, "begin": begin, "race": race}[command](*arguments)
    sys.stdout.write(json.dumps(result) + "\n")
