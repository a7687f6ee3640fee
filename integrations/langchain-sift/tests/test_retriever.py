import copy
import json
import pickle

import numpy as np
import pytest
from langchain_classic.retrievers.multi_query import MultiQueryRetriever
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_sift import SIFTRetriever
from sift_core import ContextSelector, InvalidInputError
from sift_core.text_overlap import select_texts


def numbers(documents):
    return [document.metadata["number"] for document in documents]


def test_the_choice_equals_select_on_the_stored_vectors(
    make_vector_store, documents, embeddings, question
):
    store = make_vector_store(documents)
    query = np.array(embeddings.embed_query(question))
    nearest = [each.page_content for each in store.similarity_search(question, k=8)]
    vectors = np.array([embeddings.embed_query(text) for text in nearest])
    expected = select_texts(ContextSelector(), query, vectors, 5, text_of=nearest.__getitem__)
    found = SIFTRetriever(vectorstore=store, k=5, fetch_k=8, words=0).invoke(question)
    assert [each.page_content for each in found] == [nearest[i] for i in expected.positions]
    told = [each.metadata["sift"] for each in found]
    np.testing.assert_allclose([t["variance"] for t in told], expected.variances[1:], rtol=1e-6)
    np.testing.assert_allclose([t["gain"] for t in told], expected.gains, atol=1e-6)
    cosines = vectors[expected.positions] @ query
    np.testing.assert_allclose([t["similarity"] for t in told], cosines, atol=1e-6)


def test_results_that_are_joined_come_out_once(make_vector_store, documents, question):
    retriever = SIFTRetriever(vectorstore=make_vector_store(documents), k=4, fetch_k=8)
    asked = [question, f"{question} Why?", "something else"]
    rewritten = RunnableLambda(lambda _: asked)
    joined = MultiQueryRetriever(retriever=retriever, llm_chain=rewritten).invoke(question)
    found = {each.id for text in asked for each in retriever.invoke(text)}
    assert len(found) > 4
    assert sorted(each.id for each in joined) == sorted(found)
    told = retriever.invoke(question)[0].metadata["sift"]
    assert told == dict(told)
    assert told != {**told, "gain": -1.0}
    assert json.loads(json.dumps(told)) == copy.deepcopy(told) == dict(told)


async def test_queries_are_looked_for_in_place_of_the_question(
    make_vector_store, documents, embeddings, question
):
    store = make_vector_store(documents)
    queries = [question, "something else"]
    vectors = np.array([embeddings.embed_query(text) for text in queries])
    retriever = SIFTRetriever(vectorstore=store, k=4, fetch_k=6, words=0)
    found = retriever.invoke("Both?", queries=queries)
    pools = [store.similarity_search(text, k=6) for text in queries]
    by_rank = [each.page_content for pair in zip(*pools, strict=True) for each in pair]
    texts = list(dict.fromkeys(by_rank))
    rows = np.array([embeddings.embed_query(text) for text in texts])
    expected = select_texts(ContextSelector(), vectors, rows, 4, text_of=texts.__getitem__)
    assert [each.page_content for each in found] == [texts[i] for i in expected.positions]
    awaited = await retriever.bind(queries=queries).ainvoke("Both?")
    assert [each.id for each in awaited] == [each.id for each in found]
    assert retriever.invoke(question, queries=[question]) == retriever.invoke(question)
    with pytest.raises(InvalidInputError, match="must be a list of texts"):
        retriever.invoke(question, queries="one text")
    with pytest.raises(InvalidInputError, match="must be a list of texts, got 5"):
        retriever.invoke(question, queries=5)


async def test_documents_are_not_embedded_again(
    make_vector_store, documents, embeddings, question, caplog
):
    retriever = SIFTRetriever(vectorstore=make_vector_store(documents), k=3)
    embeddings.queries, embeddings.document_batches = 0, []
    retriever.invoke(question)
    await retriever.ainvoke(question)
    assert (embeddings.queries, embeddings.document_batches) == (2, [])
    assert caplog.records == []


def test_k_may_be_given_for_one_call(make_store, documents, question):
    retriever = SIFTRetriever(vectorstore=make_store(documents), k=5)
    assert len(retriever.invoke(question, k=2)) == 2
    assert len(retriever.invoke(question)) == 5


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("max_token", "do you mean `max_tokens`"),
        ("n_select", "do you mean `k`"),
        ("top_n", "do you mean `k`"),
        ("similarity_top_k", "do you mean `fetch_k`"),
        ("search_type", "there are .*, filter, "),
    ],
)
def test_a_wrong_name_is_refused(make_in_memory, documents, question, name, said):
    store = make_in_memory(documents)
    with pytest.raises(ValueError, match=f"SIFTRetriever has no option '{name}'; {said}"):
        SIFTRetriever(vectorstore=store, **{name: 7})
    with pytest.raises(InvalidInputError, match=name):
        SIFTRetriever(vectorstore=store).invoke(question, **{name: 7})


async def test_an_option_may_be_given_or_lifted_for_one_call(make_in_memory, documents, question):
    store = make_in_memory(documents)
    plain = SIFTRetriever(vectorstore=store, k=6)
    limited = SIFTRetriever(vectorstore=store, k=6, max_tokens=20)
    found = limited.invoke(question)
    assert len(found) < 6
    assert plain.invoke(question, max_tokens=20) == found
    assert await plain.ainvoke(question, max_tokens=20) == found
    assert limited.invoke(question, max_tokens=None) == plain.invoke(question)
    with pytest.raises(InvalidInputError, match="needs `newest`"):
        plain.invoke(question, half_life_days=3)


def test_options_survive_copies_and_are_configurable(make_in_memory, documents, question):
    retriever = SIFTRetriever(
        vectorstore=make_in_memory(documents), k=6, max_tokens=20, count_tokens=len
    )
    found = retriever.invoke(question)
    assert retriever.model_copy().invoke(question) == found
    assert retriever.model_dump()["max_tokens"] == 20
    configurable = retriever.configurable_fields(max_tokens=ConfigurableField(id="tokens"))
    assert configurable.invoke(question) == found
    more = configurable.invoke(question, {"configurable": {"tokens": 1000}})
    assert len(more) == 6


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


async def test_the_event_loop_is_not_blocked(
    make_store, documents, embeddings, question, off_the_loop
):
    retriever = SIFTRetriever(vectorstore=make_store(documents), k=3)
    off_the_loop(embeddings, "embed_query")
    off_the_loop(ContextSelector, "select")
    assert len(await retriever.ainvoke(question)) == 3


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 0}, "`k` must be an integer >= 1, got 0"),
        ({"fetch_k": 0}, "`fetch_k` must be an integer >= 1, got 0"),
        ({"k": 5, "fetch_k": 4}, "`k` must be <= `fetch_k`, got 5 and 4: .* raise `fetch_k`"),
        ({"selector": "mmr"}, "instance of Selector"),
        ({"max_fetch_k": 100}, "`fetch_k` must be <= `max_fetch_k`, got 200 and 100"),
        ({"fetch_k": 12, "max_fetch_k": 0}, "`max_fetch_k` must be an integer >= 1, got 0"),
        ({"async_client": object()}, "`async_client` is for a QdrantVectorStore"),
        ({"fetchk": 3}, "no option 'fetchk'; do you mean `fetch_k`"),
    ],
)
def test_a_bad_setting_is_refused_at_construction(make_in_memory, documents, settings, message):
    with pytest.raises(ValueError, match=message):
        SIFTRetriever(vectorstore=make_in_memory(documents), **settings)


@pytest.mark.parametrize("bad", [{"k": 0}, {"k": 2.5}, {"k": 300}, {"fetch_k": 0}], ids=str)
def test_a_bad_argument_is_refused_in_a_call(make_in_memory, documents, embeddings, question, bad):
    retriever = SIFTRetriever(vectorstore=make_in_memory(documents))
    with pytest.raises(InvalidInputError, match=r"`fetch_k`|`k`"):
        retriever.invoke(question, **bad)
    assert embeddings.queries == 0  # nothing costly was done


def test_a_retriever_survives_pickling(documents, question):
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_documents(documents)
    retriever = SIFTRetriever(vectorstore=store, k=2)
    assert pickle.loads(pickle.dumps(retriever)).invoke(question) == retriever.invoke(question)


async def test_it_oversamples_where_asked_to(make_vector_store, documents, question):
    store = make_vector_store(documents)
    plain = SIFTRetriever(vectorstore=store, k=3, fetch_k=3).invoke(question)
    oversampling = SIFTRetriever(vectorstore=store, k=3, fetch_k=3, max_fetch_k=12)
    found = oversampling.invoke(question)
    assert [sum(n < 3 for n in numbers(each)) for each in (plain, found)] == [3, 1]
    assert numbers(await oversampling.ainvoke(question)) == numbers(found)
    assert oversampling.invoke(question, max_fetch_k=None) == plain


def test_what_as_retriever_takes_is_taken(make_store, documents, question, first_half):
    store = make_store(documents)
    search_kwargs = {"k": 2, "fetch_k": 4, "filter": first_half(store)}
    moved = SIFTRetriever(vectorstore=store, search_kwargs=search_kwargs)
    plain = SIFTRetriever(vectorstore=store, **search_kwargs)
    assert (moved.k, moved.fetch_k, moved.filter) == (2, 4, search_kwargs["filter"])
    assert moved.invoke(question) == plain.invoke(question)
    assert len(moved.invoke(question)) == 2
    assert SIFTRetriever(vectorstore=store, k=7, search_kwargs=search_kwargs).k == 2


def test_search_kwargs_may_be_changed_afterwards(make_in_memory, documents, question):
    # As people do with the retriever that `as_retriever` returns.
    retriever = SIFTRetriever(vectorstore=make_in_memory(documents), search_kwargs={"k": 5})
    retriever.search_kwargs["k"] = 2
    assert len(retriever.invoke(question)) == 2
    assert len(retriever.invoke(question, k=3)) == 3


async def test_configurable_settings_go_before_search_kwargs(make_in_memory, documents, question):
    retriever = SIFTRetriever(
        vectorstore=make_in_memory(documents), search_kwargs={"k": 5, "fetch_k": 8}
    ).configurable_fields(k=ConfigurableField(id="n"), fetch_k=ConfigurableField(id="from"))
    assert len(retriever.invoke(question)) == 5
    two = retriever.with_config(configurable={"n": 2})
    assert len(two.invoke(question)) == 2
    assert len(await two.ainvoke(question)) == 2
    narrow = {"configurable": {"n": 2, "from": 2}}
    plain = retriever.default.vectorstore.similarity_search(question, k=2)
    assert sorted(numbers(retriever.invoke(question, narrow))) == sorted(numbers(plain))


def test_search_kwargs_are_configurable_as_in_other_retrievers(make_in_memory, documents, question):
    retriever = SIFTRetriever(vectorstore=make_in_memory(documents)).configurable_fields(
        search_kwargs=ConfigurableField(id="search")
    )
    search = {"k": 2, "filter": lambda document: document.metadata["number"] > 3}
    found = retriever.invoke(question, {"configurable": {"search": search}})
    assert len(found) == 2
    assert min(numbers(found)) > 3


class Recorder(BaseCallbackHandler):
    """Keeps what a run of a retriever starts with."""

    def on_retriever_start(self, serialized, query, *, tags=None, metadata=None, **kwargs):
        self.tags, self.metadata = tags, metadata


def test_tags_and_providers_are_those_of_as_retriever(make_store, documents, question):
    store = make_store(documents)
    expected, found = Recorder(), Recorder()
    store.as_retriever().invoke(question, {"callbacks": [expected]})
    SIFTRetriever(vectorstore=store).invoke(question, {"callbacks": [found]}, verbose=False)
    assert found.tags == expected.tags
    assert found.metadata == {**expected.metadata, "ls_retriever_name": "sift"}


def test_a_store_without_a_model_is_refused_at_construction(faiss_class, make_faiss, documents):
    store = make_faiss(documents)
    bare = faiss_class(lambda text: [0.0], store.index, store.docstore, store.index_to_docstore_id)
    with pytest.raises(ValueError, match=r"FAISS\.embeddings is None"):
        SIFTRetriever(vectorstore=bare)
