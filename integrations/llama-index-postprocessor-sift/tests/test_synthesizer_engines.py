"""The synthesizer in the query engines that give it nodes of their own making, or an LLM's."""

import asyncio
import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="SIFTSynthesizer needs the extra answer")

from llama_index.core import Settings
from llama_index.core.base.response.schema import PydanticResponse, Response
from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import CitationQueryEngine, SubQuestionQueryEngine
from llama_index.core.question_gen.types import BaseQuestionGenerator, SubQuestion
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import QueryEngineTool

from llama_index.postprocessor.sift import SIFTQueryBundle, SIFTSynthesizer
from llama_index.postprocessor.sift.tracking import track_retrievals
from sift_core import InvalidInputError
from sift_core.answering import AnswerEngine, LanguageModel

TINY_LM = Path(__file__).parents[3] / "examples/tiny_lm"
KEYS = {
    "mode",
    "model",
    "reasons",
    "variance",
    "standard_deviation",
    "node_ids",
    "timings",
    "finish_reason",
    "n_prompt_tokens",
    "n_new_tokens",
}


@pytest.fixture(scope="module")
def engine():
    model = LanguageModel.from_pretrained(TINY_LM, device="cpu")
    return AnswerEngine(language_model=model, n_steps=2, n_context=3, max_new_tokens=6)


@pytest.fixture(autouse=True)
def tracked():
    """Watch retrievals from the beginning, as where an engine is built before it is asked."""
    track_retrievals()


@pytest.fixture
def index(build_index, nodes, embed_model):
    return build_index("faiss", nodes, embed_model)


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


def test_a_structured_llm_gives_objects_where_it_answers(engine, index, structured_llm, question):
    synthesizer = SIFTSynthesizer(engine, mode="context", llm=structured_llm)
    over = index.as_query_engine(MockLLM(), response_synthesizer=synthesizer)
    response = over.query(question)
    assert isinstance(response, PydanticResponse)
    assert response.response == Bee(name="Apis")
    assert response.metadata["sift"]["model"] == "llm"


def test_a_structured_llm_does_not_spoil_the_answers_of_the_engine(
    engine, index, structured_llm, question
):
    synthesizer = SIFTSynthesizer(engine, mode="fine_tune", llm=structured_llm)
    over = index.as_query_engine(MockLLM(), response_synthesizer=synthesizer)
    response = over.query(question)
    assert isinstance(response, Response)
    assert response.metadata["sift"]["model"] == "engine"


@pytest.mark.parametrize("mode", ["base", "context", "fine_tune", "both", "auto"])
@pytest.mark.parametrize("with_llm", [False, True])
@pytest.mark.parametrize("is_retrieved", [False, True])
def test_every_response_has_the_same_keys_and_is_json(
    engine, index, question, mode, with_llm, is_retrieved
):
    synthesizer = SIFTSynthesizer(engine, mode=mode, llm=MockLLM() if with_llm else None)
    found = index.as_retriever(similarity_top_k=9).retrieve(question) if is_retrieved else []
    response = synthesizer.synthesize(question, found)
    assert set(response.metadata["sift"]) == KEYS
    assert json.loads(json.dumps(response.metadata)) == response.metadata


async def test_nothing_retrieved_is_the_reason_given(engine, question):
    for synthesizer in (SIFTSynthesizer(engine), SIFTSynthesizer(engine, streaming=True)):
        response = await synthesizer.asynthesize(question, [])
        assert response.metadata["sift"]["reasons"] == ["nothing was retrieved"]
        assert response.metadata["sift"]["mode"] is None


def test_an_empty_mode_is_no_mode(engine, index, question):
    found = index.as_retriever(similarity_top_k=9).retrieve(question)
    with pytest.raises(InvalidInputError, match="`mode` must be one of"):
        SIFTSynthesizer(engine).synthesize(question, found, mode="")
    with pytest.raises(InvalidInputError, match="`mode` must be one of"):
        SIFTSynthesizer(engine).synthesize(SIFTQueryBundle(question, mode=""), found)


async def test_base_mode_looks_no_vector_up_and_embeds_nothing(engine, question, no_models):
    given = [NodeWithScore(node=TextNode(text="bees"))]
    synthesizer = SIFTSynthesizer(engine, mode="base")
    response = await synthesizer.asynthesize(question, given)
    assert response.response == synthesizer.synthesize(question, given).response
    assert response.source_nodes == []


def test_a_node_that_arrives_twice_is_read_once(engine, index, question):
    found = index.as_retriever(similarity_top_k=2).retrieve(question)
    response = SIFTSynthesizer(engine, mode="context").synthesize(question, found + found)
    assert len(response.source_nodes) == 2
    alone = SIFTSynthesizer(engine, mode="context").synthesize(question, found)
    assert response.response == alone.response


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


def test_citations_are_numbered_texts_among_the_source_nodes(engine, index, embed_model, question):
    cited = CitationQueryEngine.from_args(
        index,
        llm=MockLLM(),
        similarity_top_k=20,
        response_synthesizer=SIFTSynthesizer(engine, mode="context", embed_model=embed_model),
    )
    response = cited.query(question)
    assert len(response.source_nodes) == 3
    for node in response.source_nodes:
        assert node.node.get_content().startswith("Source ")


def test_pieces_of_one_node_that_share_its_id_are_all_source_nodes(engine, embed_model, question):
    """As in LlamaIndex 0.13, whose citations keep the id of the node that they are from."""
    pieces = [TextNode(id_="a", text=text) for text in ("bees dance", "ants march", "steel melts")]
    for piece in pieces:
        piece.embedding = embed_model.vector("bees")
    synthesizer = SIFTSynthesizer(engine, mode="context", embed_model=embed_model)
    response = synthesizer.synthesize(question, [NodeWithScore(node=piece) for piece in pieces])
    assert {n.node.get_content() for n in response.source_nodes} == {p.text for p in pieces}


class TwoQuestions(BaseQuestionGenerator):
    """Asks the same two things whatever is asked."""

    def generate(self, tools, query):
        return [SubQuestion(sub_question=q, tool_name="bees") for q in ("bees", "steel")]

    async def agenerate(self, tools, query):
        return self.generate(tools, query)

    def _get_prompts(self):
        return {}

    def _update_prompts(self, prompts):
        pass


def test_sub_questions_are_answered_and_put_together(
    engine, index, embed_model, question, no_models
):
    synthesizer = SIFTSynthesizer(engine, mode="context", embed_model=embed_model)
    asked = index.as_query_engine(MockLLM(), response_synthesizer=synthesizer)
    over = SubQuestionQueryEngine.from_defaults(
        [QueryEngineTool.from_defaults(asked, name="bees", description="bees")],
        question_gen=TwoQuestions(),
        llm=MockLLM(),
        response_synthesizer=synthesizer,
        use_async=False,
        verbose=False,
    )
    response = over.query(question)
    texts = [node.node.get_content() for node in response.source_nodes]
    assert sum("Sub question" in text for text in texts) == 2
    assert len(texts) > 2  # and the nodes that the sub-questions were answered from
