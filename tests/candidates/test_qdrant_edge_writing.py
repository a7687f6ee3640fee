import json
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from sift_core.candidates.indexing import index_documents
from sift_core.candidates.qdrant_edge_shard import EdgeSource
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.testing import HashingEmbedder
from sift_core.types import Document, Query

edge = pytest.importorskip("qdrant_edge")

QUERY = Query(text="?", embedding=[2.0, 0.0])
IDS = [f"00000000-0000-4000-8000-{i:012d}" for i in range(5)]
DOCUMENTS = [
    Document(document_id=f"книга.md#{i}", text=f"text {i} 🙂", metadata={"page": i, "tags": ["é"]})
    for i in range(5)
]
EMBEDDINGS = np.float32([[1, 0], [3, 4], [0, 2], [-1, 1], [-1, 0]])


@pytest.fixture(params=["", "dense"], ids=["unnamed", "named"])
def source(request, tmp_path):
    with EdgeSource.open(tmp_path / "shard", vector_name=request.param) as source:
        yield source


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "shard"


def filled(source):
    source.prepare(embedder_name="a", dimension=2)
    source.add(IDS, DOCUMENTS, EMBEDDINGS)
    return source


def one(**changes):
    return Document(**{"document_id": "x", "text": "x", **changes})


def nested(n_levels):
    value = "innermost"
    for _ in range(n_levels):
        value = [value]
    return {"below": value}


def test_what_is_added_is_fetched_as_it_was(source):
    assert source.content_ids() == set()
    pool = filled(source).fetch(QUERY, 10)
    assert source.content_ids() == set(IDS)
    assert pool.document_ids == tuple(document.document_id for document in DOCUMENTS)
    assert pool.texts == tuple(document.text for document in DOCUMENTS)
    assert pool.metadata == tuple(document.metadata for document in DOCUMENTS)
    units = EMBEDDINGS / np.linalg.norm(EMBEDDINGS, axis=1, keepdims=True)
    np.testing.assert_allclose(pool.embeddings, units, atol=1e-6)


def test_adding_again_replaces(source):
    filled(source).add(IDS[:1], [one(text="new")], np.float32([[0, -1]]))
    pool = source.fetch(Query(text="?", embedding=[0.0, -1.0]), 1)
    assert (pool.document_ids, pool.texts, len(source.content_ids())) == (("x",), ("new",), 5)


def test_removing_leaves_the_others(source):
    filled(source).remove([*IDS[1:3], "00000000-0000-4000-8000-00000000dead"])
    assert source.content_ids() == {IDS[0], IDS[3], IDS[4]}
    source.remove([])
    assert len(source.fetch(QUERY, 10)) == 3


def test_points_of_others_are_not_ours(folder):
    config = edge.EdgeConfig(edge.EdgeVectorParams(size=2, distance=edge.Distance.Dot))
    shard = edge.EdgeShard.create(str(folder), config)
    theirs = [edge.Point(7, [1.0, 0.0], {"text": "theirs"})]
    shard.update(edge.UpdateOperation.upsert_points(theirs))
    with filled(EdgeSource(shard, folder=folder)) as source:
        assert source.content_ids() == set(IDS)
        assert source.fetch(QUERY, 10).document_ids.count("7") == 1


def test_more_numbers_than_an_update_takes_and_more_ids_than_a_page(source, monkeypatch):
    monkeypatch.setattr("sift_core.candidates.qdrant_edge_writing.NUMBERS_AN_UPDATE", 5)
    monkeypatch.setattr("sift_core.candidates.qdrant_edge_writing.IDS_A_PAGE", 2)
    filled(source)
    assert source.content_ids() == set(IDS)
    nearest = edge.Query.Nearest([1.0, 0.0], source._store.reader.vector_name)
    hits = source._store.shard.query(edge.QueryRequest(10, query=nearest))
    assert sorted(hit.version for hit in hits) == [0, 0, 1, 1, 2]  # three updates


def test_nothing_is_added_before_preparing(source):
    with pytest.raises(InvalidInputError, match="is not there yet; call `prepare` first"):
        source.add(IDS, DOCUMENTS, EMBEDDINGS)
    source.remove(IDS)
    source.complete()


def test_the_embedder_is_kept_beside_the_shard(folder):
    with EdgeSource.open(folder) as source:
        assert source.embedder_name is None
        filled(source)
        assert source.embedder_name == "a"
    with EdgeSource.open(folder) as source:
        assert source.embedder_name == "a"
        source.prepare(embedder_name="a", dimension=2)
        with pytest.raises(InvalidInputError, match="was embedded by 'a', not by 'b'"):
            source.prepare(embedder_name="b", dimension=2)
        with pytest.raises(InvalidInputError, match="embedded by 'b', the store by 'a'"):
            source.fetch(Query(text="?", embedding=[1.0, 0.0], embedder_name="b"), 1)
        assert len(source.content_ids()) == 5
    with pytest.raises(InvalidInputError, match="was embedded by 'a', not by 'b'"):
        EdgeSource.open(folder, embedder_name="b")
    EdgeSource.open(folder, embedder_name="a").close()


def test_a_shard_without_a_folder_can_keep_no_name(folder):
    config = edge.EdgeConfig(edge.EdgeVectorParams(size=2, distance=edge.Distance.Cosine))
    shard = edge.EdgeShard.create(str(folder), config)
    with pytest.raises(
        InvalidInputError, match=r"pass its `folder`, open it with EdgeSource\.open"
    ):
        EdgeSource(shard).prepare(embedder_name="a", dimension=2)
    filled(EdgeSource(shard, embedder_name="a"))
    with pytest.raises(InvalidInputError, match="was embedded by 'a', not by 'b'"):
        EdgeSource(shard, embedder_name="a").prepare(embedder_name="b", dimension=2)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff", b'{"embedder_name": 3}'])
def test_a_damaged_name_is_not_overlooked(folder, content):
    EdgeSource.open(folder).prepare(embedder_name="a", dimension=2)
    (folder / "sift.json").write_bytes(content)
    with pytest.raises((CandidateSourceError, InvalidInputError), match=r"sift\.json"):
        EdgeSource.open(folder)


def test_a_name_that_was_being_written_when_the_process_died(folder):
    folder.mkdir()
    (folder / "sift.json.new").write_text('{"embedder_na')
    with EdgeSource.open(folder) as source:
        filled(source)
    assert json.loads((folder / "sift.json").read_text()) == {"embedder_name": "a"}
    assert not (folder / "sift.json.new").exists()


@pytest.mark.parametrize("left", [{"wal"}, {"wal", "segments"}, {"wal", "edge_config.json"}])
def test_a_shard_that_was_being_created_when_the_process_died(folder, left):
    with EdgeSource.open(folder) as source:
        source.prepare(embedder_name="a", dimension=2)
    shutil.rmtree(folder / "segments")
    (folder / "segments").mkdir()
    for path in [path for path in folder.iterdir() if path.name not in left]:
        path.rmdir() if path.is_dir() else path.unlink()
    (folder / ".atomicwriteTL9feQ").write_text("{")  # the engine's own temporary file
    with filled(EdgeSource.open(folder)) as source:
        assert len(source.fetch(QUERY, 10)) == 5


@pytest.mark.parametrize("is_empty", [True, False])
def test_refuses_another_dimension(source, is_empty):
    source.prepare(embedder_name="a", dimension=2)
    if not is_empty:
        filled(source)
    with pytest.raises(InvalidInputError, match=r"vectors of 3 numbers .* expected dim: 2, got 3"):
        source.prepare(embedder_name="a", dimension=3)
    with pytest.raises(InvalidInputError, match=r"vectors of 3 numbers .* expected dim: 2, got 3"):
        source.add(IDS[:1], DOCUMENTS[:1], np.ones((1, 3)))
    assert len(source.content_ids()) == (0 if is_empty else 5)


@pytest.mark.parametrize(
    ("ids", "documents", "embeddings", "message"),
    [
        (IDS[:2], [one()], [[1.0, 0.0]], "3 `content_ids` for 2 documents"),
        (
            IDS[:1],
            [one()],
            [[1.0, 0.0]] * 2,
            r"one row for each of 2 documents, got shape \(3, 2\)",
        ),
        (["x"], [one()], [[1.0, 0.0]], "`content_ids` must be UUIDs"),
        ([5], [one()], [[1.0, 0.0]], "`content_ids` must be UUIDs"),
        (IDS[:1], [one()], [[np.nan, 0.0]], "`embeddings` must be finite"),
        (IDS[:1], [one()], [[0.0, 0.0]], "'x' must have a length .*, got 0; scale"),
        (IDS[:1], [one()], [[1e-4, 0.0]], "'x' must have a length .*, got 0.0001; scale"),
        (IDS[:1], [one()], [[1e200, 0.0]], r"'x' must have a length .*, got inf; scale"),
        (IDS[:1], [one(metadata={"text": 1})], [[1.0, 0.0]], "must not have the key 'text'"),
        (IDS[:1], [one(metadata={"a": object()})], [[1.0, 0.0]], "'x' cannot be stored"),
        (IDS[:1], [one(metadata={"a": np.inf})], [[1.0, 0.0]], "'x' cannot be stored"),
        (IDS[:1], [one(metadata={"a": {1: 2}})], [[1.0, 0.0]], "'x' cannot be stored"),
        (IDS[:1], [one(text="\udc80")], [[1.0, 0.0]], "'x' cannot be stored"),
        (IDS[:1], [one(metadata={"a": [2**64]})], [[1.0, 0.0]], "'x' holds 18446744073709551616"),
        (IDS[:1], [one(metadata=nested(64))], [[1.0, 0.0]], "'x' must be nested at most 64"),
    ],
)
def test_what_would_not_come_back_is_refused_before_anything_is_written(
    source, ids, documents, embeddings, message
):
    filled(source)
    first = "00000000-0000-4000-8000-0000000000ff"
    with pytest.raises(InvalidInputError, match=message):
        source.add([first, *ids], [one(), *documents], np.array([[1.0, 0.0], *embeddings]))
    assert source.content_ids() == set(IDS)


def in_subprocess(script, *arguments):
    """Start a script that ends in whatever way, with `source` prepared in a folder."""
    head = (
        "import os, resource, signal, sys\n"
        "import numpy as np\n"
        "from sift_core.candidates.qdrant_edge_shard import EdgeSource\n"
        "from sift_core.types import Document\n"
        "source = EdgeSource.open(sys.argv[1])\n"
        "source.prepare(embedder_name='a', dimension=2)\n"
        "def key(i): return f'00000000-0000-4000-8000-{i:012d}'\n"
        "def document(i, **m): return Document(document_id=str(i), text=f'{i}', metadata=m)\n"
        "def add(numbers, **m):\n"
        "    e = np.array([[1.0, i + 1.0] for i in numbers])\n"
        "    source.add([key(i) for i in numbers], [document(i, **m) for i in numbers], e)\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", head + script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_what_the_process_was_killed_after_is_there(folder):
    value = nested(62)
    script = (
        f"add(range(300), value={value!r}, big=2**64 - 1, small=-2**63)\n"
        "source.remove([key(i) for i in range(100)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with in_subprocess(script, folder) as process:
        assert process.wait(60) == -9
    with EdgeSource.open(folder) as source:
        assert source.embedder_name == "a"
        pool = source.fetch(QUERY, 500)
        assert sorted(map(int, pool.document_ids)) == list(range(100, 300))
        assert pool.metadata[0] == {"value": value, "big": 2**64 - 1, "small": -(2**63)}


def test_killed_at_any_moment_it_opens_and_holds_what_was_acknowledged(folder):
    rng = np.random.default_rng(0)
    script = (
        "for i in range(int(sys.argv[2]), 10**6, 5):\n"
        "    add(range(i, i + 5))\n"
        "    print(i + 5, flush=True)\n"
        "    if i % 50 == 0: source.complete()\n"
    )
    n_acknowledged = 0
    for _ in range(6):
        with in_subprocess(script, folder, n_acknowledged) as process:
            process.stdout.readline()
            time.sleep(0.05 * rng.random())
            process.kill()
            rest = process.stdout.read().split()
        n_acknowledged = int(rest[-1]) if rest else n_acknowledged
        with EdgeSource.open(folder) as source:
            found = {int(key[-12:]) for key in source.content_ids()}
            assert found >= set(range(n_acknowledged))
            assert len(found) <= n_acknowledged + 5
            assert len(source.fetch(QUERY, 10**6)) == len(found)
            n_acknowledged = len(found) // 5 * 5
    assert n_acknowledged > 0


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on the size of files")
def test_a_full_disk_is_an_error_with_advice(folder):
    script = (
        "add(range(5))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))\n"
        "try:\n"
        "    for i in range(0, 60000, 1000): add(range(i, i + 1000), page='x' * 1000)\n"
        "    source.complete()\n"
        "except Exception as error: print(type(error).__name__, error)\n"
        "sys.stdout.flush(); os._exit(0)\n"
    )
    with in_subprocess(script, folder) as process:
        output = process.communicate(timeout=120)[0]
    assert output.startswith("CandidateSourceError could not ")
    assert "is the disk full or read-only" in output
    assert str(folder) in output


def without_log(folder, copy):
    """Open a copy of a shard that lacks the log, as if all else had been written to disk."""
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("wal"))
    return EdgeSource.open(copy)


@pytest.mark.parametrize("how", ["complete", "close", "many", "many removed"])
def test_the_segments_are_flushed(folder, tmp_path, how, monkeypatch):
    source = filled(EdgeSource.open(folder))
    with without_log(folder, tmp_path / "before") as before:
        assert before.content_ids() == set()
    if how in ("complete", "close"):
        getattr(source, how)()
    elif how == "many":
        monkeypatch.setattr("sift_core.candidates.qdrant_edge_writing.DOCUMENTS_A_FLUSH", 10)
        source.add(IDS, DOCUMENTS, EMBEDDINGS)
    else:
        monkeypatch.setattr("sift_core.candidates.qdrant_edge_writing.DOCUMENTS_A_FLUSH", 7)
        source.remove([IDS[0], "00000000-0000-4000-8000-00000000dead"])
    with without_log(folder, tmp_path / "after") as after:
        assert after.content_ids() == set(IDS[1:] if how == "many removed" else IDS)
    source.close()


def test_indexing_documents_twice_embeds_them_once(folder):
    embedder = HashingEmbedder(dimension=16)
    with EdgeSource.open(folder) as source:
        first = index_documents(source, DOCUMENTS, embedder, batch_size=2, progress=False)
    with EdgeSource.open(folder) as source:
        second = index_documents(source, DOCUMENTS[1:], embedder, progress=False)
        query = Query(text="?", embedding=embedder.embed_query("text 3 🙂"))
        pool = source.fetch(query, 5)
    assert (first.n_added, second.n_added, second.n_deleted) == (5, 0, 1)
    assert pool.document_ids[0] == "книга.md#3"
    assert sorted(pool.document_ids) == [f"книга.md#{i}" for i in range(1, 5)]
