import asyncio
import multiprocessing
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sift_core.candidates.qdrant_edge_folder import engine_failures
from sift_core.candidates.qdrant_edge_shard import EdgeSource
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.protocols import BatchCandidateSource, DocumentIndex
from sift_core.types import Query

edge = pytest.importorskip("qdrant_edge")

QUERY = Query(text="?", embedding=[2.0, 0.0])
DIRECTIONS = 20  # points at steps of 9 degrees, so the n-th nearest to (1, 0) is the n-th


def params(size=2, distance=edge.Distance.Cosine, **options):
    return edge.EdgeVectorParams(size=size, distance=distance, **options)


def upsert(shard, *points):
    operation = edge.UpdateOperation.upsert_points([edge.Point(*point) for point in points])
    shard.update(operation)
    return shard


def make(folder, *points, vectors=None, **config):
    shard = edge.EdgeShard.create(str(folder), edge.EdgeConfig(vectors or params(), **config))
    return upsert(shard, *points)


def turned(i):
    angle = np.pi * i / DIRECTIONS
    return [float(np.cos(angle)), float(np.sin(angle))]


def fan(folder, **options):
    """A shard of points in a half circle, with sparse vectors that prefer what is far."""
    points = [
        (
            i,
            {"dense": turned(i), "words": edge.SparseVector([i % 2], [1.0 + i])},
            {"text": str(i), "parity": i % 2},
        )
        for i in range(DIRECTIONS)
    ]
    sparse = {"words": edge.EdgeSparseVectorParams()}
    shard = make(folder, *points, vectors={"dense": params()}, sparse_vectors=sparse)
    return EdgeSource(shard, vector_name="dense", **options)


def texts(pool):
    return [int(text) for text in pool.texts]


def parity(value):
    return edge.Filter(must=[edge.FieldCondition("parity", match=edge.MatchValue(value))])


def by_words(query, n):
    return edge.Prefetch(n, edge.Query.Nearest(edge.SparseVector([1], [1.0]), "words"))


def by_vector(query, n):
    return edge.Prefetch(n, edge.Query.Nearest(query.embedding.tolist(), "dense"))


def by_both(query, n):
    return (by_vector(query, n), by_words(query, n))


def refusal(kind, call):
    """Return the message of the error of ours that a call ends in."""
    with pytest.raises(kind) as info:
        call()
    return str(info.value)


def test_follows_the_protocols(tmp_path):
    source = fan(tmp_path)
    assert isinstance(source, BatchCandidateSource)
    assert isinstance(source, DocumentIndex)


def test_orders_by_the_metric_of_the_shard_and_states_cosines(tmp_path):
    # To (2, 0): (10, 0) has cosine 1 at distance 8, (2, 2) has cosine 0.7071 at distance 2.
    points = [(1, [10.0, 0.0], {"text": "far"}), (2, [2.0, 2.0], {"text": "near"})]
    shard = make(tmp_path, *points, vectors=params(distance=edge.Distance.Euclid))
    pool = EdgeSource(shard).fetch(QUERY, 2)
    assert pool.texts == ("near", "far")
    assert pool.similarities == pytest.approx([0.5**0.5, 1])
    assert pool.embeddings.tolist() == [[2, 2], [10, 0]]
    assert pool.relevance is None


def test_ids_of_both_kinds_become_texts(tmp_path):
    uuid = "5b0b0000-0000-4000-8000-00000000000a"
    shard = make(tmp_path, (uuid, [1.0, 0.0], {"text": "a"}), (7, [0.0, 1.0], {"text": "b"}))
    assert EdgeSource(shard).fetch(QUERY, 2).document_ids == (uuid, "7")


@pytest.mark.parametrize("name", ["", "dense"])
def test_vectors_of_all_kinds_may_stand_beside(tmp_path, name):
    several = edge.MultiVectorConfig(edge.MultiVectorComparator.MaxSim)
    vectors = {name: params(), "other": params(3), "many": params(2, multivector_config=several)}
    beside = {
        "other": [1.0, 2.0, 3.0],
        "many": [[1.0, 0.0], [0.0, 1.0]],
        "words": edge.SparseVector([3], [1.0]),
    }
    shard = make(
        tmp_path,
        (1, {name: [0.0, 1.0], **beside}, {"text": "a"}),
        (2, beside, {"text": "without"}),
        (3, {name: [1.0, 0.0]}, {"text": "alone"}),
        vectors=vectors,
        sparse_vectors={"words": edge.EdgeSparseVectorParams()},
    )
    pool = EdgeSource(shard, vector_name=name).fetch(QUERY, 9)
    assert pool.texts == ("alone", "a")
    assert pool.embeddings.tolist() == [[1, 0], [0, 1]]
    message = refusal(
        InvalidInputError, lambda: EdgeSource(shard, vector_name="title").fetch(QUERY, 1)
    )
    for listed in ("'title'", "'many' (several of 2", "'other' (3 numbers", "'words' (sparse)"):
        assert listed in message
    assert f"{name!r} (2 numbers)" in message


def test_a_sparse_vector_is_no_dense_one(tmp_path):
    source = EdgeSource(fan(tmp_path)._store.shard, vector_name="words")
    message = refusal(InvalidInputError, lambda: source.fetch(QUERY, 1))
    assert "'dense' (2 numbers), 'words' (sparse)" in message
    assert "is `vector_name` right" in message


def test_a_multivector_is_no_dense_one(tmp_path):
    several = edge.MultiVectorConfig(edge.MultiVectorComparator.MaxSim)
    vectors = params(multivector_config=several)
    shard = make(tmp_path, (1, [[1.0, 0.0], [0.0, 1.0]], {"text": "a"}), vectors=vectors)
    message = refusal(CandidateSourceError, lambda: EdgeSource(shard).fetch(QUERY, 1))
    assert "one dense vector of 2 numbers, got shape (2, 2)" in message


@pytest.mark.parametrize("is_empty", [False, True])
def test_another_dimension_is_named_even_where_nothing_is_stored(tmp_path, is_empty):
    points = [] if is_empty else [(1, [1.0, 0.0], {"text": "a"})]
    source = EdgeSource(make(tmp_path, *points))
    long = Query(text="?", embedding=np.ones(3))
    message = refusal(InvalidInputError, lambda: source.fetch(long, 1))
    assert message.startswith("vectors of 3 numbers as '' do not fit the Qdrant Edge shard")
    assert ("no vectors yet" if is_empty else "'' (2 numbers)") in message
    assert "expected dim: 2, got 3" in message
    assert message == refusal(InvalidInputError, lambda: source.fetch_batch([QUERY, long], 1))


@pytest.mark.parametrize("payload", [None, {}, {"txt": "a"}, {"text": None}, {"text": 5}])
def test_a_point_without_text(tmp_path, payload):
    source = EdgeSource(make(tmp_path, (4, [1.0, 0.0], payload)))
    with pytest.raises(CandidateSourceError, match=r"point 4 of .* has no text under 'text'"):
        source.fetch(QUERY, 1)


@pytest.mark.parametrize("filter", [{"parity": 0}, lambda metadata: True, parity])
def test_refuses_what_is_no_filter_of_the_engine(tmp_path, filter):
    with pytest.raises(InvalidInputError, match=r"`filter` must be a qdrant_edge\.Filter, got"):
        fan(tmp_path).fetch(QUERY, 1, filter=filter)


def test_an_empty_answer_to_a_restricted_question_is_an_empty_pool(tmp_path):
    source = fan(tmp_path)
    pool = source.fetch(QUERY, 3, filter=parity(7))
    assert (len(pool), pool.embeddings.shape) == (0, (0, 2))
    strict = EdgeSource(source._store.shard, vector_name="dense", score_threshold=1.5)
    assert len(strict.fetch(QUERY, 3)) == 0


def test_a_shard_without_points_or_without_such_vectors(tmp_path):
    empty = EdgeSource(make(tmp_path / "a"))
    missing = EdgeSource.open(tmp_path / "b")
    vectors = {"": params(), "other": params(3)}
    other = make(tmp_path / "c", (1, {"other": [1.0, 2.0, 3.0]}, {"text": "a"}), vectors=vectors)
    for source in (empty, missing, EdgeSource(other)):
        with pytest.raises(InvalidInputError, match=r"no documents to fetch from in .*add some"):
            source.fetch(QUERY, 1)


def test_a_threshold_leaves_out_what_scores_worse(tmp_path):
    # cos 9°·3 = .891, cos 9°·4 = .809
    pool = fan(tmp_path, score_threshold=0.85).fetch(QUERY, 9)
    assert texts(pool) == [0, 1, 2, 3]


def test_what_is_prefetched_is_ranked_by_the_dense_vectors(tmp_path):
    # The words find the odd points from the back: 19, 17, 15.
    pool = fan(tmp_path, prefetch=by_words).fetch(QUERY, 3)
    assert texts(pool) == [15, 17, 19]
    assert pool.relevance is None


def test_fusion_ranks_what_is_prefetched_and_its_scores_are_the_relevance(tmp_path):
    # Reciprocal ranks with k = 2: first 1/2, second 1/3, third 1/4.
    source = fan(tmp_path, prefetch=by_both, fusion=edge.Fusion.Rrf(k=2))
    pool = source.fetch(QUERY, 3)
    assert set(texts(pool)[:2]) == {0, 19}
    assert texts(pool)[2] in (1, 17)
    np.testing.assert_allclose(pool.relevance, [1 / 2, 1 / 2, 1 / 3], atol=1e-6)
    expected = [np.cos(np.pi * i / DIRECTIONS) for i in texts(pool)]
    np.testing.assert_allclose(pool.similarities, expected, atol=1e-6)


def test_a_formula_ranks_too(tmp_path):
    formula = edge.Formula(edge.Expression.Neg(edge.Expression.Variable("$score")))
    pool = fan(tmp_path, prefetch=by_vector, fusion=formula).fetch(QUERY, 4)
    assert texts(pool) == [3, 2, 1, 0]
    np.testing.assert_allclose(pool.relevance, -pool.similarities, atol=1e-6)


def test_a_filter_holds_for_prefetches(tmp_path):
    source = fan(tmp_path, prefetch=by_both, fusion=edge.Fusion.Rrf(k=2))
    pool = source.fetch(QUERY, 20, filter=parity(1))
    assert sorted(texts(pool)) == list(range(1, 20, 2))


def test_the_prefetch_is_told_the_query_and_the_number(tmp_path):
    asked = []

    def prefetch(query, n):
        asked.append((query, n))
        return [by_vector(query, n)]

    fan(tmp_path, prefetch=prefetch).fetch(QUERY, 7)
    assert asked == [(QUERY, 7)]


def test_what_a_prefetch_raises_comes_through(tmp_path):
    with pytest.raises(ZeroDivisionError):
        fan(tmp_path, prefetch=lambda query, n: 1 / 0).fetch(QUERY, 7)


def test_options_that_do_not_go_together(tmp_path):
    for options, message in (
        ({"fusion": edge.Fusion.Dbsf()}, "`fusion` ranks what `prefetch` finds"),
        ({"include_opposite": True, "prefetch": by_words}, "do not go together"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            fan(tmp_path / message, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"prefetch": lambda query, n: ["words"]},
        {"prefetch": by_words, "fusion": "rrf"},
        {"search_params": {"exact": True}},
    ],
)
def test_objects_of_others_are_refused(tmp_path, options):
    with pytest.raises(InvalidInputError, match="must be qdrant_edge's own objects"):
        fan(tmp_path, **options).fetch(QUERY, 3)


def test_what_the_engine_refuses_is_the_sources_error(tmp_path):
    wrong = edge.Fusion.Rrf(k=2, weights=[1.0])
    source = fan(tmp_path, prefetch=by_both, fusion=wrong)
    message = refusal(CandidateSourceError, lambda: source.fetch(QUERY, 3))
    assert message.startswith("could not search the Qdrant Edge shard: ")
    assert "RRF weights length" in message
    assert "are filter and parameters right?" in message


@pytest.mark.parametrize("shard", [None, "folder", 3])
def test_what_is_no_shard(shard):
    with pytest.raises(InvalidInputError, match=r"EdgeSource\.open opens a folder"):
        EdgeSource(shard)


@pytest.mark.parametrize(
    ("n", "expected"),
    [(1, [0]), (2, [0, 19]), (5, [0, 1, 2, 18, 19]), (20, range(20)), (99, range(20))],
)
def test_half_of_the_candidates_are_nearest_to_the_opposite(tmp_path, n, expected):
    pool = fan(tmp_path, include_opposite=True).fetch(QUERY, n)
    assert texts(pool) == list(expected)
    assert (np.diff(pool.similarities) <= 0).all()


def test_opposites_in_batches_and_under_filters(tmp_path):
    source = fan(tmp_path, include_opposite=True)
    angle = np.radians(40)  # of the odd points, 45, 27 and 171 degrees
    slanted = Query(text="?", embedding=[np.cos(angle), np.sin(angle)])
    pools = source.fetch_batch([QUERY, slanted], 3, filter=parity(1))
    assert [texts(pool) for pool in pools] == [[1, 3, 19], [5, 3, 19]]


@pytest.mark.parametrize("name", ["Euclid", "Manhattan"])
@pytest.mark.parametrize("n", [2, 9])
def test_distances_have_no_opposites(tmp_path, name, n):
    points = [(i, [float(i), 0.0], {"text": "a"}) for i in range(1, 6)]  # 2 is at no distance
    shard = make(tmp_path, *points, vectors=params(distance=getattr(edge.Distance, name)))
    source = EdgeSource(shard, include_opposite=True)
    for _ in range(2):
        with pytest.raises(InvalidInputError, match=r"`include_opposite` needs .* leave it out"):
            source.fetch(QUERY, n)


def test_a_product_of_nothing_is_no_distance(tmp_path):
    source = EdgeSource(make(tmp_path, (1, [0.0, 1.0], {"text": "a"})), include_opposite=True)
    assert source.fetch(QUERY, 2).similarities.tolist() == [0]


def test_products_have_opposites(tmp_path):
    points = [(10 + i, [float(i), 1.0], {"text": str(i)}) for i in range(-4, 5)]
    shard = make(tmp_path, *points, vectors=params(distance=edge.Distance.Dot))
    pool = EdgeSource(shard, include_opposite=True).fetch(QUERY, 4)
    assert texts(pool) == [4, 3, -3, -4]


def test_a_batch_is_what_each_query_alone_gets(tmp_path, corpus):
    points = [
        (i, vector, payload)
        for i, vector, payload in zip(
            corpus.ids, corpus.embeddings.tolist(), corpus.payloads, strict=True
        )
    ]
    source = EdgeSource(make(tmp_path, *points, vectors=params(16)))
    queries = [corpus.query(seed) for seed in range(8)]
    alone = [source.fetch(query, 6).document_ids for query in queries]
    assert len(set(alone)) == 8
    assert [pool.document_ids for pool in source.fetch_batch(queries, 6)] == alone
    awaited = asyncio.run(source.afetch_batch(queries, 6))
    assert [pool.document_ids for pool in awaited] == alone
    assert source.fetch_batch([], 6) == []


@pytest.mark.parametrize("scale", [1e-100, 1e-18, 1e18, 1e100])
def test_a_query_of_any_length_finds_the_same(tmp_path, scale):
    query = Query(text="?", embedding=np.array([3.0, 4.0]) * scale)
    expected = fan(tmp_path).fetch(Query(text="?", embedding=[3.0, 4.0]), 5)
    pool = fan(tmp_path / "again").fetch(query, 5)
    assert pool.texts == expected.texts
    np.testing.assert_allclose(pool.similarities, expected.similarities, atol=1e-6)


def test_more_candidates_than_the_engine_can_count(tmp_path):
    assert len(fan(tmp_path).fetch(QUERY, 2**70)) == DIRECTIONS


def test_after_completion_a_large_shard_is_searched_by_its_graph_or_exactly(tmp_path):
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((3000, 32))
    points = [(i, vector, {"text": str(i)}) for i, vector in enumerate(vectors.tolist())]
    shard = make(
        tmp_path,
        *points,
        vectors=params(32, edge.Distance.Dot),
        optimizers=edge.EdgeOptimizersConfig(indexing_threshold=1),
        hnsw_config=edge.HnswIndexConfig(m=4, ef_construct=8, full_scan_threshold=1),  # poor
    )
    EdgeSource(shard).complete()
    assert shard.info().indexed_vectors_count == 3000
    n_found = {}
    for name, options in (("poor", {}), ("wide", {"hnsw_ef": 500}), ("exact", {"exact": True})):
        source = EdgeSource(shard, search_params=edge.SearchParams(**options))
        n_found[name] = 0
        for seed in range(10):
            query = Query(text="?", embedding=np.random.default_rng([seed]).standard_normal(32))
            nearest = {str(i) for i in np.argsort(-(vectors @ query.embedding))[:10]}
            n_found[name] += len(nearest & set(source.fetch(query, 10).texts))
    assert n_found["exact"] == 100
    assert n_found["poor"] < n_found["wide"] <= 100


def test_a_folder_can_be_open_once(tmp_path):
    make(tmp_path / "shard", (1, [1.0, 0.0], {"text": "a"})).close()
    script = (
        "import sys; from sift_core.candidates.qdrant_edge_shard import EdgeSource\n"
        "try: EdgeSource.open(sys.argv[1])\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    with EdgeSource.open(tmp_path / "shard"):
        here = refusal(CandidateSourceError, lambda: EdgeSource.open(tmp_path / "shard"))
        elsewhere = subprocess.run(
            [sys.executable, "-c", script, tmp_path / "shard"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
    for message in (here, elsewhere):
        assert "open already, here or in another process; close it there" in message
    assert elsewhere.startswith("CandidateSourceError")
    with EdgeSource.open(tmp_path / "shard") as source:
        assert len(source.fetch(QUERY, 1)) == 1


def test_a_source_that_cannot_be_made_gives_its_folder_back(tmp_path):
    make(tmp_path / "shard").close()
    with pytest.raises(InvalidInputError, match="`fusion`") as info:
        EdgeSource.open(tmp_path / "shard", fusion=edge.Fusion.Dbsf())
    EdgeSource.open(tmp_path / "shard").close()
    assert info.value.__traceback__ is not None  # which keeps what was opened alive


def test_a_closed_source_says_so(tmp_path):
    source = fan(tmp_path)
    source.close()
    source.close()
    for call in (
        lambda: source.fetch(QUERY, 1),
        source.content_ids,
        source.complete,
        lambda: source.remove(["5b0b0000-0000-4000-8000-00000000000a"]),
    ):
        message = refusal(CandidateSourceError, call)
        assert message.endswith("it was closed; open it again")


@pytest.mark.parametrize("kind", ["file", "below a file", "others", "client"])
def test_folders_that_hold_no_shard(tmp_path, kind):
    path = tmp_path / "there"
    if kind in ("file", "below a file"):
        path.write_text("x")
        path = path / "below" if kind == "below a file" else path
    elif kind == "others":
        path.mkdir()
        (path / "thesis.tex").write_text("x")
    else:
        qdrant_client = pytest.importorskip("qdrant_client")
        qdrant_client.QdrantClient(path=str(path)).close()
    with pytest.raises((CandidateSourceError, InvalidInputError)) as info:
        EdgeSource.open(path).prepare(embedder_name="a", dimension=2)
    assert str(tmp_path) in str(info.value)
    if kind in ("others", "client"):
        assert "pass a new or empty folder" in str(info.value)


def damaged(folder, pattern, content):
    """Overwrite the files of a closed shard that match a pattern."""
    make(folder, (1, [1.0, 0.0], {"text": "a"})).close()
    paths = list(folder.rglob(pattern))
    assert paths
    for path in paths:
        path.write_bytes(content)
    return folder


def test_a_damaged_folder_says_so(tmp_path):
    folder = damaged(tmp_path / "shard", "edge_config.json", b"{")
    message = refusal(CandidateSourceError, lambda: EdgeSource.open(folder))
    assert message.startswith(f"could not open Qdrant Edge shard {folder}: ")
    assert "are the folder's files whole" in message


def test_the_segments_alone_make_a_shard(tmp_path):
    make(tmp_path / "shard", (1, [1.0, 0.0], {"text": "a"})).close()
    (tmp_path / "shard" / "edge_config.json").unlink()
    with EdgeSource.open(tmp_path / "shard") as source:
        assert source.fetch(QUERY, 2).texts == ("a",)


def test_a_panic_of_the_engine_is_an_error_of_ours(tmp_path, capfd):
    folder = damaged(tmp_path / "shard", "status.dat", b"")
    with pytest.raises(CandidateSourceError, match="are the folder's files whole") as info:
        EdgeSource.open(folder)
    assert not isinstance(info.value.__cause__, Exception)  # Rust's panics are none
    assert "panicked" in capfd.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_what_is_no_failure_comes_through(error):
    with pytest.raises(type(error)), engine_failures("search", "here"):
        raise error


def fetched(source):
    try:
        source.fetch(QUERY, 1)
    except CandidateSourceError as error:
        return str(error)
    return "answered"


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_process_is_refused_rather_than_hung(tmp_path):
    source = fan(tmp_path)
    receiver, sender = multiprocessing.Pipe()
    context = multiprocessing.get_context("fork")
    child = context.Process(target=lambda: sender.send(fetched(source)), daemon=True)
    child.start()
    assert receiver.poll(30)
    assert "opened before this process was forked" in receiver.recv()
    child.join(30)
    assert child.exitcode == 0
    assert fetched(source) == "answered"


def test_every_answer_is_right_while_others_write(tmp_path):
    rng = np.random.default_rng(0)
    still = rng.standard_normal((400, 8))
    still /= np.linalg.norm(still, axis=1, keepdims=True)
    moving = rng.standard_normal((200, 8)).tolist()
    points = [(i, vector, {"text": str(i), "parity": 0}) for i, vector in enumerate(still.tolist())]
    config = edge.EdgeOptimizersConfig(indexing_threshold=1, vacuum_min_vector_number=20)
    shard = make(tmp_path, *points, vectors=params(8), optimizers=config)
    source = EdgeSource(shard, search_params=edge.SearchParams(exact=True))
    stop = time.monotonic() + 2
    n_rounds = 0

    def write():
        nonlocal n_rounds
        while time.monotonic() < stop or n_rounds < 2:
            upsert(
                shard, *((1000 + i, v, {"text": "-", "parity": 1}) for i, v in enumerate(moving))
            )
            shard.update(edge.UpdateOperation.delete_points(list(range(1000, 1150))))
            source.complete()
            n_rounds += 1

    def read(seed):
        query = Query(text="?", embedding=np.random.default_rng([seed]).standard_normal(8))
        nearest = [str(i) for i in np.argsort(-(still @ query.embedding))[:10]]
        answers = []
        while time.monotonic() < stop:
            answers.append(list(source.fetch(query, 10, filter=parity(0)).texts) == nearest)
            time.sleep(0.001)  # the engine lets a writer in only where readers pause
        return answers

    writer = threading.Thread(target=write)
    writer.start()
    with ThreadPoolExecutor(8) as executor:
        answers = list(executor.map(read, range(8)))
    writer.join()
    assert n_rounds >= 2
    assert all(row and all(row) for row in answers)
