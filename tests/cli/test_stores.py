"""Addresses of stores, and what opening says where something is wrong."""

import json
import os

import faiss
import pytest

from sift_core import Document
from sift_core.cli.store_addresses import StoreAddress
from sift_core.cli.stores import open_for_writing, open_store
from sift_core.documents import index_documents
from sift_core.embedders.packaged import packaged_path
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources import FaissSource
from sift_core.testing import HashingEmbedder

DOCUMENTS = [
    Document(document_id="a.md#0", text="cats purr", metadata={"source": "a.md"}),
    Document(document_id="plain", text="dogs bark"),
]


@pytest.mark.parametrize(
    ("text", "kind", "location", "collection"),
    [
        ("faiss:.sift", "faiss", ".sift", "sift"),
        ("faiss:a#b", "faiss", "a#b", "sift"),
        ("qdrant:data/q", "qdrant", "data/q", "sift"),
        ("qdrant:data#docs", "qdrant", "data", "docs"),
        ("qdrant:https://host:6333#docs", "qdrant", "https://host:6333", "docs"),
    ],
)
def test_an_address_is_read_and_written_alike(text, kind, location, collection):
    address = StoreAddress.parse(text)
    assert (address.kind, address.location, address.collection) == (kind, location, collection)
    assert str(address) == text


WRONG = {
    "no kind": ("data", "a store must be faiss:FOLDER"),
    "another kind": ("chroma:data", "qdrant:http://HOST:6333, got 'chroma:data'"),
    "no place": ("faiss:", "a store must be"),
    "a host": ("qdrant:localhost:6333", "written qdrant:http://localhost:6333"),
    "a password": ("qdrant:https://me:hunter2@host", "QDRANT_API_KEY"),
    "a key": ("qdrant:https://host?api_key=hunter2", "QDRANT_API_KEY"),
    "a password without http": ("qdrant://me:hunter2@host", "a store must be"),
    "a password before a host": ("qdrant:me:hunter2@host:6333/x", "a user and password"),
    "a password with a hash": ("qdrant:https://me:hunt#hunter2@host", "QDRANT_API_KEY"),
    "half an address": ("qdrant:http://[::1", "a store must be"),
    "no user's home": ("faiss:~no-such-user/x", "no user '~no-such-user'"),
    "a URL for Faiss": ("faiss:http://host", "a store must be"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_address_is_refused_and_secrets_are_not_repeated(text, message):
    with pytest.raises(InvalidInputError, match=message) as refusal:
        StoreAddress.parse(text)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("kind", ["faiss", "qdrant"])
def test_a_tilde_is_the_home_folder(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    address = StoreAddress.parse(f"{kind}:~/x")
    assert address.location == os.path.expanduser("~/x") != "~/x"
    assert StoreAddress.parse(str(address)) == address


@pytest.fixture(params=["faiss", "qdrant"])
def address(request, tmp_path):
    return StoreAddress.parse(f"{request.param}:{tmp_path / 'store'}")


def fill(address):
    embedder = HashingEmbedder()
    dimension = embedder.embed_query("x").shape[0]
    with open_for_writing(address, embedder_name=embedder.name, dimension=dimension) as opened:
        index_documents(opened.source, DOCUMENTS, embedder, progress=False)
    return embedder


def test_a_store_remembers_its_embedder_and_the_files_of_its_chunks(address):
    embedder = fill(address)
    with open_store(address) as source:
        assert source.embedder_name == embedder.name
        assert len(source.content_ids()) == 2
    with open_for_writing(address) as opened:
        assert sorted(opened.files().values()) == ["a.md", "plain"]
        assert set(opened.files()) == opened.source.content_ids()


def test_where_there_is_no_index_nothing_is_made(address, tmp_path):
    with pytest.raises(InvalidInputError, match="make one: sift index"), open_store(address):
        pass
    assert list(tmp_path.iterdir()) == []
    fill(address)
    other = StoreAddress.parse(f"{address}{'/other' if address.kind == 'faiss' else '#other'}")
    with pytest.raises(InvalidInputError, match="no index at"), open_store(other):
        pass


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("faiss:/a/docs", "docs"),
        ("faiss:/a/docs/.sift", "docs"),
        ("faiss:/a/docs/../.sift", "a"),
        ("faiss:/.sift", "sift"),
        ("faiss:/", "index"),
        ("qdrant:/a/docs", "docs"),
        ("qdrant:/a/docs#tea", "tea"),
        ("qdrant:http://localhost:6333", "sift"),
    ],
)
def test_an_index_is_called_what_its_reader_knows_it_by(address, name):
    assert StoreAddress.parse(address).name == name


def test_a_misspelt_collection_is_answered_with_those_that_are_there(tmp_path):
    fill(StoreAddress.parse(f"qdrant:{tmp_path}#docs"))
    misspelt = StoreAddress.parse(f"qdrant:{tmp_path}#dcos")
    said = r"or name a collection that is there after #: \['docs'\]"
    with pytest.raises(InvalidInputError, match=said), open_store(misspelt):
        pass


# The client leaves the lock's file open where it cannot take the lock.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_folder_in_use_is_told(tmp_path):
    address = StoreAddress.parse(f"qdrant:{tmp_path}")
    fill(address)
    with open_store(address):
        with pytest.raises(CandidateSourceError, match="no other process"), open_store(address):
            pass


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for kind in ("faiss", "qdrant"):
        address = StoreAddress.parse(f"{kind}:{tmp_path / 'file' / 'store'}")
        with (
            pytest.raises(CandidateSourceError, match=r"may write|may this user"),
            open_for_writing(address, embedder_name="x", dimension=3),
        ):
            pass


def test_a_store_that_does_not_say_its_embedder_needs_it_named(refusal, record, minilm):
    index = faiss.IndexFlatIP(384)
    index.add(minilm.embed_documents(["cats purr"]))
    FaissSource(index, [Document(document_id="a", text="cats purr")]).save("foreign")
    search = ["search", "cats", "--store", "faiss:foreign"]
    assert "does not say which model embedded its documents; pass it with" in refusal(*search)
    assert len(record(*search, "--embedder", minilm.name)["chunks"]) == 1


@pytest.mark.parametrize("kind", ["faiss:{}", "qdrant:{}#handbook"])
def test_a_store_remembers_how_its_documents_were_embedded(elsewhere, sift, record, kind):
    st = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    tokenizer = pytest.importorskip("tokenizers").Tokenizer
    words = tokenizer.from_file(f"{packaged_path('all-MiniLM-L6-v2')}/tokenizer.json")
    static = modules.StaticEmbedding(words, embedding_dim=8)  # of random rows
    st.SentenceTransformer(modules=[static], device="cpu").save("model")
    (elsewhere / "docs").mkdir()
    (elsewhere / "docs/a.md").write_text("# Ships\n\nThey sail at dawn.\n", encoding="utf-8")

    def options(place):
        return "--embedder", "./model", "--store", kind.format(place)

    def prompts(**prompts):
        path = elsewhere / "model/config_sentence_transformers.json"
        settings = {**json.loads(path.read_text()), "prompts": prompts}
        path.write_text(json.dumps(settings), encoding="utf-8")

    sift("index", "docs", *options("old"))
    prompts(query="query: ")  # documents are embedded as before
    sift("search", "ships", *options("old"))
    prompts(document="text: ")
    wrong = sift("search", "ships", *options("old"), code=2).err
    assert "recorded as './model'" in wrong
    assert "with the prompt 'text: '" in wrong
    assert "index them again into another --store" in wrong
    (elsewhere / "docs/b.md").write_text("# Shoes\n", encoding="utf-8")
    assert "with the prompt 'text: '" in sift("index", "docs", *options("old"), code=2).err

    sift("index", "docs", *options("new"))
    embedder = record("search", "ships", *options("new"))["embedder"]
    assert embedder == "./model; documents embedded with the prompt 'text: '"
    prompts(document="other: ")
    assert "with the prompt 'other: '" in sift("search", "ships", *options("new"), code=2).err
