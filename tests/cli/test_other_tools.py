"""Every command over stores that LangChain, LlamaIndex and Haystack have filled themselves."""

import json
import os
import sys
from contextlib import asynccontextmanager, closing

import pytest
from fastapi.testclient import TestClient
from qdrant_client import QdrantClient, models

from sift_core.cli.serve import opened_app
from sift_core.service.settings import ServiceSettings
from sift_core.sources import FaissSource
from tests.sources.qdrant_rest import serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Payload indexes have no effect"),
    pytest.mark.filterwarnings("ignore::sift_core.errors.MissingWordsWarning"),
]

TEXTS = [
    "Plants make sugar from light and water.",
    "Leaves are green because of chlorophyll.",
    "Copper conducts electricity well.",
    "The Danube flows through Vienna.",
]
METADATA = [
    {"topic": "biology" if i < 2 else "other", "source": f"f{i}.md"} for i in range(len(TEXTS))
]
QUESTION = "Why are leaves green?"  # of which the second text speaks
MINILM = ("--embedder", "all-MiniLM-L6-v2")


def langchain_documents():
    documents = pytest.importorskip("langchain_core.documents")
    pairs = zip(TEXTS, METADATA, strict=True)
    return [documents.Document(page_content=text, metadata=one) for text, one in pairs]


def langchain_embeddings(model):
    from langchain_core.embeddings import Embeddings

    class Ours(Embeddings):
        def embed_documents(self, texts):
            return model.embed_documents(texts).tolist()

        def embed_query(self, text):
            return model.embed_query(text).tolist()

    return Ours()


def fill_langchain(folder, model, **options):
    store = pytest.importorskip("langchain_qdrant").QdrantVectorStore
    documents, embeddings = langchain_documents(), langchain_embeddings(model)
    made = store.from_documents(
        documents, embeddings, path=str(folder), collection_name="docs", **options
    )
    made.client.close()


def llama_index_documents():
    schema = pytest.importorskip("llama_index.core.schema")
    return [
        schema.Document(text=text, metadata=one, doc_id=f"doc-{i}")
        for i, (text, one) in enumerate(zip(TEXTS, METADATA, strict=True))
    ]


def llama_index(model, vector_store):
    from llama_index.core import StorageContext, VectorStoreIndex
    from llama_index.core.embeddings import BaseEmbedding

    class Ours(BaseEmbedding):
        def _get_text_embedding(self, text):
            return model.embed_documents([text])[0].tolist()

        def _get_query_embedding(self, query):
            return model.embed_query(query).tolist()

        async def _aget_query_embedding(self, query):
            return self._get_query_embedding(query)

    context = StorageContext.from_defaults(vector_store=vector_store)
    documents = llama_index_documents()
    return VectorStoreIndex.from_documents(documents, storage_context=context, embed_model=Ours())


def fill_llama_index(folder, model):
    store = pytest.importorskip("llama_index.vector_stores.qdrant").QdrantVectorStore
    client = QdrantClient(path=str(folder))
    llama_index(model, store(client=client, collection_name="docs"))
    client.close()


def haystack_documents(model):
    document = pytest.importorskip("haystack").Document
    vectors = model.embed_documents(TEXTS).tolist()
    rows = zip(TEXTS, METADATA, vectors, strict=True)
    return [document(content=text, meta=one, embedding=vector) for text, one, vector in rows]


def fill_haystack(folder, model, **options):
    module = pytest.importorskip("haystack_integrations.document_stores.qdrant")
    store = module.QdrantDocumentStore(
        path=str(folder), index="docs", embedding_dim=384, progress_bar=False, **options
    )
    store.write_documents(haystack_documents(model))
    store._client.close()


QDRANT = {
    "LangChain": (fill_langchain, {}, []),
    "LangChain, a named vector": (fill_langchain, {"vector_name": "dense"}, []),
    "LangChain, own keys": (
        fill_langchain,
        {"content_payload_key": "body", "metadata_payload_key": "meta"},
        ["--text-key", "body"],
    ),
    "LlamaIndex": (fill_llama_index, {}, []),
    "Haystack": (fill_haystack, {}, []),
    "Haystack, sparse vectors beside": (fill_haystack, {"use_sparse_embeddings": True}, []),
}


@pytest.fixture(params=QDRANT)
def qdrant(request, tmp_path, minilm):
    """A folder that a tool filled, and the flags that it needs."""
    fill, options, layout = QDRANT[request.param]
    fill(tmp_path / "q", minilm, **options)
    return tmp_path / "q", [*layout, *MINILM]


def is_right(found):
    """Check the texts, and metadata that lie where the tool shows them, not in its payload."""
    first, *others = found["chunks"]
    assert first["text"] == TEXTS[1]
    assert first["metadata"].items() >= METADATA[1].items()
    own = {"topic", "source", "start_char_idx", "doc_id", "document_id", "ref_doc_id", "_split_id"}
    assert {key for one in [first, *others] for key in one["metadata"]} <= own


def test_a_collection_is_searched_in_a_folder_and_on_a_server(qdrant, record):
    folder, layout = qdrant
    address = f"qdrant:{folder}#docs"
    is_right(record("search", QUESTION, "-n", 2, "--store", address, *layout))
    assert record("diagnose", "--store", address, "--sample", 2, *layout)["n_stored"] == 4
    with serving(QdrantClient(path=str(folder))) as server:
        address = f"qdrant:{server.url}#docs"
        is_right(record("search", QUESTION, "-n", 2, "--store", address, *layout))


def test_a_service_takes_them_too(tmp_path, minilm):
    fill_langchain(tmp_path / "q", minilm, content_payload_key="body")
    address = f"qdrant:{tmp_path / 'q'}#docs"
    options = {"store": address, "model": None, "embedder": MINILM[1], "text_key": "body"}
    with opened_app(ServiceSettings(), **options) as app, TestClient(app) as client:
        body = {"query": QUESTION, "n_select": 1}
        found = client.post("/search", json=body).raise_for_status().json()
        (chunk,) = found["columns"]["sift"]["chunks"]
        assert (chunk["text"], chunk["url"]) == (TEXTS[1], "f1.md")
        for key in ("topic", "metadata.topic"):
            other = {"query": QUESTION, "filter": {key: "other"}}
            found = client.post("/search", json=other).raise_for_status().json()
            assert {one["url"] for one in found["candidates"]} == {"f2.md", "f3.md"}


@asynccontextmanager
async def agent(*arguments):
    """Yield an `Asked` of `sift mcp` in a process of its own."""
    mcp = pytest.importorskip("mcp", reason="needs the extra mcp")
    from tests.mcp.asking import Asked

    server = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "sift_core.cli", "mcp", *map(str, arguments)],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    async with mcp.Client(server) as client:
        yield Asked(client)


async def test_an_agent_searches_and_reads_them(qdrant):
    folder, layout = qdrant
    async with agent("--store", f"qdrant:{folder}#docs", *layout) as asked:
        first, _ = (await asked("search", question=QUESTION, n=2))["passages"]
        assert (first["text"], first["source"]) == (TEXTS[1], "f1.md")
        assert first["metadata"]["topic"] == "biology"
        for name in (first["id"], first["source"]):
            assert [one["text"] for one in (await asked("read", id=name))["passages"]] == TEXTS[1:2]
        other = await asked("search", question=QUESTION, filter={"topic": "other"})
        assert {one["text"] for one in other["passages"]} == set(TEXTS[2:])
        (listed,) = (await asked("collections"))["collections"]
        assert (listed["name"], listed["n_passages"]) == ("docs", 4)


@pytest.fixture
def two_vectors(tmp_path, minilm):
    """The address of a collection with two dense vectors a point, and texts under a key inside."""
    client = QdrantClient(path=str(tmp_path / "q"))
    config = {"small": of_size(64), "large": of_size(384)}
    client.create_collection("docs", vectors_config=config)
    vectors = minilm.embed_documents(TEXTS).tolist()
    points = [
        models.PointStruct(
            id=i,
            vector={"small": [1.0] * 64, "large": vector},
            payload={"chunk": {"body": text}, "url": f"https://example.org/{i}"},
        )
        for i, (text, vector) in enumerate(zip(TEXTS, vectors, strict=True))
    ]
    client.upsert("docs", points)
    client.close()
    return f"qdrant:{tmp_path / 'q'}#docs"


async def test_an_agent_reads_one_of_two_vectors_and_adds_notes(two_vectors):
    layout = ("--vector-name", "large", "--text-key", "chunk.body", *MINILM)
    async with agent("--store", two_vectors, "--write", *layout) as asked:
        (first,) = (await asked("search", question=QUESTION, n=1))["passages"]
        assert (first["id"], first["text"]) == ("1", TEXTS[1])
        assert (await asked("read", id="https://example.org/1"))["passages"][0]["text"] == TEXTS[1]
        note = await asked("remember", text="Ann paints leaves green.", date="2026-05-01")
    async with agent("--store", two_vectors, "--write", *layout) as asked:  # stored for good
        (found,) = (await asked("search", question="What does Ann paint?", n=1))["passages"]
        assert (found["id"], found["text"]) == (note["id"], "Ann paints leaves green.")
        assert "nothing else can be forgotten" in await asked.refusal("forget", id="1")
        await asked("forget", id=note["id"])
        assert (await asked("collections"))["collections"][0]["n_passages"] == len(TEXTS)


async def test_an_agents_memory_begins_with_the_vector_and_the_key_that_are_named(tmp_path):
    new = ("--store", f"qdrant:{tmp_path / 'q'}#notes", "--write")
    async with agent(*new, "--vector-name", "dense", "--text-key", "body") as asked:
        await asked("remember", text="Ann works in Bonn.")
        assert "'body'" in await asked.refusal("remember", text="Bob.", metadata={"body": "x"})
    client = QdrantClient(path=str(tmp_path / "q"))
    (point,), _ = client.scroll("notes", with_vectors=True)
    client.close()
    assert point.payload["body"] == "Ann works in Bonn."
    assert len(point.vector["dense"]) == 384


async def test_an_agent_reads_a_collection_of_langchain_beside_its_memory(tmp_path, minilm):
    fill_langchain(tmp_path / "q", minilm)
    stores = (
        "--store",
        f"faiss:{tmp_path / 'memory'}",
        "--also-store",
        f"qdrant:{tmp_path}/q#docs",
    )
    async with agent(*stores, "--write", *MINILM) as asked:
        await asked("remember", text="Ann paints leaves green.")
        for name, text in (("memory", "Ann paints leaves green."), ("docs", TEXTS[1])):
            found = await asked("search", question=QUESTION, collection=name, n=1)
            assert [one["text"] for one in found["passages"]] == [text]


def test_what_an_agent_cannot_read_is_said_before_it_asks(two_vectors, refusal, sift):
    store = ("mcp", "--store", two_vectors)
    assert "--vector-name" in refusal(*store, *MINILM)
    assert "pass it with --embedder" in refusal(*store, "--vector-name", "large")
    error = sift(*store, *MINILM, "--vector-name", "large", code=2).err
    assert "pass the right `text_key`, or --text-key" in error
    assert "for collections of Qdrant" in refusal(
        "mcp", "--store", "faiss:new", "--write", "--text-key", "body"
    )


def test_a_folder_of_llama_index_is_searched_and_not_changed(tmp_path, minilm, record, sift):
    faiss = pytest.importorskip("faiss")
    module = pytest.importorskip("llama_index.vector_stores.faiss")
    for name, store in {
        "plain": module.FaissVectorStore(faiss.IndexFlatL2(384)),
        "map": module.FaissMapVectorStore(faiss.IndexIDMap2(faiss.IndexFlatIP(384))),
    }.items():
        index = llama_index(minilm, store)
        index.storage_context.persist(str(tmp_path / name))
        before = {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        address = f"faiss:{tmp_path / name}"
        found = record("search", QUESTION, "-n", 2, "--store", address, *MINILM)
        is_right(found)
        assert found["chunks"][0]["metadata"]["ref_doc_id"] == "doc-1"
        (tmp_path / "files").mkdir(exist_ok=True)
        (tmp_path / "files/a.md").write_text("Trams run.", encoding="utf-8")
        store = ("--store", address, *MINILM)
        refused = sift("index", tmp_path / "files", "--prune", *store, code=2).err
        assert "filled by another tool" in refused
        after = {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        assert after == before
        FaissSource.load(tmp_path / name).save(tmp_path / f"{name} copy")
        copy = FaissSource.load(tmp_path / f"{name} copy")
        assert {one.text for one in copy.documents().values()} == set(TEXTS)


def test_a_folder_of_haystack_is_searched(tmp_path, minilm, record):
    reason = "faiss-haystack is no test dependency"
    module = pytest.importorskip("haystack_integrations.document_stores.faiss", reason=reason)
    store = module.FAISSDocumentStore(embedding_dim=384)
    store.write_documents(haystack_documents(minilm))
    (tmp_path / "h").mkdir()
    store.save(tmp_path / "h/mine")
    is_right(record("search", QUESTION, "-n", 2, "--store", f"faiss:{tmp_path / 'h'}", *MINILM))


@pytest.mark.filterwarnings("ignore:.*langchain-community.*:DeprecationWarning")
def test_a_pickle_is_not_read_and_the_message_says_how_to_export(tmp_path, minilm, record, refusal):
    stores = pytest.importorskip("langchain_community.vectorstores")
    store = stores.FAISS.from_documents(langchain_documents(), langchain_embeddings(minilm))
    store.save_local(str(tmp_path / "f"), index_name="mine")
    address = f"faiss:{tmp_path / 'f'}"
    message = refusal("search", QUESTION, "--store", address, *MINILM)
    assert "mine.pkl' is a pickle" in message
    # The line that it gives works as it stands.
    line = message[message.index("FaissSource(") :].strip().replace("FOLDER", "folder")
    from sift_core import Document

    scope = {"store": store, "folder": tmp_path / "f", "FaissSource": FaissSource}
    exec(line, scope | {"Document": Document})
    is_right(record("search", QUESTION, "-n", 2, "--store", address, *MINILM))


@pytest.fixture
def collection(tmp_path):
    """Return a function that fills a collection of two points in a folder, and its address."""

    def fill(payload, vectors, config):
        client = QdrantClient(path=str(tmp_path / "q"))
        client.create_collection("docs", vectors_config=config)
        points = [models.PointStruct(id=i, vector=vectors, payload=payload) for i in (1, 2)]
        client.upsert("docs", points)
        client.close()
        return f"qdrant:{tmp_path / 'q'}#docs"

    return fill


def of_size(n):
    return models.VectorParams(size=n, distance=models.Distance.COSINE)


@pytest.mark.parametrize(
    "command", [["search", QUESTION], ["diagnose"]], ids=["search", "diagnose"]
)
def test_what_does_not_fit_is_said_with_the_flag_that_helps(collection, refusal, sift, command):
    address = collection({"passage": "a", "n": 1}, [1.0] * 384, of_size(384))
    assert "pass it with --embedder" in refusal(*command, "--store", address)
    for layout, key in (((), "'page_content'"), (("--text-key", "body"), "'body'")):
        error = sift(*command, "--store", address, *MINILM, *layout, code=2).err
        assert f"{key}" in error
        assert "only ['n', 'passage']; pass the right `text_key`, or --text-key" in error


def test_vectors_of_another_size_or_several_names_are_said(collection, refusal, sift, tmp_path):
    two = {"small": of_size(64), "large": of_size(128)}
    vectors = {"small": [1.0] * 64, "large": [1.0] * 128}
    address = collection({"text": "a"}, vectors, two)
    error = refusal("search", QUESTION, "--store", address, *MINILM)
    assert "{'large': 128, 'small': 64}" in error or "{'small': 64, 'large': 128}" in error
    assert "--vector-name" in error
    named = ("--vector-name", "small")
    error = sift("search", QUESTION, "--store", address, *MINILM, *named, code=2).err
    assert "384" in error
    assert "64" in error
    assert "--embedder" in error


def test_a_service_begins_only_over_what_it_can_read(collection):
    """It answered 503 to each request, and clients asked again for ever."""
    address = collection({"passage": "a"}, [1.0] * 384, of_size(384))
    options = {"store": address, "model": None, "embedder": MINILM[1]}
    with (
        pytest.raises(Exception, match="--text-key"),
        opened_app(ServiceSettings(), **options),
    ):
        pass


def test_flags_of_qdrant_are_refused_for_faiss(refusal, fill, tmp_path):
    from sift_core import Document

    address = fill(f"faiss:{tmp_path / 'f'}", [Document(document_id="a", text="a")])
    error = refusal("search", QUESTION, "--store", address, "--text-key", "body")
    assert "for collections of Qdrant" in error


def test_damaged_files_of_llama_index_are_one_line(tmp_path, minilm, sift):
    faiss = pytest.importorskip("faiss")
    module = pytest.importorskip("llama_index.vector_stores.faiss")
    folder = tmp_path / "f"
    index = llama_index(minilm, module.FaissVectorStore(faiss.IndexFlatIP(384)))
    index.storage_context.persist(str(folder))
    good = {path.name: path.read_bytes() for path in folder.iterdir()}
    structs = json.dumps({"index_store/data": {}}).encode()
    for name, content, why in [
        ("docstore.json", b"[]", "TypeError"),
        ("docstore.json", b"{", "JSONDecodeError"),
        ("index_store.json", structs, "0 vector indexes"),
        ("default__vector_store.json", good["default__vector_store.json"][:99], "RuntimeError"),
        ("default__vector_store.json", b"{}", "no Faiss index"),
    ]:
        (folder / name).write_bytes(content)
        error = sift("search", QUESTION, "--store", f"faiss:{folder}", *MINILM, code=2).err
        assert why in error
        assert error.count("\n") == 1
        (folder / name).write_bytes(good[name])


def test_a_collection_of_another_tool_is_added_to_only_with_its_model_named(
    minilm, sift, refusal, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    fill_langchain(tmp_path / "theirs", minilm)
    (tmp_path / "tin.md").write_text("Tin melts at 232 degrees.")
    asked = ("index", "tin.md", "--store", "qdrant:theirs#docs")
    assert "has 4 points that sift did not write" in refusal(*asked)
    with closing(QdrantClient(path=str(tmp_path / "theirs"))) as client:
        assert client.count("docs").count == len(TEXTS)
    sift(*asked, *MINILM)
    with closing(QdrantClient(path=str(tmp_path / "theirs"))) as client:
        assert client.count("docs").count == len(TEXTS) + 1
