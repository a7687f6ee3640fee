"""The synthesizer in real query engines, over a small random language model."""

import asyncio
import json
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="SIFTSynthesizer needs the extra answer")


from llama_index.core import Settings
from llama_index.core.base.response.schema import (
    AsyncStreamingResponse,
    PydanticResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
from llama_index.core.llms import ChatMessage, MessageRole, MockLLM
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index.postprocessor.sift.engine_llm import EngineLLM
from llama_index.postprocessor.sift.synthesizer import SIFTQueryBundle, SIFTSynthesizer
from sift_core import ChoiceOptions, InvalidInputError
from sift_core.answering import AnswerEngine, LanguageModel, LearningOptions, PromptOptions

MODES = ["base", "context", "fine_tune", "both"]


@pytest.fixture(scope="module")
def engine(random_model):
    model = LanguageModel.from_pretrained(random_model, device="cpu", dtype="float32")
    return AnswerEngine(
        language_model=model,
        options=ChoiceOptions(n_select=3),
        learning=LearningOptions(n_steps=3),
        generation={"max_new_tokens": 8},
    )


@pytest.fixture
def index(build_index, nodes, embed_model):
    return build_index("faiss", nodes, embed_model)


@pytest.fixture
def query_engine(index):
    def make(synthesizer):
        return index.as_query_engine(
            llm=MockLLM(), similarity_top_k=20, response_synthesizer=synthesizer
        )

    return make


def test_the_llm_has_the_name_that_its_model_was_loaded_by(engine, random_model):
    loaded = engine.language_model
    unnamed = LanguageModel(loaded.model, loaded.tokenizer)
    for model in (loaded, unnamed):
        metadata = EngineLLM(replace(engine, language_model=model)).metadata
        assert metadata.model_name == str(random_model)


def report_of(response):
    return response.metadata["sift"]


@pytest.mark.parametrize("mode", MODES)
def test_a_query_engine_answers_in_each_mode(engine, query_engine, question, mode):
    response = query_engine(SIFTSynthesizer(engine, mode=mode)).query(question)
    report = report_of(response)
    assert report["mode"] == mode
    assert report["model"] == "engine"
    assert response.response
    assert report["reasons"] == ["it was asked for"]
    assert set(report["timings"]) >= {"select", "generate"}
    assert ("fine_tune" in report["timings"]) == (mode in ("fine_tune", "both"))
    assert report["node_ids"] == [node.node.node_id for node in response.source_nodes]
    assert bool(report["node_ids"]) == (mode != "base")


def test_auto_decides_and_gives_its_reasons(engine, query_engine, question):
    report = report_of(query_engine(SIFTSynthesizer(engine)).query(question))
    assert report["mode"] in {"base", "context", "fine_tune"}
    assert "variance at the query" in report["reasons"][0]


def test_a_query_may_say_its_own_mode_and_the_default_may_change(engine, query_engine, question):
    synthesizer = SIFTSynthesizer(engine, mode="context")
    over = query_engine(synthesizer)
    assert report_of(over.query(SIFTQueryBundle(question, mode="fine_tune")))["mode"] == "fine_tune"
    assert report_of(over.query(SIFTQueryBundle(question)))["mode"] == "context"
    synthesizer.mode = "base"
    assert report_of(over.query(question))["mode"] == "base"


@pytest.mark.parametrize("mode", ["base", "both"])
def test_a_stream_gives_the_same_answer_and_completes_its_report(
    engine, query_engine, question, mode
):
    whole = query_engine(SIFTSynthesizer(engine, mode=mode)).query(question)
    response = query_engine(SIFTSynthesizer(engine, mode=mode, streaming=True)).query(question)
    assert isinstance(response, StreamingResponse)
    assert "generate" not in report_of(response)["timings"]
    pieces = list(response.response_gen)
    assert len(pieces) > 1
    assert "".join(pieces) == whole.response
    assert report_of(response)["timings"]["generate"] > 0
    assert report_of(response)["node_ids"] == report_of(whole)["node_ids"]


@pytest.mark.parametrize("llm", [None, MockLLM()], ids=["engine", "llm"])
def test_what_the_nodes_do_not_tell_is_refused_by_whoever_writes(engine, query_engine, llm):
    response = query_engine(SIFTSynthesizer(engine, llm=llm)).query("quinoa vxzq")
    assert response.response == "The documents say nothing about that."
    assert report_of(response)["is_refusal"]
    assert response.source_nodes == []


def test_an_engine_that_cites_tells_its_marks(engine, query_engine, question):
    class Marking:
        def generate(self, prompt, *, on_text=None, prefix=None, **options):
            written = engine.language_model.generate(prompt, **options)
            if on_text is not None:
                on_text("By the sun [1].")
            return replace(written, text="By the sun [1].")

    citing = replace(engine, prompt=PromptOptions(cite=True), generator=Marking())
    response = query_engine(SIFTSynthesizer(citing, mode="context")).query(question)
    (mark,) = report_of(response)["citations"]
    assert response.response[mark["start"] : mark["end"]] == "[1]"
    assert mark["document_id"] == response.source_nodes[0].node.node_id
    streamed = query_engine(SIFTSynthesizer(citing, mode="context", streaming=True)).query(question)
    assert report_of(streamed)["citations"] == []
    assert "".join(streamed.response_gen) == "By the sun [1]."
    assert report_of(streamed)["citations"] == [mark]
    json.dumps(report_of(response))


async def test_an_async_stream_gives_the_same_answer(engine, query_engine, question):
    whole = await query_engine(SIFTSynthesizer(engine, mode="fine_tune")).aquery(question)
    over = query_engine(SIFTSynthesizer(engine, mode="fine_tune", streaming=True))
    response = await over.aquery(question)
    assert isinstance(response, AsyncStreamingResponse)
    assert "".join([piece async for piece in response.response_gen]) == whole.response
    assert report_of(response)["finish_reason"] in {"stop", "length"}


def test_a_stream_that_is_dropped_frees_the_model(engine, query_engine, question):
    over = query_engine(SIFTSynthesizer(engine, mode="fine_tune", streaming=True))
    response = over.query(question)
    next(response.response_gen)
    response.response_gen.close()
    assert engine.language_model.generate("hello", max_new_tokens=1).n_new_tokens == 1


@pytest.mark.parametrize("mode", ["context", "base"])
def test_a_given_llm_reads_in_place_of_the_engine(engine, query_engine, question, mode):
    over = query_engine(SIFTSynthesizer(engine, mode=mode, llm=MockLLM()))  # repeats its prompt
    response = over.query(question)
    assert report_of(response)["model"] == "llm"
    assert question in response.response
    for node in response.source_nodes:
        assert node.node.get_content() in response.response


def test_the_llms_prompts_can_be_read_and_changed(engine):
    synthesizer = SIFTSynthesizer(engine, llm=MockLLM())
    assert "context_reader:text_qa_template" in synthesizer.get_prompts()


def test_no_openai_is_asked_for_without_an_llm(engine, monkeypatch):
    monkeypatch.setattr(Settings, "_llm", None)
    assert isinstance(SIFTSynthesizer(engine)._llm, EngineLLM)


def test_base_mode_answers_without_nodes(engine, question):
    response = SIFTSynthesizer(engine, mode="base").synthesize(question, [])
    assert response.response == engine.language_model.generate(question, max_new_tokens=8).text
    assert report_of(response)["variance"] is None


def test_additional_source_nodes_come_last(engine, index, nodes, question):
    extra = NodeWithScore(node=nodes[-1])
    found = index.as_retriever(similarity_top_k=5).retrieve(question)
    response = SIFTSynthesizer(engine, mode="context").synthesize(question, found, [extra])
    assert response.source_nodes[-1] is extra


async def test_texts_alone_asynchronously(engine, embed_model, question, nodes):
    synthesizer = SIFTSynthesizer(engine, mode="context", embed_model=embed_model)
    texts = [node.text for node in nodes[:4]]
    expected = await asyncio.to_thread(synthesizer.get_response, question, texts)
    assert await synthesizer.aget_response(question, texts) == expected


def test_callbacks_and_events_are_those_of_llama_indexs_synthesizers(
    engine, index, question, listener
):
    handler = LlamaDebugHandler(print_trace_on_end=False)
    synthesizer = SIFTSynthesizer(
        engine, mode="context", callback_manager=CallbackManager([handler])
    )
    nodes = index.as_retriever(similarity_top_k=5).retrieve(question)
    response = synthesizer.synthesize(question, nodes)
    heard = [event.class_name() for event in listener.events]
    assert [name for name in heard if "Synthesize" in name] == [
        "SynthesizeStartEvent",
        "SynthesizeEndEvent",
    ]
    (pair,) = handler.get_event_pairs(CBEventType.SYNTHESIZE)
    assert pair[1].payload["response"] is response


CHAT = [
    ChatMessage(role=MessageRole.SYSTEM, content="Be brief."),
    ChatMessage(role=MessageRole.USER, content="Hello"),
]


@pytest.mark.slow
async def test_the_llm_completes_and_chats_in_all_four_ways(engine):
    llm = EngineLLM(engine)
    text = (await llm.acomplete("Hello")).text
    assert text == llm.complete("Hello").text
    assert [r.text for r in llm.stream_complete("Hello")][-1] == text
    assert "".join([r.delta async for r in await llm.astream_complete("Hello")]) == text
    said = (await llm.achat(CHAT)).message.content
    assert said == llm.chat(CHAT).message.content
    assert [r.message.content for r in llm.stream_chat(CHAT)][-1] == said
    assert "".join([r.delta async for r in await llm.astream_chat(CHAT)]) == said


def test_the_llm_wants_a_question_last(engine):
    with pytest.raises(InvalidInputError, match="last message must be the user's"):
        EngineLLM(engine).chat(CHAT[:1])


@pytest.fixture
def no_models(monkeypatch):
    monkeypatch.setattr(Settings, "_embed_model", None)
    monkeypatch.setattr(Settings, "_llm", None)


class Bee(BaseModel):
    """What a structured LLM is to return."""

    name: str


@pytest.fixture
def structured_llm(monkeypatch):
    llm = MockLLM().as_structured_llm(Bee)
    monkeypatch.setattr(
        type(llm.llm), "structured_predict", lambda self, *args, **kwargs: Bee(name="Apis")
    )
    return llm


def test_a_structured_llm_gives_objects_where_it_answers_and_there_alone(
    engine, query_engine, structured_llm, question
):
    over = query_engine(SIFTSynthesizer(engine, mode="context", llm=structured_llm))
    response = over.query(question)
    assert isinstance(response, PydanticResponse)
    assert response.response == Bee(name="Apis")
    assert report_of(response)["model"] == "llm"
    response = over.query(SIFTQueryBundle(question, mode="fine_tune"))
    assert isinstance(response, Response)
    assert report_of(response)["model"] == "engine"


@pytest.mark.parametrize(
    ("mode", "llm", "top_k"),
    [("auto", None, 9), ("context", MockLLM(), 9), ("base", None, 9), ("auto", None, 0)],
    ids=["engine", "llm", "base", "nothing"],
)
def test_every_response_has_the_same_keys_and_is_json(engine, index, question, mode, llm, top_k):
    found = index.as_retriever(similarity_top_k=9).retrieve(question)[:top_k]
    response = SIFTSynthesizer(engine, mode=mode, llm=llm).synthesize(question, found)
    assert " ".join(report_of(response)) == (
        "mode model reasons variance standard_deviation node_ids timings finish_reason "
        "n_prompt_tokens n_new_tokens citations is_refusal"
    )
    assert json.loads(json.dumps(response.metadata)) == response.metadata


@pytest.mark.parametrize("streaming", [False, True])
async def test_nothing_retrieved_is_said_and_is_the_reason(engine, question, streaming):
    synthesizer = SIFTSynthesizer(engine, streaming=streaming)
    assert str(synthesizer.synthesize(question, [])) == "Empty Response"
    response = await synthesizer.asynthesize(question, [])
    assert response.metadata["sift"]["reasons"] == ["nothing was retrieved"]
    assert response.metadata["sift"]["mode"] is None


def test_an_unknown_mode_is_refused(engine, index, question):
    with pytest.raises(InvalidInputError, match="`mode` must be one of"):
        SIFTSynthesizer(engine, mode="finetune")
    found = index.as_retriever(similarity_top_k=9).retrieve(question)
    with pytest.raises(InvalidInputError, match="`mode` must be one of"):
        SIFTSynthesizer(engine).synthesize(SIFTQueryBundle(question, mode=""), found)


async def test_base_mode_looks_no_vector_up_and_embeds_nothing(engine, question, no_models):
    given = [NodeWithScore(node=TextNode(text="bees"))]
    synthesizer = SIFTSynthesizer(engine, mode="base")
    response = await synthesizer.asynthesize(question, given)
    assert response.response == synthesizer.synthesize(question, given).response
    assert response.source_nodes == []


async def test_the_choice_of_nodes_does_not_run_in_the_event_loop(
    engine, index, question, monkeypatch
):
    choose_from = AnswerEngine.choose_from

    def noted(*args, **kwargs):
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        in_thread.append(True)
        return choose_from(*args, **kwargs)

    in_thread = []
    monkeypatch.setattr(AnswerEngine, "choose_from", noted)
    found = index.as_retriever(similarity_top_k=9).retrieve(question)
    await SIFTSynthesizer(engine, mode="context").asynthesize(question, found)
    assert in_thread


def test_the_llm_takes_a_length_as_other_llms_do(engine):
    expected = engine.language_model.generate("Hello", max_new_tokens=2).text
    assert EngineLLM(engine).complete("Hello", max_tokens=2).text == expected
