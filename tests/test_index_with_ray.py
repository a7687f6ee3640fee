"""The example that indexes with Ray: a worker dies while it writes; nothing is lost or doubled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray.data", reason="pip install 'ray[data]'")
psutil = pytest.importorskip("psutil")
qdrant_client = pytest.importorskip("qdrant_client")

from sift_core.documents import read_files  # noqa: E402
from sift_core.sources import content_id  # noqa: E402
from tests.sources.qdrant_rest import serving  # noqa: E402

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples/index_with_ray.py"
KILLED_AT = 3  # the write after which the worker dies that made it
LIMIT_S = 600


@pytest.fixture
def docs(tmp_path, monkeypatch):
    """A folder, and the ids of what `sift index` would make of it."""
    monkeypatch.chdir(tmp_path)  # names are relative to it
    for n in range(40):
        path = tmp_path / f"docs/part-{n % 5}/page-{n}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        sections = (f"## About {n}, {i}\n\n{f'Fact {i} of page {n}. ' * 30}" for i in range(6))
        path.write_text("\n\n".join(sections), encoding="utf-8")
    (tmp_path / "docs/picture.png").write_bytes(b"\x89PNG")
    return {content_id(document) for document in read_files(["docs"]).documents}


def indexed(url):
    return subprocess.run(
        [sys.executable, EXAMPLE, "docs", "--store", f"qdrant:{url}#docs", "--embedder=hashing"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


class KillsTheWriter:
    """Answers as the server does, and kills the maker of one write before it hears of it."""

    def __init__(self):
        self.n_writes, self.killed = 0, []

    def __call__(self, call):
        answer = call.genuine()
        if call.command == "PUT" and call.path.split("?")[0].endswith("/points"):
            self.n_writes += 1
            if self.n_writes == KILLED_AT:
                self.kill(call.client_address)
        call.respond(*answer)

    def kill(self, address):
        for connection in psutil.net_connections("tcp4"):
            if connection.laddr == address:
                self.killed.append(connection.pid)
                psutil.Process(connection.pid).kill()


@pytest.mark.slow
def test_a_killed_worker_loses_and_doubles_nothing(docs):
    client = qdrant_client.QdrantClient(":memory:")
    writer = KillsTheWriter()
    with serving(client) as server:
        server.fail(writer)
        first = indexed(server.url)
        assert first.returncode == 0, first.stderr
        (killed,) = writer.killed
        assert writer.n_writes > KILLED_AT
        assert killed != os.getpid()
        points = client.scroll("docs", limit=10 * len(docs))[0]
        assert sorted(point.id for point in points) == sorted(docs)
        assert "left out: 1 unknown suffix" in first.stdout

        n_writes = writer.n_writes
        again = indexed(server.url)
        assert f"{len(docs):,} chunks of 40 files, {len(docs):,} of them stored" in again.stdout
        assert writer.n_writes == n_writes
    client.close()
