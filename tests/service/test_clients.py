"""Unmodified clients of other services against this one, each as its documentation calls it."""

import gc

import httpx
import pytest

cohere = pytest.importorskip("cohere", reason="a client of the service")

from tests.service.servers import PATIENCE_S, TEXTS, chosen_order, serving  # noqa: E402

QUERY = "how to fold a boat of paper"
TOP = 3

pytestmark = [  # of the clients, some of which leave connections open
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(autouse=True)
def clients_are_gone():
    """What a client left open is closed while its warnings are expected."""
    yield
    gc.collect()


@pytest.fixture
def order(embedder):
    """What the library chooses, in process."""
    return chosen_order(embedder, QUERY, TOP)


@pytest.fixture(scope="module")
def locked_url(source, embedder):
    """A service that asks for a key."""
    from sift_core.service import ServiceSettings, create_app

    settings = ServiceSettings(api_key="secret")
    with serving(create_app(source=source, embedder=embedder, settings=settings)) as url:
        yield url


@pytest.mark.parametrize("kind", ["Client", "ClientV2"])
def test_cohere(locked_url, order, kind):
    client = getattr(cohere, kind)(api_key="secret", base_url=locked_url)
    answer = client.rerank(model="rerank-v3.5", query=QUERY, documents=TEXTS, top_n=TOP)
    assert [one.index for one in answer.results] == order
    assert answer.results[0].relevance_score == 1.0
    assert answer.id
    assert answer.meta.api_version.version == ("1" if kind == "Client" else "2")


@pytest.mark.parametrize("kind", ["AsyncClient", "AsyncClientV2"])
async def test_cohere_asynchronously(locked_url, order, kind):
    client = getattr(cohere, kind)(api_key="secret", base_url=locked_url)
    answer = await client.rerank(model="rerank-v3.5", query=QUERY, documents=TEXTS, top_n=TOP)
    assert [one.index for one in answer.results] == order


def test_coheres_first_version_takes_and_returns_documents_with_fields(ranking_url, order):
    client = cohere.Client(api_key="none", base_url=ranking_url)
    documents = [{"text": text} for text in TEXTS]
    answer = client.rerank(
        model="m", query=QUERY, documents=documents, top_n=TOP, return_documents=True
    )
    assert [one.document.text for one in answer.results] == [TEXTS[i] for i in order]


@pytest.mark.parametrize("kind", ["Client", "ClientV2"])
def test_cohere_reads_errors(locked_url, kind):
    client = getattr(cohere, kind)(api_key="wrong", base_url=locked_url)
    with pytest.raises(cohere.UnauthorizedError) as caught:
        client.rerank(model="m", query=QUERY, documents=TEXTS)
    assert "key" in caught.value.body["message"]
    client = getattr(cohere, kind)(api_key="secret", base_url=locked_url)
    with pytest.raises(cohere.BadRequestError) as caught:
        client.rerank(model="m", query=QUERY, documents=[])
    assert "documents" in caught.value.body["message"]


@pytest.fixture
def nodes():
    schema = pytest.importorskip("llama_index.core.schema")
    return [
        schema.NodeWithScore(node=schema.TextNode(text=text, id_=str(i)), score=0.5)
        for i, text in enumerate(TEXTS)
    ]


@pytest.mark.parametrize("base", ["", "/v1"])
def test_llama_index_jina(locked_url, nodes, order, base):
    module = pytest.importorskip("llama_index.postprocessor.jinaai_rerank")
    reranker = module.JinaRerank(top_n=TOP, api_key="secret", base_url=f"{locked_url}{base}")
    found = reranker.postprocess_nodes(nodes, query_str=QUERY)
    assert [int(one.node_id) for one in found] == order
    reranker = module.JinaRerank(top_n=TOP, api_key="wrong", base_url=f"{locked_url}{base}")
    with pytest.raises(RuntimeError, match="key"):
        reranker.postprocess_nodes(nodes, query_str=QUERY)


def test_llama_index_tei(locked_url, nodes, order):
    module = pytest.importorskip("llama_index.postprocessor.tei_rerank")
    reranker = module.TextEmbeddingInference(
        top_n=TOP, base_url=locked_url, auth_token="Bearer secret"
    )
    found = reranker.postprocess_nodes(nodes, query_str=QUERY)
    assert [int(one.node_id) for one in found] == order


def test_open_webuis_request_replayed(locked_url):
    # open_webui/retrieval/models/external.py: ExternalReranker.predict
    sent = {"model": "m", "query": QUERY, "documents": TEXTS, "top_n": len(TEXTS)}
    headers = {"Content-Type": "application/json", "Authorization": "Bearer secret"}
    answer = httpx.post(f"{locked_url}/v1/rerank", headers=headers, json=sent, timeout=PATIENCE_S)
    data = answer.json()
    found = sorted(data["results"], key=lambda one: one["index"])
    scores = [one["relevance_score"] for one in found]
    assert len(scores) == len(TEXTS)
    assert max(scores) == 1.0
