"""SIFTAnswer over real stores and a real tiny language model."""

import logging

import pytest

pytest.importorskip("torch", reason="needs sift-rerank's extra fine-tune")

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import ConfigurableField

from langchain_sift import SIFTAnswer
from sift_core import InMemorySource, InvalidInputError
from sift_core.answering import AnswerEngine
from sift_core.testing import HashingEmbedder

KEYS = {
    "answer",
    "mode",
    "reasons",
    "context",
    "document_ids",
    "standard_deviation",
    "variance",
    "timings",
    "finish_reason",
}


@pytest.fixture
def make_answer(language_model):
    def make(store, **options):
        settings = {"n_context": 3, "n_steps": 2, "max_new_tokens": 6, **options}
        return SIFTAnswer.from_vectorstore(store, language_model, **settings)

    return make


@pytest.fixture
def answer(make_answer, make_in_memory, documents):
    return make_answer(make_in_memory(documents))


def without_timings(result):
    return {key: value for key, value in result.items() if key != "timings"}


@pytest.mark.parametrize("mode", ["base", "context", "fine_tune", "both"])
def test_each_mode_answers_and_says_what_it_used(answer, question, mode):
    result = answer.invoke(question, mode=mode)
    assert result.keys() == KEYS
    assert result["answer"]
    assert result["mode"] == mode
    assert result["reasons"] == ["it was asked for"]
    assert result["finish_reason"] == "length"
    assert result["timings"]["generate"] > 0
    assert bool(result["context"]) == (mode != "base")


def test_the_context_is_what_the_engine_chose_in_its_order(answer, question, documents):
    result = answer.invoke(question, mode="context")
    choice = answer.engine.choose(question, mode="context")
    assert result["document_ids"] == list(choice.chunks(choice.read).document_ids)
    by_id = {document.id: document for document in documents}
    assert result["context"] == [by_id[key] for key in result["document_ids"]]


def test_a_document_that_is_learned_from_again_and_again_stands_in_the_context_once(
    make_answer, make_in_memory, documents, question
):
    answer = make_answer(make_in_memory(documents[:2]))
    result = answer.invoke(question, mode="both")  # two are read, two steps are learned
    assert sorted(result["document_ids"]) == [document.id for document in documents[:2]]
    assert len(result["context"]) == 2


def test_variance_is_the_square_of_the_standard_deviation_and_none_without_documents(
    answer, question
):
    result = answer.invoke(question, mode="context")
    assert result["variance"] == result["standard_deviation"] ** 2
    assert 0 < result["variance"] < 1
    bare = answer.invoke(question, mode="base")
    assert (bare["variance"], bare["standard_deviation"]) == (None, None)


def test_documents_are_copies(make_answer, make_in_memory, documents, question):
    store = make_in_memory(documents)
    answer = make_answer(store, mode="context")
    for document in answer.invoke({"input": question, "context": documents})["context"]:
        document.metadata["tags"].append("changed")
    for document in answer.invoke(question)["context"]:
        assert document.metadata["tags"] == ["a", "b"]
        document.metadata["tags"].append("changed")
    assert all(document.metadata["tags"] == ["a", "b"] for document in documents)
    assert answer.invoke(question)["context"][0].metadata["tags"] == ["a", "b"]


def test_auto_gives_its_reasons(answer, question):
    result = answer.invoke(question)
    assert result["mode"] != "auto"
    assert "of the variance at the query" in result["reasons"][0]


def test_a_filter_restricts_what_is_fetched(
    make_vector_store, make_answer, documents, question, first_half
):
    store = make_vector_store(documents)
    answer = make_answer(store, mode="context", n_context=10)
    result = answer.invoke({"input": question, "filter": first_half(store)})
    assert {document.metadata["half"] for document in result["context"]} == {"first"}


def test_a_given_context_is_chosen_from(answer, question, documents):
    result = answer.invoke({"input": question, "context": documents[4:8]}, mode="context")
    assert len(result["context"]) == 3
    assert set(result["document_ids"]) < {document.id for document in documents[4:8]}


def test_a_given_context_from_the_store_is_not_embedded_again(
    answer, embeddings, question, documents, caplog
):
    before = list(embeddings.document_batches)
    answer.invoke({"input": question, "context": documents}, mode="context")
    assert embeddings.document_batches == before
    assert not caplog.records


def test_other_documents_are_embedded_in_one_batch_with_a_warning(
    answer, embeddings, question, caplog
):
    elsewhere = [Document("plants drink"), Document("sugar is sweet"), Document("banks rise")]
    before = list(embeddings.document_batches)
    with caplog.at_level(logging.WARNING, logger="langchain_sift"):
        result = answer.invoke({"input": question, "context": elsewhere}, mode="context")
    assert embeddings.document_batches == [*before, 3]
    assert "3 of 3 documents" in caplog.text
    assert len(result["context"]) == 3


def test_an_empty_context_is_answered_by_the_model_alone(answer, question):
    result = answer.invoke({"input": question, "context": []})
    assert result["mode"] == "base"
    assert result["answer"] == answer.invoke(question, mode="base")["answer"]


def test_base_mode_embeds_nothing(answer, embeddings, question, documents):
    queries, batches = embeddings.queries, list(embeddings.document_batches)
    answer.invoke({"input": question, "context": [Document("elsewhere")]}, mode="base")
    answer.invoke(question, mode="base")
    assert (embeddings.queries, embeddings.document_batches) == (queries, batches)


def test_another_source_of_the_core_gives_documents_with_id_and_metadata(language_model):
    embedder, texts = HashingEmbedder(), ["plants make sugar", "stars fuse hydrogen"]
    source = InMemorySource(
        embedder.embed_documents(texts),
        texts,
        document_ids=["a", "b"],
        metadata=[{"n": 1}, {"n": 2}],
    )
    engine = AnswerEngine(
        language_model=language_model, source=source, embedder=embedder, max_new_tokens=4
    )
    result = SIFTAnswer(engine=engine, mode="context").invoke("plants")
    assert sorted(result["context"], key=lambda document: document.id) == [
        Document(id="a", page_content=texts[0], metadata={"n": 1}),
        Document(id="b", page_content=texts[1], metadata={"n": 2}),
    ]


def test_earlier_messages_are_read(answer, question):
    history = [HumanMessage("What are plants?"), AIMessage("Green, mostly.")]
    plain = answer.invoke(question, mode="base")
    after = answer.invoke({"input": question, "chat_history": history}, mode="base")
    said = [
        {"role": "user", "content": "What are plants?"},
        {"role": "assistant", "content": "Green, mostly."},
        {"role": "user", "content": question},
    ]
    expected = answer.engine.language_model.generate(said, max_new_tokens=6).text
    assert after["answer"] == expected != plain["answer"]


def test_the_mode_can_come_from_the_configuration(answer, question):
    configurable = answer.configurable_fields(mode=ConfigurableField(id="mode"))
    config = {"configurable": {"mode": "context"}}
    assert configurable.invoke(question, config=config)["reasons"] == ["it was asked for"]
    assert configurable.invoke(question)["reasons"] == answer.invoke(question)["reasons"]


async def test_the_async_answer_is_the_same(answer, question, documents):
    for asked in (question, {"input": question, "context": documents[:5]}):
        result = await answer.ainvoke(asked, mode="context")
        expected = answer.invoke(asked, mode="context")
        assert without_timings(result) == without_timings(expected)


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (7, 'must be a question or {"input": question, …}, got int'),
        ({"question": "why"}, r"got \['question'\]"),
        ("  ", "the question is empty"),
        ({"input": ["why"]}, "must be a string, got list"),
        ({"input": "why", "context": "some text"}, '"context" must be a list of .* got str'),
        ({"input": "why", "context": ["some text"]}, '"context" must be a list of .*Documents'),
        ({"input": "why", "chat_history": "Human: hi"}, "must be a list of messages, got str"),
    ],
)
def test_an_input_that_cannot_be_used_is_refused(answer, asked, complaint):
    with pytest.raises(InvalidInputError, match=complaint):
        answer.invoke(asked)


def test_options_of_a_call_reach_the_engine(answer, question):
    with pytest.raises(InvalidInputError, match="`latency_s` must be > 0"):
        answer.invoke(question, latency_s=-1)
    with pytest.raises(InvalidInputError, match="`n_questions` must be >= 1"):
        answer.invoke({"input": question, "context": []}, n_questions=0)


def test_an_unknown_mode_is_refused(answer, question):
    with pytest.raises(InvalidInputError, match=r"`mode` must be one of .* got 'rag'"):
        answer.invoke(question, mode="rag")
    with pytest.raises(ValueError, match="mode"):
        SIFTAnswer(engine=answer.engine, mode="rag")


def test_only_an_engine_is_an_engine(language_model):
    with pytest.raises(ValueError, match=r"must be a sift_core\.answering\.AnswerEngine, got Lang"):
        SIFTAnswer(engine=language_model)


def test_the_engine_is_neither_shown_nor_dumped(answer):
    assert "engine" not in repr(answer)
    assert answer.model_dump() == {"name": None, "mode": "auto", "generation": {}}


def test_a_model_can_be_named(tiny_lm, make_in_memory, documents, question):
    answer = SIFTAnswer.from_vectorstore(
        make_in_memory(documents), str(tiny_lm), mode="context", max_new_tokens=2
    )
    assert answer.mode == "context"
    assert answer.invoke(question)["answer"]
