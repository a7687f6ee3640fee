"""Indexing that is killed at random moments loses and doubles nothing that was stored."""

import random
import subprocess
import sys
import time

import numpy as np
import pytest

from sift_core.sources.content_ids import content_id
from sift_core.types import Document, Query
from tests.documents.kill_indexing import (
    EMBEDDER,
    N_DOCUMENTS,
    STORES,
    address_for,
    documents_of,
)

N_KILLS = 5


def run(arguments, root, *, kill_at=None, wait_s=0.0):
    """Return the lines of a run that is killed so long after its n-th line; None for no kill."""
    command = [sys.executable, "-m", "tests.documents.kill_indexing", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        lines = []
        for line in process.stdout:
            lines.append(line.split())
            if len(lines) == kill_at:
                time.sleep(wait_s)
                process.kill()
    assert kill_at is not None or process.returncode == 0
    return lines


def promised(lines):
    return {key for line in lines for key in line[2:] if line[0] == "did"}


def held(source):
    """Return what a store holds, after comparing all that it gives back."""
    listed = source.content_ids()
    if not listed:
        return listed
    query = Query(text="?", embedding=EMBEDDER.embed_query("section of a page"))
    pool = source.fetch(query, 10 * N_DOCUMENTS)
    columns = zip(pool.document_ids, pool.texts, pool.metadata, strict=True)
    fetched = [
        content_id(Document(document_id=key, text=text, metadata=metadata))
        for key, text, metadata in columns
    ]
    assert sorted(fetched) == sorted(listed)  # nothing doubled, nothing damaged
    np.testing.assert_allclose(pool.embeddings, EMBEDDER.embed_documents(pool.texts), atol=1e-6)
    return listed


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_nothing_is_lost_or_doubled_whenever_indexing_is_killed(store, tmp_path, request):
    """Index in rounds, each of other documents, and check after each what the store holds."""
    generator = random.Random(1)
    folder, before, offered = tmp_path / "store", set(), set()
    with address_for(store) as url:
        for number in range(N_KILLS + 1):
            wanted = {content_id(document) for document in documents_of(number)}
            offered |= wanted
            kill = {"kill_at": generator.randint(1, 25), "wait_s": generator.uniform(0, 0.01)}
            is_last = number == N_KILLS  # and ends
            arguments = [store, str(folder), url, str(number)]
            lines = run(arguments, request.config.rootpath, **({} if is_last else kill))
            with STORES[store](folder, url) as source:
                found = held(source)
            assert (before & wanted) | promised(lines) <= found <= offered
            if lines and lines[-1][0] == "end":
                assert found == wanted
            before = found
    assert lines[-1][0] == "end"
