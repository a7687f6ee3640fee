"""Adding to a Faiss index and removing from it, whatever kind it is."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sift_core.documents import index_documents
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources import FaissSource
from sift_core.sources.content_ids import content_id
from sift_core.testing import HashingEmbedder
from sift_core.types import Document

faiss = pytest.importorskip("faiss")

from tests.sources.faiss_corpus import (  # noqa: E402  # needs faiss
    NAME,
    D,
    add,
    built,
    by_words,
    contents,
    document,
    documents,
    elsewhere,
    query,
    remove,
    saved,
    vectors,
)
from tests.sources.test_faiss_index import recorded  # noqa: E402

# Every way in which an index takes ids and lets go of entries.
KINDS = {
    "Flat": "Flat",
    "IDMap": "IDMap,Flat",
    "IVF": "IVF4,Flat",
    "rotated IVF": "RR8,IVF4,Flat",
    "IDMap of IVF": "IDMap2,IVF4,Flat",
    "HNSW": "HNSW8,Flat",
    "refined": "SQ8,RFlat",
}
REMOVES = {"IDMap", "IVF", "rotated IVF"}


def empty(description):
    """Return a trained index without vectors whose searches see all that it holds."""
    index = faiss.index_factory(D, description, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors(300))
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is not None:
        ivf.nprobe = ivf.nlist
    if isinstance(index, faiss.IndexRefine):
        index.k_factor = 20
    return index


def source_of(index, kept=(), **options):
    return FaissSource(index, kept, embedder_name=NAME, **options)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def source(kind):
    """A source with nothing in it yet."""
    return source_of(empty(KINDS[kind]))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "index"


def nearest(among, n):
    """Return the numbers nearest to `elsewhere()` by a dense product."""
    among = sorted(among)
    return [among[i] for i in np.argsort(-vectors(max(among) + 1)[among] @ elsewhere().embedding)][
        :n
    ]


def found(source, n, **options):
    return [m["number"] for m in source.fetch(elsewhere(), n, **options).metadata]


def test_any_order_of_writes_leaves_what_it_says(source, folder):
    source.save(folder)
    source = FaissSource.load(folder)
    generator = random.Random(3)
    expected = {}
    for step in range(40):
        numbers = generator.sample(range(60), generator.randint(1, 8))
        action = generator.choice(["add", "add", "remove", "flush", "load"])
        if action == "add":
            add(source, numbers, note=f" step {step}")
            expected |= dict.fromkeys(numbers, step)
        elif action == "remove":
            remove(source, numbers)
            expected = {i: at for i, at in expected.items() if i not in numbers}
        elif action == "flush":
            source.flush()
        else:
            source.complete()
            source = FaissSource.load(folder)
        if not expected:
            continue
        pool = source.fetch(elsewhere(), 1000)
        texts = {
            metadata["number"]: text
            for metadata, text in zip(pool.metadata, pool.texts, strict=True)
        }
        assert texts == {i: document(i, f" step {at}").text for i, at in expected.items()}
        assert contents(source) == sorted(expected)
        assert found(source, 5) == nearest(expected, 5)


def test_a_users_own_index_and_documents_are_taken_over():
    kept = {3: document(0), 7: document(1), 99: document(50)}
    source = source_of(built("IDMap,Flat", 2, ids=[3, 7]), kept)
    add(source, [2])
    source.remove([content_id(document(0))])
    assert contents(source) == [1, 2]
    assert sorted(kept) == [3, 7, 99]  # the caller's own
    assert source.content_ids() == {content_id(document(1)), "content-2"}


def test_vectors_without_documents_count_as_deleted_and_keep_their_ids():
    index = built("IDMap2,Flat", 3, ids=[0, 1, 9])
    source = source_of(index, dict(enumerate([document(0), document(1)])) | {9: document(2)})
    add(source, [3])
    index.add_with_ids(vectors(5)[4:], np.array([30]))  # as after an interruption
    assert contents(source) == [0, 1, 2, 3]
    add(source, [5])
    assert contents(source) == [0, 1, 2, 3, 5]


def test_equal_content_ids_are_replaced(source):
    add(source, range(10))
    source.add(["content-3"], [document(3, " new")], vectors(12)[11:])
    assert source.fetch(query(11), 1).texts == (document(3, " new").text,)
    assert len(source.fetch(elsewhere(), 100)) == 10
    source.add(["a", "b", "a"], documents(3), vectors(3))
    assert len(source.fetch(elsewhere(), 100)) == 12  # the last of equal ones in one call
    assert source.documents()["a"] == document(2)


@pytest.mark.parametrize("n_left", [1, 30])
def test_deleted_documents_are_gone_and_never_make_a_list_short(kind, source, n_left):
    add(source, range(300))
    remove(source, [*range(300 - n_left), 5000])
    left = range(300 - n_left, 300)
    assert contents(source) == list(left)
    assert source.content_ids() == {f"content-{i}" for i in left}
    assert source._contents.index.ntotal == (n_left if kind in REMOVES else 300)
    for n in (1, 5, n_left, 200):
        assert found(source, n) == nearest(left, n)
    even = [i for i in left if i % 2 == 0]
    assert found(source, 5, filter=lambda m: m["even"]) == (nearest(even, 5) if even else [])


def test_a_few_deleted_documents_cost_no_second_search():
    index = faiss.IndexHNSWFlat(D, 16, faiss.METRIC_INNER_PRODUCT)
    source = source_of(index)
    add(source, range(300))
    remove(source, range(0, 300, 30))
    searches = recorded(index)
    assert len(source.fetch(elsewhere(), 20)) == 20
    assert searches == [(1, 30)]


def test_flushing_writes_only_where_something_changed(folder):
    source = saved(folder, 3)
    before = sorted(folder.iterdir())
    add(source, [])
    source.remove([])
    source.flush()
    assert sorted(folder.iterdir()) == before
    add(source, [3])
    assert contents(FaissSource.load(folder)) == [0, 1, 2]
    source.flush()
    assert contents(FaissSource.load(folder)) == [0, 1, 2, 3]


def test_indexing_keeps_the_embedders_name_and_takes_what_somebody_else_saved_as_indexed(folder):
    embedder = HashingEmbedder(D)
    FaissSource(empty("Flat"), []).save(folder)
    index_documents(FaissSource.load(folder), documents(20), embedder, progress=False)
    assert FaissSource.load(folder).embedder_name == embedder.name
    FaissSource(built("Flat", 3), documents(3), embedder_name=embedder.name).save(folder)
    report = index_documents(FaissSource.load(folder), [document(1)], embedder, progress=False)
    assert (report.n_unchanged, report.n_deleted) == (1, 2)


@pytest.mark.parametrize("description", ["NSG8,Flat", "IDMap2,NSG8,Flat", "IVF4,Flat"])
def test_from_an_index_that_cannot_grow_documents_are_removed_and_what_it_refuses_is_not_there(
    description,
):
    index = built(description, 150, ids=range(150) if description.startswith("ID") else None)
    if description.startswith("IVF"):
        index.nprobe = 4
        index.make_direct_map()  # an array, which takes no further entries
    source = source_of(index, documents(150))
    with pytest.raises(CandidateSourceError, match=r"could not change .*load the source"):
        add(source, [150])
    assert contents(source) == list(range(150))
    assert len(source.content_ids()) == 150
    if not description.startswith("ID"):
        source.remove([content_id(document(i)) for i in range(60)])
        assert contents(source) == list(range(60, 150))


def by_vector(source):
    return sorted(metadata["number"] for metadata in source.fetch(elsewhere(), 500).metadata)


READS = {"a vector": by_vector, "a word": lambda source: by_words(source, "漢字")}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("kind", ["IDMap", "IVF", "HNSW"], indirect=True)
def test_readers_see_the_state_before_or_after_a_write(source, read):
    """Pairs are added and removed together, so nobody ever sees one of them alone."""
    add(source, range(20))
    written = threading.Event()

    def read_until_the_end():
        is_last = False
        while not is_last:
            is_last = written.is_set()
            numbers = set(read(source))
            assert numbers >= set(range(20))
            assert {i ^ 1 for i in numbers} == numbers

    with ThreadPoolExecutor(3) as executor:
        readers = [executor.submit(read_until_the_end) for _ in range(3)]
        try:
            for i in range(20, 140, 2):
                add(source, [i, i + 1])
                if i % 4 == 0:
                    remove(source, [i, i + 1])
        finally:
            written.set()
        assert all(reader.result() is None for reader in readers)


def test_writers_of_one_source_take_turns(folder):
    source = saved(folder)
    with ThreadPoolExecutor(4) as executor:
        list(executor.map(lambda i: add(source, [2 * i, 2 * i + 1]), range(12)))
    source.complete()
    assert contents(source) == contents(FaissSource.load(folder)) == list(range(24))


WRITES = {
    "remove": lambda source, folder: remove(source, [0]),
    "save": lambda source, folder: source.save(folder / "copy"),
    "prepare": lambda source, folder: source.prepare(embedder_name=NAME, dimension=D),
    "complete": lambda source, folder: source.complete(),
}


@pytest.mark.parametrize("call", WRITES)
def test_a_filter_that_would_wait_for_a_writer_that_waits_for_it_is_refused(folder, call):
    source = saved(folder, 5)
    writer = threading.Thread(target=add, args=(source, [5]))

    def keep(metadata):
        if writer.ident is None:
            writer.start()
        with pytest.raises(InvalidInputError, match="within a filter; write after the fetch"):
            WRITES[call](source, folder)
        # What reads is welcome, whether the writer waits already or not.
        return len(source.content_ids()) == 5 and len(source.fetch(elsewhere(), 1)) == 1

    with ThreadPoolExecutor(1) as executor:
        pool = executor.submit(source.fetch, elsewhere(), 3, filter=keep).result(timeout=60)
    assert len(pool) == 3
    writer.join(60)
    assert contents(source) == list(range(6))


@pytest.mark.parametrize(
    ("contents_", "rows", "message"),
    [
        (["a"], np.ones((2, D)), "one row a document, got 1, 1 and 2"),
        (["a", "b"], np.ones((1, D)), "got 2, 1 and 1"),
        (["a"], np.ones((1, 3)), "must have 8 columns like the index, got 3"),
        (["a"], np.full((1, D), np.nan), "must be finite"),
        (["a"], np.full((1, D), 1e300), "float32` must be finite"),
        (["a"], np.ones(D), "2 dimension"),
        ([7], np.ones((1, D)), "`content id` must be a string"),
    ],
)
def test_refuses_what_does_not_fit_together(contents_, rows, message):
    source = source_of(built("Flat", 3), documents(3))
    with pytest.raises(InvalidInputError, match=message):
        source.add(contents_, documents(1), rows)
    broken = Document(document_id="x", text="y", metadata={"set": {1}})
    with pytest.raises(InvalidInputError, match="JSON"):
        source.add(["a"], [broken], np.ones((1, D)))
    assert contents(source) == [0, 1, 2]


def prepared(index, kept=(), **options):
    source = FaissSource(index, kept, **options)
    source.prepare(embedder_name=NAME, dimension=D)
    return source


UNPREPARED = {
    "another embedder": (
        lambda: prepared(empty("Flat"), embedder_name="model-b"),
        r"holds vectors of 'model-b'.*mixed.*'model-a'",
    ),
    "an embedder that is not known": (
        lambda: prepared(built("Flat", 3), documents(3)),
        "3 vectors of an embedder that is not known",
    ),
    "another dimension": (
        lambda: prepared(faiss.IndexFlatIP(9)),
        r"index has 9 dimensions, .* makes 8",
    ),
    "untrained IVF": (lambda: prepared(faiss.index_factory(D, "IVF4,Flat")), "call its `train`"),
    "untrained codes": (lambda: prepared(faiss.index_factory(D, "PQ4x4,RFlat")), "not trained"),
}


@pytest.mark.parametrize("what", UNPREPARED)
def test_an_index_that_does_not_suit_is_refused(what):
    call, message = UNPREPARED[what]
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_words_of_an_index_that_its_caller_has_grown_are_counted_again():
    index, texts = built("Flat", 3), documents(3)
    source = FaissSource(index, texts)
    assert by_words(source, "漢字") == [0, 1, 2]
    texts.append(document(3))
    index.add(vectors(4)[3:])
    assert by_words(source, "漢字", "3") == [3]
    assert by_words(source, "漢字") == [0, 1, 2, 3]
