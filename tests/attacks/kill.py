"""Deaths and Ctrl-C at random moments, first writers at once: what was stored is never lost."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import faiss as library

from sift_core.documents import index_documents
from sift_core.errors import SiftError
from sift_core.sources import FaissSource
from sift_core.sources.content_ids import content_id
from tests.attacks.commands import Ended, assert_cats, environment, forked, sift, write_cats
from tests.attacks.frame import HANG_S, Failed
from tests.documents import kill_indexing
from tests.documents.kill_indexing import EMBEDDER, documents_of
from tests.documents.test_kill_indexing import check_rounds
from tests.sources.faiss_deaths import DIED, die_at

REFUSED = 3
COMMANDS = (("index", "docs"), ("search", "cats"), ("search", "cats", "--json"), ("doctor",))
CODE = "from sift_core.cli import main; main()"


def indexing(rng, folder):
    """Rounds of indexing into a Faiss folder or a Qdrant folder, all killed but the last."""
    store, path = rng.choice(["faiss", "qdrant-folder"]), folder / "store"

    def run_round(number, *, is_last):
        """Die before a random operation on files, or at a random moment; return what was told."""
        n, kill_after_s = rng.choice([1 << 30, rng.randint(1, 120)]), rng.uniform(0, 0.4)

        def work():
            if not is_last:
                die_at(n)
            kill_indexing.index(store, path, "none", number)

        will_end = is_last or n < 1 << 30
        ended = forked(work, folder, **({} if will_end else {"kill_after_s": kill_after_s}))
        if ended.code not in ((0,) if is_last else (0, -9, DIED)):
            raise Failed(f"exit code {ended.code}: {ended.err[-300:]}")
        return [line.split() for line in ended.out.splitlines()]

    check_rounds(store, path, "none", 4, run_round)


def first_writers(rng, folder):
    """Several begin one Faiss folder at once; of all that are told "stored", all is there."""
    context, start = multiprocessing.get_context("fork"), os.pipe()  # which ends for all at once
    n, n_killed = rng.randint(2, 5), rng.choice([0, 0, 1])
    parts = [documents_of(10 * i)[: rng.randint(1, 30)] for i in range(n)]
    writers = [context.Process(target=begin, args=(folder, start, part)) for part in parts]
    for writer in writers:
        writer.start()
    for end in start:
        os.close(end)
    for writer in writers[:n_killed]:
        writer.join(rng.uniform(0, 0.1))
        writer.kill()
    for writer in writers:
        writer.join()
    codes = [writer.exitcode for writer in writers]
    if not set(codes) <= {0, REFUSED, -9} or (0 not in codes and not n_killed):
        raise Failed(f"exit codes {codes}: {(folder.parent / 'log').read_text()[-300:]}")
    found = FaissSource.load(folder / "store").content_ids() if 0 in codes else set()
    for code, part in zip(codes, parts, strict=True):
        if code == 0 and (lost := {content_id(document) for document in part} - found):
            raise Failed(f"{len(lost)} documents of a writer that said stored are gone")


def begin(folder, start, documents):
    os.close(start[1])
    os.read(start[0], 1)
    options = {"batch_size": 4, "delete_vanished": False, "progress": False}
    try:
        source = FaissSource.open(folder / "store", library.IndexFlatIP(16))
        index_documents(source, documents, EMBEDDER, **options)
    except SiftError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(REFUSED)


def indexed_folder(rng, folder):
    """`sift index`, killed and called again, holds what one that was left alone holds."""
    n = rng.randint(1, 30)
    write_cats(folder, range(n))
    if rng.random() < 0.5:
        sift(folder, "index", "docs").checked(0)
        write_cats(folder, range(n, n + 9))
        (folder / "docs/0.md").write_text("# Part 0\n\nDogs bark.\n")
    sift(folder, "index", "docs", kill_after_s=rng.uniform(0.1, 2.5)).checked(0, -9)
    sift(folder, "index", "docs").checked(0)
    assert_cats(folder, range(1, n))


def interrupted(rng, folder):
    """A real process of `sift`, interrupted once or twice, half of the time while it starts."""
    write_cats(folder, range(20))
    sift(folder, "index", "docs").checked(0)
    write_cats(folder, range(10, 60), "Dogs bark")
    command, pipe = rng.choice(COMMANDS), subprocess.PIPE
    options = {"cwd": folder, "env": environment(folder), "text": True, "stdin": subprocess.DEVNULL}
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *command], stdout=pipe, stderr=pipe, **options
    )
    time.sleep(rng.uniform(0, rng.choice([0.5, 2, 8])))
    for _ in range(rng.choice([1, 1, 1, 2])):
        process.send_signal(signal.SIGINT)
        time.sleep(rng.uniform(0, 0.2))
    out, err = process.communicate(timeout=HANG_S / 2)
    if "Traceback" not in err or "sift_core" in err or "<string>" in err:  # else Python's own start
        ended = Ended(code=process.returncode, out=out, err=err, cpu_s=0, grown_mb=0)
        ended.checked(0, 130, -signal.SIGINT)
    assert_cats(folder, range(10))
    again = sift(folder, "index", "docs", "--json").checked(0)
    if '"n_chunks": 60' not in again.out:
        raise Failed(f"{command}: {err}; then {again.out[:200]}")


ATTACKS = (indexing, first_writers, indexed_folder, interrupted)
