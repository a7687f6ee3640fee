import copy
import pickle

import numpy as np
import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.runnables import ConfigurableField
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_sift import SIFTRetriever
from sift_core import ContextSelector, InvalidInputError, RBFKernel, SIFTSelector, select


def numbers(documents):
    return [document.metadata["number"] for document in documents]


def near_duplicates(documents):
    return sum(number < 4 for number in numbers(documents))


def test_the_choice_equals_select_on_the_stored_vectors(
    make_vector_store, documents, stored_vectors_by_id, embeddings, question
):
    store = make_vector_store(documents)
    vectors = stored_vectors_by_id(store)
    query = np.array(embeddings.embed_query(question))
    plain = store.similarity_search(question, k=8)
    nearest = [document.id or document.metadata["_id"] for document in plain]
    expected = select(query, np.array([vectors[each] for each in nearest]), 5)

    found = SIFTRetriever(vectorstore=store, k=5, fetch_k=8).invoke(question)

    assert [each.id for each in found] == [nearest[i] for i in expected.positions]
    explanations = [each.metadata["sift"] for each in found]
    variances = [each["variance_before"] for each in explanations]
    np.testing.assert_allclose(variances, expected.variances[:-1], rtol=1e-6)
    after = [each["variance_after"] for each in explanations]
    np.testing.assert_allclose(after, expected.variances[1:], rtol=1e-6)
    np.testing.assert_allclose([e["gain"] for e in explanations], expected.gains, atol=1e-6)
    cosines = [query @ vectors[each.id] / np.linalg.norm(vectors[each.id]) for each in found]
    np.testing.assert_allclose(
        [e["similarity"] for e in explanations], cosines / np.linalg.norm(query), atol=1e-6
    )


def test_the_explanation_by_hand(embeddings):
    # λ = 0.25: k(q, q) = 1, and a document equal to the question has k(q, x) = 1, so the first
    # gain is 1² / (1 + 0.25) = 0.8, which leaves 0.2 of variance.
    store = InMemoryVectorStore.from_texts(["the very question"], embeddings)
    (found,) = SIFTRetriever(vectorstore=store, noise_variance=0.25).invoke("the very question")
    assert found.metadata["sift"] == pytest.approx(
        {
            "similarity": 1.0,
            "gain": 0.8,
            "variance_before": 1.0,
            "variance_after": 0.2,
            "redundancy": None,
            "score": 1.0,  # this store's is the cosine
        }
    )


def test_documents_are_not_embedded_again(make_vector_store, documents, embeddings, question):
    retriever = SIFTRetriever(vectorstore=make_vector_store(documents), k=3)
    embeddings.queries, embeddings.document_batches = 0, []
    retriever.invoke(question)
    assert (embeddings.queries, embeddings.document_batches) == (1, [])


async def test_documents_are_not_embedded_again_asynchronously(
    make_vector_store, documents, embeddings, question
):
    retriever = SIFTRetriever(vectorstore=make_vector_store(documents), k=3)
    embeddings.queries, embeddings.document_batches = 0, []
    await retriever.ainvoke(question)
    assert (embeddings.queries, embeddings.document_batches) == (1, [])


def test_near_duplicates_are_avoided(make_store, documents, question):
    store = make_store(documents)
    plain = store.similarity_search(question, k=4)
    chosen = SIFTRetriever(vectorstore=store, k=4).invoke(question)
    assert near_duplicates(plain) >= 3
    assert near_duplicates(chosen) < near_duplicates(plain)


def test_k_may_be_given_for_one_call(make_store, documents, question):
    retriever = SIFTRetriever(vectorstore=make_store(documents), k=5)
    assert len(retriever.invoke(question, k=2)) == 2
    assert len(retriever.invoke(question)) == 5


def test_fetch_k_may_be_given_for_one_call(make_store, documents, question):
    store = make_store(documents)
    plain = numbers(store.similarity_search(question, k=3))
    found = SIFTRetriever(vectorstore=store).invoke(question, k=3, fetch_k=3)
    assert sorted(numbers(found)) == sorted(plain)


def test_a_filter_restricts_the_candidates(make_store, documents, question, first_half):
    store = make_store(documents)
    retriever = SIFTRetriever(vectorstore=store, k=12, filter=first_half(store))
    assert sorted(numbers(retriever.invoke(question))) == list(range(6))


def test_a_filter_may_be_given_or_lifted_for_one_call(make_store, documents, question, first_half):
    store = make_store(documents)
    plain = SIFTRetriever(vectorstore=store, k=12)
    assert len(plain.invoke(question, filter=first_half(store))) == 6
    restricted = SIFTRetriever(vectorstore=store, k=12, filter=first_half(store))
    assert len(restricted.invoke(question, filter=None)) == 12


def test_a_filter_that_matches_nothing_gives_nothing(make_store, documents, question, first_half):
    store = make_store(documents[6:])
    assert SIFTRetriever(vectorstore=store, filter=first_half(store)).invoke(question) == []


async def test_async_equals_sync(make_store, documents, question, first_half):
    store = make_store(documents)
    retriever = SIFTRetriever(vectorstore=store, k=5)
    assert await retriever.ainvoke(question) == retriever.invoke(question)
    options = {"k": 3, "fetch_k": 4, "filter": first_half(store)}
    assert await retriever.ainvoke(question, **options) == retriever.invoke(question, **options)


async def test_many_questions_at_once_equal_one_after_another(make_store, documents):
    retriever = SIFTRetriever(vectorstore=make_store(documents), k=4)
    questions = [document.page_content for document in documents]
    expected = [retriever.invoke(each) for each in questions]
    assert await retriever.abatch(questions) == expected
    assert retriever.batch(questions) == expected


async def test_the_event_loop_is_not_blocked(
    make_store, documents, embeddings, question, wait_for_the_loop
):
    class WaitingRetriever(SIFTRetriever):
        def _choose(self, *arguments):
            wait_for_the_loop()
            return super()._choose(*arguments)

    store = make_store(documents)
    embed = embeddings.embed_query
    embeddings.embed_query = lambda text: wait_for_the_loop() or embed(text)
    assert len(await WaitingRetriever(vectorstore=store, k=3).ainvoke(question)) == 3


def test_id_content_and_metadata_are_kept(make_store, documents, question):
    by_number = {document.metadata["number"]: document for document in documents}
    for found in SIFTRetriever(vectorstore=make_store(documents), k=12).invoke(question):
        original = by_number[found.metadata["number"]]
        assert (found.id, found.page_content) == (original.id, original.page_content)
        assert original.metadata.items() <= found.metadata.items()


def test_the_store_is_not_modified(make_store, documents, question):
    store = make_store(documents)
    before = copy.deepcopy(store.similarity_search(question, k=12))
    for found in SIFTRetriever(vectorstore=store, k=12).invoke(question):
        found.metadata["tags"].append("mine")
        found.page_content = "mine"
    assert store.similarity_search(question, k=12) == before


def test_an_empty_store_gives_nothing(make_store, question):
    assert SIFTRetriever(vectorstore=make_store([])).invoke(question) == []


async def test_an_empty_store_gives_nothing_asynchronously(make_store, question):
    assert await SIFTRetriever(vectorstore=make_store([])).ainvoke(question) == []


def test_one_document_is_found(make_store, documents, question):
    (found,) = SIFTRetriever(vectorstore=make_store(documents[:1])).invoke(question)
    assert found.page_content == documents[0].page_content


def test_k_above_the_number_of_documents_gives_them_all(make_store, documents, question):
    found = SIFTRetriever(vectorstore=make_store(documents), k=50).invoke(question)
    assert sorted(numbers(found)) == list(range(12))


@pytest.mark.parametrize("number", [8, 9])
def test_unicode_passes_unchanged(make_store, documents, number):
    text = documents[number].page_content
    found = SIFTRetriever(vectorstore=make_store(documents), k=1).invoke(text)
    assert found[0].page_content == text


def test_a_nan_in_the_question_is_invalid_input(make_store, documents, embeddings, question):
    retriever = SIFTRetriever(vectorstore=make_store(documents))
    embeddings.embed_query = lambda text: [float("nan")] * 64
    with pytest.raises(InvalidInputError, match="must be finite"):
        retriever.invoke(question)


def test_a_nan_in_a_document_is_invalid_input(make_text_only, documents, embeddings, question):
    retriever = SIFTRetriever(vectorstore=make_text_only(documents))
    embeddings.embed_documents = lambda texts: [[float("nan")] * 64 for _ in texts]
    with pytest.raises(InvalidInputError, match="must be finite"):
        retriever.invoke(question)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 0}, "`k` must be an integer >= 1, got 0"),
        ({"fetch_k": 0}, "`fetch_k` must be an integer >= 1, got 0"),
        ({"k": 5, "fetch_k": 4}, "`fetch_k` must be >= `k`, got fetch_k=4 and k=5"),
        ({"noise_variance": 0}, "`noise_variance` must be a finite number > 0"),
        ({"alpha": -1}, "`alpha` must be > 0 or None"),
        ({"kernel": "rbf", "length_scale": 0}, "`length_scale` must be > 0"),
        ({"length_scale": 0.3}, "`length_scale` has no effect"),
        ({"kernel": "linear", "length_scale": 0.3}, "`length_scale` has no effect"),
        ({"kernel": "cubic"}, "'rbf' or 'linear'"),
        ({"k": 4, "search_kwargs": {"k": 3}}, "`k` is 4 and 3 in `search_kwargs`; pass it once"),
        ({"search_kwargs": {"k": 0}}, "`k` must be an integer >= 1, got 0"),
        ({"search_kwargs": {"lambda_mult": 0.5}}, "SIFT has no `lambda_mult`"),
        ({"max_fetch_k": 100}, "`max_fetch_k` must be >= `fetch_k`, got max_fetch_k=100"),
        ({"fetch_k": 12, "max_fetch_k": 0}, "`max_fetch_k` must be an integer >= 1, got 0"),
        ({"async_client": object()}, "`async_client` is for a QdrantVectorStore"),
        ({"fetchk": 3}, "Extra inputs are not permitted"),
    ],
)
def test_a_bad_setting_is_refused_at_construction(make_in_memory, documents, settings, message):
    with pytest.raises(ValueError, match=message):
        SIFTRetriever(vectorstore=make_in_memory(documents), **settings)


def test_a_store_without_a_model_is_refused_at_construction(faiss_class, make_faiss, documents):
    store = make_faiss(documents)
    bare = faiss_class(lambda text: [0.0], store.index, store.docstore, store.index_to_docstore_id)
    with pytest.raises(ValueError, match=r"FAISS\.embeddings is None"):
        SIFTRetriever(vectorstore=bare)


@pytest.mark.parametrize("bad", [{"k": 0}, {"k": 2.5}, {"k": 300}, {"fetch_k": 0}], ids=str)
def test_a_bad_argument_is_refused_in_a_call(make_in_memory, documents, embeddings, question, bad):
    retriever = SIFTRetriever(vectorstore=make_in_memory(documents))
    with pytest.raises(InvalidInputError, match=r"`fetch_k`|`k`"):
        retriever.invoke(question, **bad)
    assert embeddings.queries == 0  # nothing costly was done


@pytest.mark.parametrize(
    ("settings", "selector"),
    [
        ({}, ContextSelector()),
        ({"noise_variance": 0.4}, ContextSelector(noise_variance=0.4)),
        (
            {"kernel": "rbf", "length_scale": 0.6},
            SIFTSelector(kernel=RBFKernel(length_scale=0.6), noise_variance=0.1),
        ),
        ({"kernel": "linear"}, SIFTSelector()),
        ({"kernel": "linear", "noise_variance": 0.5}, SIFTSelector(noise_variance=0.5)),
    ],
    ids=str,
)
def test_settings_reach_the_selector(
    make_in_memory, documents, embeddings, question, settings, selector
):
    retriever = SIFTRetriever(vectorstore=make_in_memory(documents), k=6, **settings)
    texts = [each.page_content.lower() for each in documents]  # copies differ in case alone
    query = np.array(embeddings.embed_query(question))
    expected = selector.select(query, np.array(embeddings.embed_documents(texts)), 6)
    found = retriever.invoke(question)
    assert [each.page_content.lower() for each in found] == [texts[i] for i in expected.positions]
    variances = [each.metadata["sift"]["variance_after"] for each in found]
    np.testing.assert_allclose(variances, expected.variances[1:], rtol=0, atol=1e-6)


def test_alpha_stops_early(make_in_memory, documents, question):
    retriever = SIFTRetriever(vectorstore=make_in_memory(documents), k=12, alpha=0.4)
    assert 0 < len(retriever.invoke(question)) < 12


def test_k_can_be_made_configurable(make_in_memory, documents, question):
    retriever = SIFTRetriever(vectorstore=make_in_memory(documents)).configurable_fields(
        k=ConfigurableField(id="k")
    )
    assert len(retriever.invoke(question, {"configurable": {"k": 2}})) == 2


def test_callbacks_see_the_documents(make_in_memory, documents, question):
    class Recorder(BaseCallbackHandler):
        seen = None

        def on_retriever_end(self, documents, **kwargs):
            self.seen = documents

    recorder = Recorder()
    retriever = SIFTRetriever(vectorstore=make_in_memory(documents))
    found = retriever.invoke(question, {"callbacks": [recorder]}, k=2, verbose=False)
    assert recorder.seen == found
    assert len(found) == 2


def test_a_retriever_survives_pickling(documents, question):
    from langchain_core.embeddings import DeterministicFakeEmbedding

    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_documents(documents)
    retriever = SIFTRetriever(vectorstore=store, k=2)
    assert pickle.loads(pickle.dumps(retriever)).invoke(question) == retriever.invoke(question)


def test_documents_without_ids_work(embeddings, question):
    store = InMemoryVectorStore(embeddings)
    store.add_documents([Document(page_content="plants make sugar")])
    (found,) = SIFTRetriever(vectorstore=store).invoke(question)
    assert found.id in store.store
