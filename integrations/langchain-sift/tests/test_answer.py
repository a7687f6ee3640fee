"""SIFTAnswer over real stores and a real tiny language model: whole, in pieces, given up."""

import asyncio
import pickle
from dataclasses import replace
from functools import reduce
from operator import add

import pytest

pytest.importorskip("torch", reason="needs sift-rerank's extra fine-tune")

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import ConfigurableField

from langchain_sift import ChatSIFT, SIFTAnswer
from sift_core import ChoiceOptions, InMemorySource, InvalidInputError
from sift_core.answering import AnswerEngine, LearningOptions, VariancePolicy
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
    "citations",
    "is_refusal",
    "searched_for",
    "left_out",
    "missing_names",
    "nearest",
    "n_prompt_tokens",
    "n_new_tokens",
    "effort",
    "fine_tuning",
    "unknown_marks",
    "stop_reason",
}


@pytest.fixture
def make_answer(language_model):
    def make(store, **options):
        mode = options.pop("mode", "auto")
        generation = {"max_new_tokens": options.pop("max_new_tokens", 6)}
        learning = LearningOptions(n_steps=options.pop("n_steps", 2))
        parts = {"learning": learning, "generation": generation}
        parts["options"] = ChoiceOptions(**{"n_select": 3, **options})
        return SIFTAnswer.from_vectorstore(store, language_model, mode=mode, **parts)

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
    assert (result["mode"], result["reasons"]) == (mode, ["it was asked for"])
    assert result["finish_reason"] == "length"
    assert result["timings"]["generate"] > 0
    if mode == "base":
        assert (result["context"], result["document_ids"]) == ([], [])
        assert (result["variance"], result["standard_deviation"]) == (None, None)
    else:
        assert result["context"]
        assert 0 < result["variance"] == result["standard_deviation"] ** 2 < 1


async def test_a_follow_up_is_searched_for_with_the_question_before_it(answer, question):
    history = [HumanMessage(question), AIMessage("With light.")]
    asked = {"input": "And when?", "chat_history": history}
    expected = [f"And when? {question}", "And when?"]
    assert answer.invoke(asked, mode="context")["searched_for"] == expected
    assert (await answer.ainvoke(asked, mode="context"))["searched_for"] == expected
    pieces = list(answer.stream(asked, mode="context"))
    assert pieces[-1]["searched_for"] == expected
    messages = [*history, HumanMessage("And when?")]
    message = ChatSIFT(engine=answer.engine, mode="context").invoke(messages)
    assert message.response_metadata["searched_for"] == expected
    alone = answer.model_copy(update={"engine": replace(answer.engine, query_rewriting=None)})
    assert alone.invoke(asked, mode="context")["searched_for"] == ["And when?"]


def test_marks_that_were_asked_for_are_told(answer, question):
    class Marking:
        def generate(self, prompt, *, on_text=None, prefix=None, **options):
            written = answer.engine.language_model.generate(prompt, **options)
            return replace(written, text="So it is [1].")

    marking = answer.model_copy(update={"engine": replace(answer.engine, generator=Marking())})
    assert marking.invoke(question, mode="context")["citations"] == []
    result = marking.invoke(question, mode="context", cite=True)
    (mark,) = result["citations"]
    assert result["answer"][mark["start"] : mark["end"]] == "[1]"
    assert mark["document_id"] == result["document_ids"][0]


def test_the_context_is_what_the_engine_chose_in_its_order(answer, question, documents):
    result = answer.invoke(question, mode="context")
    choice = answer.engine.choose(question, mode="context")
    assert result["document_ids"] == list(choice.read.chunks.document_ids)
    by_id = {document.id: document for document in documents}
    assert result["context"] == [by_id[key] for key in result["document_ids"]]


def test_a_document_that_is_learned_from_again_and_again_stands_in_the_context_once(
    make_answer, make_in_memory, documents, question
):
    answer = make_answer(make_in_memory(documents[:2]))
    result = answer.invoke(question, mode="both")  # two are read, two steps are learned
    assert sorted(result["document_ids"]) == [document.id for document in documents[:2]]
    assert len(result["context"]) == 2


def test_documents_are_copies(make_answer, make_in_memory, documents, question):
    answer = make_answer(make_in_memory(documents), mode="context")
    for asked in (question, {"input": question, "context": documents}):
        for document in answer.invoke(asked)["context"]:
            document.metadata["tags"].append("changed")
        assert all(each.metadata["tags"] == ["a", "b"] for each in answer.invoke(asked)["context"])


def test_a_filter_restricts_what_is_fetched(
    make_vector_store, make_answer, documents, question, first_half
):
    store = make_vector_store(documents)
    answer = make_answer(store, mode="context", n_select=10)
    result = answer.invoke({"input": question, "filter": first_half(store)})
    assert {document.metadata["half"] for document in result["context"]} == {"first"}


def test_chunks_that_the_engine_joined_are_one_document(make_answer, make_in_memory, question):
    chunks = [
        Document(id=text, page_content=text, metadata={"source": "a", "start_index": start})
        for text, start in [("plants make sugar", 0), ("from light and water", 18)]
    ]
    answer = make_answer(make_in_memory(chunks), mode="context", n_select=2, merge_neighbors=True)
    (document,) = answer.invoke(question)["context"]
    assert document.page_content == "plants make sugar\nfrom light and water"
    assert document.metadata["start_index"] == 0
    assert sorted(document.metadata["chunks"]) == sorted(chunk.id for chunk in chunks)


async def test_a_given_context_is_chosen_from_with_the_stores_vectors(
    answer, embeddings, question, documents, caplog
):
    before = list(embeddings.document_batches)
    asked = {"input": question, "context": documents[4:8]}
    result = answer.invoke(asked, mode="context")
    assert len(result["context"]) == 3
    assert set(result["document_ids"]) < {document.id for document in documents[4:8]}
    assert without_timings(await answer.ainvoke(asked, mode="context")) == without_timings(result)
    assert embeddings.document_batches == before
    assert not caplog.records


def test_other_documents_are_embedded_in_one_batch_with_a_warning(
    answer, embeddings, question, caplog
):
    elsewhere = [Document("plants drink"), Document("sugar is sweet"), Document("banks rise")]
    before = list(embeddings.document_batches)
    result = answer.invoke({"input": question, "context": elsewhere}, mode="context")
    assert embeddings.document_batches == [*before, 3]
    assert "3 of 3 documents" in caplog.text
    assert sorted(result["document_ids"]) == ["0", "1", "2"]


def test_an_empty_context_is_refused_or_answered_by_the_model_alone(answer, question):
    refused = answer.invoke({"input": question, "context": []})
    assert (refused["is_refusal"], refused["answer"]) == (
        True,
        "The documents say nothing about that.",
    )
    policy = VariancePolicy(on_off_topic="base")
    allowed = answer.model_copy(update={"engine": replace(answer.engine, policy=policy)})
    result = allowed.invoke({"input": question, "context": []})
    assert (result["mode"], result["is_refusal"]) == ("base", False)
    assert result["answer"] == answer.invoke(question, mode="base")["answer"]


def test_another_source_of_the_core_gives_documents_with_id_and_metadata(language_model):
    embedder, text = HashingEmbedder(), "plants make sugar"
    source = InMemorySource(
        embedder.embed_documents([text]), [text], document_ids=["a"], metadata=[{"n": 1}]
    )
    parts = {"source": source, "embedder": embedder, "generation": {"max_new_tokens": 4}}
    engine = AnswerEngine(language_model=language_model, **parts)
    result = SIFTAnswer(engine=engine, mode="context").invoke("plants")
    assert result["context"] == [Document(id="a", page_content=text, metadata={"n": 1})]


def test_the_mode_can_come_from_the_configuration(answer, question):
    configurable = answer.configurable_fields(mode=ConfigurableField(id="mode"))
    config = {"configurable": {"mode": "context"}}
    assert configurable.invoke(question, config=config)["reasons"] == ["it was asked for"]
    assert configurable.invoke(question)["reasons"] == answer.invoke(question)["reasons"]


@pytest.mark.parametrize(
    ("asked", "options", "complaint"),
    [
        (7, {}, 'must be a question or {"input": question, …}, got int'),
        ({"question": "why"}, {}, r"got \['question'\]"),
        ("  ", {}, "the question is empty"),
        ({"input": ["why"]}, {}, "must be a string, got list"),
        ({"input": "why", "context": "some text"}, {}, '"context" must be a list of .* got str'),
        ({"input": "why", "context": ["some text"]}, {}, '"context" must be a list of .*Documents'),
        ({"input": "why", "chat_history": "Human: hi"}, {}, "must be a list of messages, got str"),
        ("why", {"latency_s": -1}, "`latency_s` must be a finite number > 0"),
        ({"input": "why", "context": []}, {"max_tokens": 0}, "`max_tokens` must be >= 1"),
        ("why", {"mode": "rag"}, "`mode` must be one of .* got 'rag'"),
    ],
)
def test_what_cannot_be_used_is_refused(answer, asked, options, complaint):
    with pytest.raises(InvalidInputError, match=complaint):
        answer.invoke(asked, **options)


def test_a_setting_that_cannot_be_used_is_refused(answer, language_model):
    with pytest.raises(ValueError, match="mode"):
        SIFTAnswer(engine=answer.engine, mode="rag")
    with pytest.raises(ValueError, match=r"must be a sift_core\.answering\.AnswerEngine, got Lang"):
        SIFTAnswer(engine=language_model)


def test_the_engine_is_neither_shown_nor_dumped(answer):
    assert "engine" not in repr(answer)
    assert answer.model_dump() == {"name": None, "mode": "auto", "generation": {}}


async def drained(stream):
    return [piece async for piece in stream]


async def test_whole_and_in_pieces_called_and_awaited_it_is_the_same(answer, question):
    expected = without_timings(answer.invoke(question, mode="context"))
    pieces = list(answer.stream(question, mode="context"))
    awaited = await drained(answer.astream(question, mode="context"))
    for each in (pieces, awaited):
        assert all(piece.keys() == {"answer"} for piece in each[:-1])
        assert len(each) > 3
        assert without_timings(reduce(add, each)) == expected
    assert without_timings(await answer.ainvoke(question, mode="context")) == expected


def test_an_answer_without_text_streams_as_one(answer, question):
    first = answer.invoke(question, mode="context")["answer"][0]
    (piece,) = answer.stream(question, mode="context", stop=[first])
    assert piece["answer"] == ""


def test_a_stream_that_is_given_up_frees_the_model(answer, question, counter):
    stream = answer.stream(question, mode="context", **counter.options)
    assert next(stream)["answer"]
    stream.close()
    n_tokens = counter.n_tokens
    assert answer.invoke(question)["answer"]
    assert counter.n_tokens == n_tokens
    assert counter.is_cut_short


@pytest.mark.parametrize("how", ["astream", "ainvoke"])
async def test_cancelling_the_task_frees_the_model(answer, question, counter, how):
    called = getattr(answer, how)(question, mode="context", **counter.options)
    task = asyncio.ensure_future(called if how == "ainvoke" else drained(called))
    while not counter.n_tokens:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await answer.ainvoke(question))["answer"]
    n_tokens = counter.n_tokens
    assert counter.is_cut_short
    await asyncio.sleep(0.2)
    assert counter.n_tokens == n_tokens


class Recorder(AsyncCallbackHandler):
    """Keeps what a run starts with, and how it ends."""

    def __init__(self):
        self.started, self.ended, self.failed = [], [], []

    async def on_chain_start(self, serialized, inputs, *, tags=None, metadata=None, **kwargs):
        self.started.append((kwargs.get("name"), tags, metadata["user"]))

    async def on_chain_end(self, outputs, **kwargs):
        self.ended.append(outputs)

    async def on_chain_error(self, error, **kwargs):
        self.failed.append(type(error))


@pytest.mark.parametrize("how", ["invoke", "stream", "ainvoke", "astream"])
async def test_a_call_is_one_run_with_its_name_tags_and_metadata(answer, question, how):
    recorder = Recorder()
    config = {"callbacks": [recorder], "tags": ["t"], "metadata": {"user": 7}}
    result = getattr(answer, how)(question, config, mode="context")
    if how.startswith("a"):
        result = await (drained(result) if how == "astream" else result)
    expected = result if how.endswith("invoke") else reduce(add, result)
    assert recorder.started == [("SIFTAnswer", ["t"], 7)]
    assert (recorder.ended, recorder.failed) == ([expected], [])


def test_it_survives_a_pickle_with_its_engine(make_answer, make_in_memory, documents, question):
    answer = make_answer(make_in_memory(documents), mode="context")
    again = pickle.loads(pickle.dumps(answer))
    assert without_timings(again.invoke(question)) == without_timings(answer.invoke(question))
    chat = pickle.loads(pickle.dumps(ChatSIFT(engine=answer.engine, mode="context")))
    assert chat.invoke(question).content == answer.invoke(question)["answer"]
