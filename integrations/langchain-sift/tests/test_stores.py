"""What holds over each kind of store: candidates with the store's vectors, and vectors by id."""

import contextvars
from pathlib import Path

import numpy as np
import pytest
from langchain_core.documents import Document

from langchain_sift import LangChainEmbedder, SIFTRetriever, VectorStoreSource
from langchain_sift.sources import reader_of
from sift_core import CandidateSource, InvalidInputError, Query, SiftError


@pytest.fixture
def query(embeddings, question):
    return Query(text=question, embedding=LangChainEmbedder(embeddings).embed_query(question))


def test_the_pool_has_the_stores_nearest_in_order(make_store, documents, query, embeddings):
    store = make_store(documents)
    nearest = store.similarity_search(query.text, k=7)
    source = VectorStoreSource(store)
    assert isinstance(source, CandidateSource)
    pool = source.fetch(query, 7)
    found = pool.items
    assert list(pool.texts) == [each.page_content for each in nearest]
    assert list(pool.document_ids) == [each.id for each in found]
    assert [each.metadata for each in found] == [each.metadata for each in nearest]
    assert list(pool.metadata) == [each.metadata for each in found]
    assert pool.relevance is None
    expected = np.array([embeddings.embed_query(text) for text in pool.texts])
    np.testing.assert_allclose(pool.embeddings, expected, atol=1e-6)
    np.testing.assert_allclose(pool.similarities, expected @ query.embedding, atol=1e-6)


def test_the_pool_has_the_stores_own_scores(make_vector_store, documents, query):
    store = make_vector_store(documents)
    expected = {
        document.page_content: score
        for document, score in store.similarity_search_with_score(query.text, k=12)
    }
    pool = VectorStoreSource(store).fetch(query, 12)
    found = dict(zip(pool.texts, pool.scores, strict=True))
    assert found == pytest.approx(expected, abs=1e-6)


async def test_an_empty_store_gives_an_empty_pool_of_the_questions_dimension(
    make_store, query, embeddings, caplog
):
    source = VectorStoreSource(make_store([]))
    embeddings.document_batches = []
    assert source.fetch(query, 5).embeddings.shape == (0, 64)
    assert (await source.afetch(query, 5)).embeddings.shape == (0, 64)
    assert (embeddings.document_batches, caplog.records) == ([], [])


@pytest.mark.parametrize("name", ["k", "fetch_k", "lambda_mult"])
def test_options_that_mean_something_else_are_refused(make_text_only, documents, name):
    with pytest.raises(InvalidInputError, match=f"must not hold \\['{name}'\\]"):
        VectorStoreSource(make_text_only(documents), {name: 3})


async def test_the_callers_context_reaches_the_thread(make_in_memory, documents, query):
    tenant = contextvars.ContextVar("tenant", default="nobody")
    seen = set()

    def keep(document: Document) -> bool:
        seen.add(tenant.get())
        return True

    tenant.set("caller")
    await VectorStoreSource(make_in_memory(documents)).afetch(query, 3, filter=keep)
    assert seen == {"caller"}


async def assert_refused(source, query, error, match, **options):
    with pytest.raises(error, match=match):
        source.fetch(query, 3, **options)
    with pytest.raises(error, match=match):
        await source.afetch(query, 3, **options)


@pytest.mark.parametrize("dimension", [2, 65])
async def test_a_question_of_another_dimension_is_refused(make_store, documents, dimension):
    query = Query(text="?", embedding=np.ones(dimension))
    match = rf"{dimension} (numbers|dimensions)|embedded by one model|is it reachable"
    await assert_refused(VectorStoreSource(make_store(documents)), query, SiftError, match)


async def test_a_question_of_zeros_is_refused(make_store, documents):
    query = Query(text="?", embedding=np.zeros(64))
    source = VectorStoreSource(make_store(documents))
    await assert_refused(source, query, InvalidInputError, "must not be all zero")


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("qdrant", {"half": "first"}),
        ("qdrant", callable),
        ("faiss", "half = first"),
        ("chroma", callable),
        ("in_memory", {"half": "first"}),
    ],
    ids=str,
)
async def test_another_stores_filter_is_refused(request, documents, query, kind, wrong):
    source = VectorStoreSource(request.getfixturevalue(f"make_{kind}")(documents))
    await assert_refused(source, query, SiftError, "filter", filter=wrong)


def test_vectors_by_id_are_those_of_the_store(make_vector_store, documents, question, embeddings):
    store = make_vector_store(documents)
    found = store.similarity_search(question, k=12)  # Qdrant leaves `id` out
    expected = [embeddings.embed_query(each.page_content) for each in found]
    np.testing.assert_allclose(reader_of(store).vectors(found), expected, atol=1e-6)


def test_what_is_not_in_the_store_has_no_vector(make_vector_store, documents):
    store = make_vector_store(documents[:2])
    others = [Document(page_content="a"), Document(page_content="a", id="b"), documents[5]]
    vectors = reader_of(store).vectors([documents[0], *others])
    assert [vector is None for vector in vectors] == [False, True, True, True]


def test_a_changed_text_has_no_vector(make_vector_store, documents):
    # A splitter keeps the metadata, so that a piece has its document's id.
    store = make_vector_store(documents)
    whole = store.similarity_search("plants", k=1)[0]
    piece = Document(id=whole.id, page_content=whole.page_content[:6], metadata=whole.metadata)
    kept, changed = reader_of(store).vectors([whole, piece])
    assert kept is not None
    assert changed is None


def test_the_in_memory_store_refuses_options(make_in_memory, documents, query):
    with pytest.raises(InvalidInputError, match=r"InMemoryVectorStore .* \['score_threshold'\]"):
        VectorStoreSource(make_in_memory(documents), {"score_threshold": 0.5}).fetch(query, 3)


def test_a_line_of_the_guide_lets_chosen_documents_be_written_back(make_vector_store, question):
    """Chroma refuses metadata that is nested."""
    texts = ["plants make sugar from light", "copper conducts electricity", "bread is baked"]
    ids = [f"00000000-0000-0000-0000-{i:012d}" for i in range(len(texts))]
    documents = [
        Document(id=key, page_content=text, metadata={"number": i})
        for i, (key, text) in enumerate(zip(ids, texts, strict=True))
    ]
    store = make_vector_store(documents)
    chosen = SIFTRetriever(vectorstore=store, k=2).invoke(question)
    guide = (Path(__file__).parents[3] / "docs/guides/other-stores.md").read_text("utf-8")
    line = "document.metadata |= " + guide.split("document.metadata |= ")[1].split("```")[0]
    for document in chosen:
        gain = document.metadata["sift"]["gain"]
        exec(line, {"document": document})
        assert document.metadata["sift_gain"] == gain
        flat = {type(value) for value in document.metadata.values()}
        assert flat <= {str, int, float, bool}
    make_vector_store([]).add_documents(chosen)  # another one, of the same kind
