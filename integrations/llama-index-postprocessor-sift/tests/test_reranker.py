"""SIFTReranker in query engines over real stores."""

import asyncio
import copy
import pickle

import numpy as np
import pytest
from llama_index.core.bridge.pydantic import ValidationError
from llama_index.core.callbacks import CallbackManager, CBEventType, EventPayload, LlamaDebugHandler
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.schema import Document, NodeWithScore, QueryBundle, TextNode

from llama_index.postprocessor.sift import SIFTReranker
from sift_core import CandidateSourceError, InvalidInputError, MMRSelector, SIFTSelector, select


def ids(scored_nodes):
    return [node.node.node_id for node in scored_nodes]


def with_vectors(vectors, **fields):
    return [
        NodeWithScore(node=TextNode(id_=str(i), text=f"text {i}", embedding=vector), score=0.5)
        for i, vector in enumerate(vectors)
    ]


def bundle(vector):
    return QueryBundle("a question", embedding=vector)


@pytest.mark.parametrize("is_awaited", [False, True])
async def test_each_text_of_a_query_has_its_turns(
    build_index, nodes, embed_model, question, is_awaited
):
    texts = [question, nodes[-1].text]
    query = QueryBundle("both", custom_embedding_strs=texts)
    retriever = build_index("faiss", nodes, embed_model).as_retriever(similarity_top_k=200)
    reranker = SIFTReranker(top_n=2)
    if is_awaited:
        found = await retriever.aretrieve(query)
        kept = await reranker.apostprocess_nodes(found, query)
    else:
        found = retriever.retrieve(query)
        kept = reranker.postprocess_nodes(found, query)
    assert embed_model.queries == texts
    first = SIFTReranker(top_n=1, use_scores=False)  # those are of the mean
    asked = QueryBundle(question, embedding=embed_model.vector(question))
    alone = first.postprocess_nodes(found, asked)
    assert ids(kept) == [*ids(alone), nodes[-1].node_id]
    assert kept[1].metadata["sift"]["similarity"] == pytest.approx(1)
    (mean,) = SIFTReranker(top_n=1, selector=MMRSelector()).postprocess_nodes(found, query)
    assert mean.metadata["sift"]["similarity"] < 0.9


@pytest.fixture
def engine_over(build_index, llm):
    def build(kind, nodes, embed_model, *rerankers, top_k=200):
        index = build_index(kind, nodes, embed_model)
        return index.as_query_engine(
            llm=llm, similarity_top_k=top_k, node_postprocessors=list(rerankers)
        )

    return build


def test_a_query_engine_keeps_what_the_core_selects_from_the_stored_vectors(
    store_kind, engine_over, nodes, embed_model, question
):
    engine = engine_over(store_kind, nodes, embed_model, SIFTReranker(top_n=5, words=0))
    fetched = engine.retriever.retrieve(question)
    stored = np.float32([embed_model.vector(node.node.text) for node in fetched])
    expected = select(np.array(embed_model.vector(question)), stored, 5)

    kept = engine.query(question).source_nodes

    assert ids(kept) == [ids(fetched)[i] for i in expected.positions]
    assert [n.metadata["sift"]["gain"] for n in kept] == pytest.approx(expected.gains, abs=1e-6)
    assert [n.score for n in kept] == pytest.approx(expected.variances[:-1], abs=1e-6)


async def test_an_async_query_over_an_async_qdrant_client_embeds_no_document(
    async_qdrant_index, engine_over, nodes, embed_model, llm, question, caplog
):
    engine = async_qdrant_index.as_query_engine(
        llm=llm, similarity_top_k=200, node_postprocessors=[SIFTReranker(top_n=5)]
    )
    kept = (await engine.aquery(question)).source_nodes
    assert embed_model.texts == []
    assert embed_model.queries == [question]
    assert caplog.records == []
    over_sync = engine_over("qdrant", nodes, embed_model, SIFTReranker(top_n=5))
    assert ids(kept) == ids(over_sync.query(question).source_nodes)


@pytest.mark.filterwarnings("ignore::sift_core.errors.SameVectorWarning")  # all are "zebra" here
def test_an_explicit_index_wins_over_the_one_that_was_searched(
    build_index, nodes, new_nodes, embed_model, question
):
    searched = build_index("simple", nodes, embed_model)
    given = build_index("simple", new_nodes(["zebra"] * len(nodes)), embed_model)
    fetched = searched.as_retriever(similarity_top_k=200).retrieve(question)
    reranker = SIFTReranker(top_n=1, index=given, keep_embeddings=True)
    (kept,) = reranker.postprocess_nodes(fetched, query_str=question)
    assert kept.node.embedding == pytest.approx(embed_model.vector("zebra"))
    assert embed_model.texts == []


async def test_what_arrives_is_not_changed(build_index, nodes, embed_model, question):
    query = QueryBundle(question)
    retriever = build_index("qdrant", nodes, embed_model).as_retriever(similarity_top_k=200)
    fetched = retriever.retrieve(QueryBundle(question))
    before = copy.deepcopy(fetched)
    reranker = SIFTReranker(keep_embeddings=True)
    for kept in (
        reranker.postprocess_nodes(fetched, query),
        await reranker.apostprocess_nodes(fetched, query),
    ):
        kept[0].node.metadata["later"] = 1
    assert fetched == before
    assert query.embedding is None


def scored(vectors, scores):
    given = with_vectors(vectors)
    for node, score in zip(given, scores, strict=True):
        node.score = score
    return given


@pytest.mark.parametrize("scores", [[0.5, None, 0.1], [None] * 3])
async def test_a_node_without_the_score_to_use_is_an_error_that_names_it(scores):
    given = scored([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], scores)
    reranker = SIFTReranker(use_scores=True)
    missing = scores.index(None)
    with pytest.raises(InvalidInputError, match=f"'{missing}' has no finite score"):
        reranker.postprocess_nodes(given, bundle([1.0, 0.0]))
    with pytest.raises(InvalidInputError, match=f"'{missing}' has no finite score"):
        await reranker.apostprocess_nodes(given, bundle([1.0, 0.0]))
    assert len(SIFTReranker().postprocess_nodes(given, bundle([1.0, 0.0]))) == 3


def test_a_similarity_postprocessor_cuts_by_the_score_that_is_asked_for():
    nodes = with_vectors([[1.0, 0.0], [0.6, 0.8], [0.1, 0.995]])
    asked = bundle([1.0, 0.0])
    cut = SimilarityPostprocessor(similarity_cutoff=0.5)
    by_similarity = SIFTReranker(score="similarity").postprocess_nodes(nodes, asked)
    by_variance = SIFTReranker().postprocess_nodes(nodes, asked)
    assert ids(by_similarity) == ids(by_variance)  # one order of choice
    assert {node.node.node_id: node.score for node in by_similarity} == pytest.approx(
        {"0": 1.0, "1": 0.6, "2": 0.1}, abs=1e-3
    )
    assert set(ids(cut.postprocess_nodes(by_similarity))) == {"0", "1"}
    off_topic = SIFTReranker(score="similarity").postprocess_nodes(nodes, bundle([-1.0, 0.2]))
    assert cut.postprocess_nodes(off_topic) == []
    assert SIFTReranker().postprocess_nodes(nodes, bundle([-1.0, 0.2]))[0].score == 1.0


@pytest.mark.parametrize(
    "arguments",
    [
        {"top_k": 3},
        {"n_select": 3},
        {"n_candidates": 30},
        {"max_token": 3},
        {"top_n": 0},
        {"score": "cosine"},
        {"selector": "sift"},
        {"index": "docs"},
        {"max_tokens": 0},
        {"selector": MMRSelector(), "max_tokens": 100},
        {"half_life_days": 3},
    ],
    ids=str,
)
def test_arguments_without_meaning_are_refused(arguments):
    with pytest.raises(ValidationError):
        SIFTReranker(**arguments)


@pytest.mark.parametrize(
    ("name", "meant"), [("top_k", "top_n"), ("n_select", "top_n"), ("max_token", "max_tokens")]
)
def test_a_name_that_is_no_option_is_refused_with_the_right_one(name, meant):
    with pytest.raises(ValidationError, match=f"no option '{name}'; do you mean `{meant}`"):
        SIFTReranker(**{name: 3})


def test_an_option_may_be_changed():
    reranker, asked = SIFTReranker(), bundle([1.0, 0.0])
    arrived = with_vectors([[1.0, 0.0], [0.0, 1.0]])
    assert len(reranker.postprocess_nodes(arrived, asked)) == 2
    reranker.max_tokens = 3  # a text has so many
    assert len(reranker.postprocess_nodes(arrived, asked)) == 1


def test_settings_survive_dict_json_pickle_and_deepcopy(build_index, nodes, embed_model, caplog):
    index = build_index("qdrant", nodes, embed_model)
    settings = {
        "top_n": 3,
        "max_tokens": 500,
        "max_per_document": 2,
        "newest": "updated_at",
        "half_life_days": 30.0,
        "merge_neighbors": True,
        "words": 0.5,
        "hops": 0,
        "document_key": "title",
    }
    reranker = SIFTReranker(**settings, use_scores=False, index=index, embed_model=embed_model)
    assert reranker.to_dict() == {
        **settings,
        "score": "variance",
        "use_scores": False,
        "keep_embeddings": False,
        "class_name": "SIFTReranker",
    }
    for revived in (
        SIFTReranker.from_dict(reranker.to_dict()),
        SIFTReranker.from_json(reranker.to_json()),
        pickle.loads(pickle.dumps(reranker)),
    ):
        assert revived.to_dict() == reranker.to_dict()
        assert revived.index is None
        assert revived.embed_model is None
    assert caplog.records == []


def test_a_deep_copy_shares_selector_index_and_model(build_index, nodes, embed_model):
    index = build_index("qdrant", nodes, embed_model)
    live = {"selector": MMRSelector(), "index": index, "embed_model": embed_model}
    copied = copy.deepcopy(SIFTReranker(top_n=3, **live))
    assert copied.top_n == 3
    assert all(getattr(copied, name) is value for name, value in live.items())


def test_a_selector_is_in_a_pickle_and_its_absence_from_a_dict_is_warned_of(caplog):
    selector = SIFTSelector(noise_variance=0.5)
    reranker = SIFTReranker(top_n=3, selector=selector)
    assert pickle.loads(pickle.dumps(reranker)).selector == selector
    assert SIFTReranker.from_json(reranker.to_json()).selector is None
    (record,) = caplog.records
    assert "leave out selector=SIFTSelector(" in record.getMessage()


def test_its_options_have_a_json_schema():
    assert "top_n" in SIFTReranker.model_json_schema()["properties"]


@pytest.mark.parametrize("use_async", [False, True], ids=["called", "awaited"])
async def test_listeners_hear_start_and_end(use_async, listener):
    given = with_vectors([[0.0, 1.0], [1.0, 0.1]])
    debug = LlamaDebugHandler(print_trace_on_end=False)
    reranker = SIFTReranker(top_n=1, callback_manager=CallbackManager([debug]))
    if use_async:
        kept = await reranker.apostprocess_nodes(given, bundle([1.0, 0.0]))
    else:
        kept = reranker.postprocess_nodes(given, bundle([1.0, 0.0]))
    start, end = [each for each in listener.events if "ReRank" in each.class_name()]
    assert isinstance(start, ReRankStartEvent)
    assert (start.top_n, start.model_name, start.nodes) == (1, "SIFTReranker", given)
    assert isinstance(end, ReRankEndEvent)
    assert end.nodes == kept
    ((began, ended),) = debug.get_event_pairs(CBEventType.RERANKING)
    assert began.payload[EventPayload.TOP_K] == 1
    assert ended.payload[EventPayload.NODES] == kept


def test_a_failed_reranking_has_a_start_and_no_end(listener):
    with pytest.raises(InvalidInputError):
        SIFTReranker().postprocess_nodes(with_vectors([[1.0, 0.0], [1.0]]), bundle([1.0, 0.0]))
    heard = [event.class_name() for event in listener.events if "ReRank" in event.class_name()]
    assert heard == ["ReRankStartEvent"]


async def test_of_many_awaited_at_once_each_begins_in_a_turn_of_its_own(listener):
    given = with_vectors([[0.0, 1.0], [1.0, 0.1]])
    reranker, query = SIFTReranker(top_n=1), bundle([1.0, 0.0])
    together = asyncio.gather(*(reranker.apostprocess_nodes(given, query) for _ in range(8)))
    begun = [0]
    while not together.done():
        await asyncio.sleep(0)
        begun.append(sum(isinstance(each, ReRankStartEvent) for each in listener.events))
    assert begun[-1] == 8
    assert np.diff(begun).max() == 1


def test_nothing_in_nothing_out_and_no_event(listener):
    assert SIFTReranker().postprocess_nodes([], query_str="bees") == []
    assert listener.events == []


async def test_a_missing_query_is_refused():
    given = with_vectors([[1.0]])
    with pytest.raises(ValueError, match="Missing query bundle in extra info"):
        SIFTReranker().postprocess_nodes(given)
    with pytest.raises(ValueError, match="Missing query bundle in extra info"):
        await SIFTReranker().apostprocess_nodes(given)


def test_an_empty_query_is_refused(embed_model):
    with pytest.raises(InvalidInputError, match="neither an embedding nor a text"):
        SIFTReranker(embed_model=embed_model).postprocess_nodes(with_vectors([[1.0]]), query_str="")


def test_too_few_nodes_are_warned_of_once(caplog):
    reranker = SIFTReranker(top_n=2)
    for _ in range(2):
        reranker.postprocess_nodes(with_vectors([[1.0, 0.0], [0.0, 1.0]]), bundle([1.0, 0.0]))
    (record,) = caplog.records
    assert "similarity_top_k" in record.getMessage()
    assert "SIFTRetriever.from_index" in record.getMessage()
    reranker.top_n = 5
    for copied in (reranker, reranker, pickle.loads(pickle.dumps(reranker))):
        copied.postprocess_nodes(with_vectors([[1.0, 0.0], [0.0, 1.0]]), bundle([1.0, 0.0]))
    numbers = [record.getMessage().partition(",")[0] for record in caplog.records]
    assert numbers[:2] == [f"2 nodes arrived for top_n={n}" for n in (2, 5)]  # another mistake
    assert numbers[2:] == numbers[1:2]  # of the copy, an object of its own


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[float("nan"), 0.0]], "must be finite"),
        ([[1.0, 0.0], [1.0]], r"the documents have \[1, 2\]; were all embedded by one model"),
    ],
    ids=["nan", "mixed"],
)
def test_unusable_vectors_are_an_error_that_says_so(vectors, message):
    with pytest.raises(InvalidInputError, match=message):
        SIFTReranker().postprocess_nodes(with_vectors(vectors), bundle([1.0, 0.0]))


def test_a_store_that_dies_after_retrieval_is_an_error(build_index, nodes, embed_model, question):
    index = build_index("qdrant", nodes, embed_model)
    fetched = index.as_retriever(similarity_top_k=200).retrieve(question)
    index.vector_store.client.close()
    with pytest.raises(CandidateSourceError, match="collection 'docs'") as raised:
        SIFTReranker().postprocess_nodes(fetched, query_str=question)
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert embed_model.texts == []


PAGE = "".join(f"Sentence number {n} of the page. " for n in range(24)).strip()


def neighbors(overlap):
    """Nodes of one page, cut by LlamaIndex' splitter, and a query that is nearest to the first."""
    splitter = SentenceSplitter(chunk_size=20, chunk_overlap=overlap, tokenizer=str.split)
    page = Document(text=PAGE, doc_id="page", metadata={"by": "us"})
    nodes = splitter.get_nodes_from_documents([page])
    for node, vector in zip(nodes, np.eye(len(nodes)), strict=True):
        node.embedding = vector.tolist()
    return [NodeWithScore(node=node) for node in nodes], bundle(np.arange(len(nodes), 0.0, -1))


@pytest.mark.parametrize("overlap", [0, 6])
def test_neighbors_become_one_node_with_the_text_of_all(overlap):
    nodes, query = neighbors(overlap)
    reranker = SIFTReranker(top_n=len(nodes), merge_neighbors=True, words=0)
    [kept] = reranker.postprocess_nodes(nodes, query)
    assert kept.text.split() == PAGE.split()
    assert kept.node.node_id == nodes[0].node.node_id
    assert kept.metadata["by"] == "us"
    assert kept.metadata["sift"]["chunks"] == ids(nodes)
    assert (kept.node.start_char_idx, kept.node.end_char_idx) == (0, len(kept.text))
    assert nodes[0].text != kept.text  # the original is as it was


def words(text):
    return len(text.split())


@pytest.mark.parametrize(("given", "n_kept"), [({}, 1), ({"count_tokens": words}, 2)])
def test_tokens_are_counted_by_llama_index_unless_another_way_is_given(given, n_kept):
    nodes, query = with_vectors(np.eye(6).tolist()), bundle([1.0, 0.9, 0.8, 0.7, 0.6, 0.5])
    kept = SIFTReranker(max_tokens=5, **given).postprocess_nodes(nodes, query)
    assert len(kept) == n_kept  # of three tokens, or two words each
