"""Unmodified clients of other services against this one, each as its documentation calls it."""

import gc

import httpx
import numpy as np
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


@pytest.fixture
def texts(order):
    return [TEXTS[i] for i in order]


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


def test_llama_index_cohere(locked_url, nodes, order):
    module = pytest.importorskip("llama_index.postprocessor.cohere_rerank")
    reranker = module.CohereRerank(top_n=TOP, api_key="secret", base_url=locked_url)
    found = reranker.postprocess_nodes(nodes, query_str=QUERY)
    assert [int(one.node_id) for one in found] == order


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


@pytest.mark.parametrize("is_chat", [True, False])
def test_llama_index_openai_like(url, engine, is_chat):
    module = pytest.importorskip("llama_index.llms.openai_like")
    model = module.OpenAILike(
        model="tiny:context",
        api_base=f"{url}/v1",
        api_key="none",
        is_chat_model=is_chat,
        temperature=0,
        max_tokens=12,
    )
    expected = engine.answer(QUERY, mode="context").text
    if is_chat:
        from llama_index.core.llms import ChatMessage

        messages = [ChatMessage(role="user", content=QUERY)]
        assert model.chat(messages).message.content == expected
        assert "".join(one.delta or "" for one in model.stream_chat(messages)) == expected
    else:
        assert model.complete(QUERY).text == expected
        assert "".join(one.delta or "" for one in model.stream_complete(QUERY)) == expected


def test_llama_index_embeddings(url, embedder):
    module = pytest.importorskip("llama_index.embeddings.openai_like")
    model = module.OpenAILikeEmbedding(
        model_name=embedder.name, api_base=f"{url}/v1", api_key="none"
    )
    expected = embedder.embed_documents(TEXTS)
    np.testing.assert_allclose(model.get_text_embedding_batch(TEXTS), expected, atol=1e-6)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_langchain_chat(url, engine, is_streamed):
    module = pytest.importorskip("langchain_openai")
    model = module.ChatOpenAI(model="tiny:fine_tune", base_url=f"{url}/v1", api_key="none")
    expected = engine.answer(QUERY, mode="fine_tune")
    if is_streamed:
        pieces = list(model.stream(QUERY))
        assert "".join(str(piece.content) for piece in pieces if piece.content) == expected.text
        return
    answer = model.invoke([("system", "Be brief."), ("user", QUERY)])
    assert answer.usage_metadata["output_tokens"] > 0
    assert model.invoke(QUERY).content == expected.text


def test_langchain_embeddings(url, embedder):
    module = pytest.importorskip("langchain_openai")
    model = module.OpenAIEmbeddings(
        model=embedder.name,
        base_url=f"{url}/v1",
        api_key="none",
        check_embedding_ctx_length=False,
    )
    expected = embedder.embed_documents(TEXTS)
    np.testing.assert_allclose(model.embed_documents(TEXTS), expected, atol=1e-6)


def test_langchain_cohere(locked_url, texts):
    module = pytest.importorskip("langchain_cohere")
    from langchain_core.documents import Document

    reranker = module.CohereRerank(
        model="any", cohere_api_key="secret", base_url=locked_url, top_n=TOP
    )
    documents = [Document(page_content=text) for text in TEXTS]
    found = reranker.compress_documents(documents, QUERY)
    assert [one.page_content for one in found] == texts
    scores = [one.metadata["relevance_score"] for one in found]
    assert scores == sorted(scores, reverse=True)


@pytest.fixture
def haystack_documents():
    haystack = pytest.importorskip("haystack")
    return [haystack.Document(content=text) for text in TEXTS]


def haystack_ranker(kind, url, key):
    from haystack.utils import Secret

    secret = Secret.from_token(key)
    if kind == "cohere":
        module = pytest.importorskip("haystack_integrations.components.rankers.cohere")
        return module.CohereRanker(model="m", api_key=secret, api_base_url=url, top_k=TOP)
    if kind == "jina":
        module = pytest.importorskip("haystack_integrations.components.rankers.jina")
        return module.JinaRanker(api_key=secret, base_url=f"{url}/v1/rerank", top_k=TOP)
    module = pytest.importorskip("haystack_integrations.components.rankers.huggingface_api")
    return module.HuggingFaceTEIRanker(url=url, token=secret, top_k=TOP)


@pytest.mark.parametrize("kind", ["cohere", "jina", "tei"])
async def test_haystack(locked_url, haystack_documents, texts, kind):
    ranker = haystack_ranker(kind, locked_url, "secret")
    found = ranker.run(query=QUERY, documents=haystack_documents)["documents"]
    assert [one.content for one in found] == texts
    if hasattr(ranker, "run_async"):
        found = (await ranker.run_async(query=QUERY, documents=haystack_documents))["documents"]
        assert [one.content for one in found] == texts


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
