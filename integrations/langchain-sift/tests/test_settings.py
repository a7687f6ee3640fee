import pytest
from langchain_core.runnables import ConfigurableField
from pydantic import BaseModel
from qdrant_client import models

from langchain_sift import SIFTRetriever
from langchain_sift.settings import call_settings
from sift_core import InvalidInputError

VALUES = {"k": 3, "fetch_k": 5, "max_fetch_k": None, "filter": None}


def numbers(documents):
    return [document.metadata["number"] for document in documents]


def test_what_as_retriever_takes_is_taken(make_store, documents, question, first_half):
    store = make_store(documents)
    search_kwargs = {"k": 2, "fetch_k": 4, "filter": first_half(store)}
    moved = SIFTRetriever(vectorstore=store, search_kwargs=search_kwargs)
    plain = SIFTRetriever(vectorstore=store, **search_kwargs)
    assert (moved.k, moved.fetch_k, moved.filter) == (2, 4, search_kwargs["filter"])
    assert moved.invoke(question) == plain.invoke(question)
    assert len(moved.invoke(question)) == 2


def test_the_callers_search_kwargs_are_not_modified(make_in_memory, documents):
    search_kwargs = {"k": 2}
    SIFTRetriever(vectorstore=make_in_memory(documents), search_kwargs=search_kwargs)
    assert search_kwargs == {"k": 2}


def test_a_setting_given_twice_alike_is_taken(make_qdrant, documents):
    store = make_qdrant(documents)
    match = models.FieldCondition(key="metadata.number", match=models.MatchValue(value=3))
    filters = [models.Filter(must=[match]) for _ in range(2)]
    retriever = SIFTRetriever(
        vectorstore=store, k=4, filter=filters[0], search_kwargs={"k": 4, "filter": filters[1]}
    )
    assert (retriever.k, retriever.filter) == (4, filters[0])


@pytest.mark.parametrize("name", ["k", "fetch_k", "filter"])
def test_a_setting_given_twice_differently_is_refused(make_in_memory, documents, name):
    store = make_in_memory(documents)
    with pytest.raises(ValueError, match=f"`{name}` is 11 and 12 in `search_kwargs`"):
        SIFTRetriever(vectorstore=store, **{name: 11}, search_kwargs={name: 12})


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
    assert len(retriever.invoke(question)) == 10


def test_a_retriever_can_be_the_field_of_a_model(make_in_memory, documents):
    class Agent(BaseModel):
        retriever: SIFTRetriever

    retriever = SIFTRetriever(vectorstore=make_in_memory(documents))
    assert Agent(retriever=retriever).retriever is retriever


def test_a_call_is_checked_as_construction_is():
    with pytest.raises(InvalidInputError, match="`max_fetch_k` must be >= `fetch_k`"):
        call_settings({**VALUES, "max_fetch_k": 4})


def test_what_is_left_over_are_options():
    settings = call_settings({**VALUES, "verbose": True, "score_threshold": 0.5})
    assert settings.options == {"score_threshold": 0.5}
