"""`sift index` makes a store equal to files, and what it remembers decides nothing.

Embeddings are hashed words here, into real Faiss and Qdrant folders; the last tests cut for MiniLM.
"""

import json
import os
from pathlib import Path

import openpyxl
import pytest

from sift_core.cli import index as index_module
from sift_core.cli.store_addresses import StoreAddress
from sift_core.cli.stores import open_store
from sift_core.documents import budget
from sift_core.documents.chunk_length import CHARACTERS_A_TOKEN, MAX_TOKENS, chunker_for
from sift_core.documents.updating import MEMORY_NAME
from sift_core.files import json_checksum, seal
from sift_core.installing import install_command
from sift_core.sources import FaissSource
from sift_core.testing import HashingEmbedder
from sift_core.types import Query
from tests.documents.test_reading import pdf


class SmallEmbedder(HashingEmbedder):
    """Has what the command asks of a sentence-transformers model."""

    max_tokens = 64

    def count_tokens(self, text):
        return len(text.split()) + 2


@pytest.fixture(autouse=True)
def loads(monkeypatch, elsewhere):
    """The names of the embedders that were loaded; `docs` has two texts, and two of no use."""
    (elsewhere / "docs").mkdir()
    (elsewhere / "docs/cats.md").write_text("# Cats\n\nThey purr at night.\n", encoding="utf-8")
    (elsewhere / "docs/dogs.md").write_text("# Dogs\n\nThey bark.\n", encoding="utf-8")
    (elsewhere / "docs/logo.png").write_bytes(b"\x89PNG")
    (elsewhere / "docs/data.txt").write_bytes(b"a\0b")
    names = []

    def load(name):
        names.append(name)
        return SmallEmbedder(32)

    monkeypatch.setattr(index_module, "load_index_embedder", load)
    monkeypatch.setattr(index_module, "load_embedder", lambda name: load(f"{name} in float32"))
    monkeypatch.setattr(index_module, "check_recorded_embedder", lambda *_: None)
    monkeypatch.setattr(index_module.flags, "DEFAULT_EMBEDDER", SmallEmbedder(32).name)
    return names


@pytest.fixture(params=["faiss:store", "qdrant:store#pets"])
def store(request):
    return request.param


def stored(address="faiss:.sift"):
    with open_store(StoreAddress.parse(address)) as source:
        return len(source.content_ids())


def counts(told):
    return told["n_added"], told["n_unchanged"], told["n_deleted"]


def long_text(n_parts):
    return "\n\n".join(f"# Part {n}\n\n" + f"word{n} " * 40 for n in range(n_parts))


def test_a_second_run_loads_no_model_and_reads_and_replaces_only_what_changed(
    record, refusal, store, loads, elsewhere, monkeypatch
):
    first = record("index", "docs", "--store", store)
    assert (first["n_files"], counts(first)) == (2, (2, 0, 0))
    assert sorted((one["source"], one["reason"]) for one in first["skipped"]) == [
        ("docs/data.txt", "binary"),
        ("docs/logo.png", "unknown_suffix"),
    ]
    refused = refusal("index", "docs", "--store", store, "--embedder", "no-such-model")
    assert "not 'no-such-model'" in refused
    again = record("index", "docs", "--store", store)
    assert counts(again) == (0, 2, 0)
    assert sorted(map(str, again["skipped"])) == sorted(map(str, first["skipped"]))
    assert len(loads) == 1
    (elsewhere / "docs/cats.md").write_text("# Cats\n\nThey hunt mice.\n", encoding="utf-8")
    read, real = [], budget.read_file
    monkeypatch.setattr(budget, "read_file", lambda f, c: read.append(f.source) or real(f, c))
    changed = record("index", "docs", "--store", store)
    assert (counts(changed), changed["deleted_files"]) == ((1, 1, 1), [])
    assert read == ["docs/cats.md"]
    assert len(loads) == 2
    (elsewhere / "docs/dogs.md").unlink()
    gone = record("index", "docs", "--store", store)
    assert (gone["n_deleted"], gone["deleted_files"]) == (1, ["docs/dogs.md"])
    assert (len(loads), stored(store)) == (2, 1)


def test_float32_embeds_what_is_new_in_full_precision(record, loads, elsewhere):
    record("index", "docs")
    (elsewhere / "docs/cats.md").write_text("# Cats\n\nThey hunt mice.\n", encoding="utf-8")
    assert counts(record("index", "docs", "--float32")) == (1, 1, 1)
    assert loads == [SmallEmbedder(32).name, f"{SmallEmbedder(32).name} in float32"]


def test_the_summary_says_what_was_done_left_out_and_comes_next(sift, elsewhere):
    (elsewhere / "docs/\x1b[31mred[bold].xyz").touch()
    out, err = sift("index", "docs")
    assert f"2 files, 2 chunks in faiss:.sift ({SmallEmbedder(32).name}): 2 new, 0 unchanged" in out
    assert "  2 unknown suffix: docs/[31mred[bold].xyz, docs/logo.png\n" in out
    assert out.endswith('Next: sift search "your question"\n')
    assert err == ""
    assert "\x1b" not in out + err


def test_pages_that_are_pictures_are_told_of_by_every_run(sift, elsewhere):
    (elsewhere / "docs/manual.pdf").write_bytes(pdf("The crane lifts.", None))
    for told in ("1 new", "1 unchanged"):
        out, _ = sift("index", "docs/manual.pdf")
        assert told in out
        assert "pictures (ocrmypdf or another OCR adds text): docs/manual.pdf (page 2)\n" in out


def test_files_of_another_call_are_not_dropped_but_by_prune(record, refusal, store):
    record("index", "docs/cats.md", "--store", store)
    error = refusal("index", "docs/dogs.md", "--store", store)
    assert "it holds docs/cats.md, which would be deleted" in error
    both = ["docs/cats.md", "docs/dogs.md"]
    assert counts(record("index", *both, "--store", store)) == (1, 1, 0)
    error = refusal("index", "docs/cats.md", "--store", store)
    assert "leave out docs/dogs.md" in error
    assert "--prune" in error
    pruned = record("index", "docs/cats.md", "--store", store, "--prune")
    assert (pruned["n_deleted"], pruned["deleted_files"]) == (1, ["docs/dogs.md"])
    assert stored(store) == 1


def test_a_file_that_cannot_be_read_keeps_its_chunks_and_is_tried_again(record, store, elsewhere):
    record("index", "docs", "--store", store)
    (elsewhere / "docs/dogs.md").unlink()
    os.mkfifo(elsewhere / "docs/dogs.md")
    found = record("index", "docs", "--store", store)
    assert (found["n_deleted"], found["kept_files"]) == (0, ["docs/dogs.md"])
    (elsewhere / "docs/dogs.md").unlink()
    (elsewhere / "docs/dogs.md").write_text("# Dogs\n\nThey are back.\n", encoding="utf-8")
    assert counts(record("index", "docs", "--store", store)) == (1, 1, 1)


def test_what_lacks_a_package_stays_as_it_is_stored(record, store, elsewhere, monkeypatch):
    page = elsewhere / "docs/page.html"
    page.write_text("<h1>Birds</h1><p>They sing.", encoding="utf-8")
    assert record("index", "docs", "--store", store)["n_added"] == 3
    page.write_text("<h1>Birds</h1><p>They fly.", encoding="utf-8")
    (elsewhere / "away").mkdir()
    (elsewhere / "away/markdownify.py").write_text("raise ImportError(name='markdownify')")
    with monkeypatch.context() as without:  # the process that reads looks where this one does
        without.syspath_prepend(elsewhere / "away")
        told = record("index", "docs", "--store", store)
    assert (counts(told), told["kept_files"]) == ((0, 2, 0), ["docs/page.html"])
    (skipped,) = [path for path in told["skipped"] if path["source"] == "docs/page.html"]
    assert skipped["reason"] == "missing_package"
    assert install_command("files") in skipped["detail"]
    assert counts(record("index", "docs", "--store", store)) == (1, 2, 1)


def test_nothing_is_deleted_where_nothing_was_readable(sift, elsewhere):
    sift("index", "docs")
    for name in ("cats.md", "dogs.md"):
        (elsewhere / "docs" / name).write_bytes(b"\0")
    assert "left out were 3 binary, no text" in sift("index", "docs", code=2).err
    assert stored() == 2


def test_what_is_left_out_now_is_deleted_and_said(sift, elsewhere):
    sift("index", "docs")
    (elsewhere / "docs/dogs.md").write_text("They bark. " * 900, encoding="utf-8")
    out = sift("index", "docs", "--max-file-size", "0.005").out
    assert "deleted: docs/dogs.md" in out
    assert "1 too large: docs/dogs.md" in out


def test_ctrl_c_keeps_what_was_stored_and_the_same_command_goes_on(
    sift, record, elsewhere, monkeypatch
):
    (elsewhere / "docs/long.md").write_text(long_text(10), encoding="utf-8")
    embed, sizes = SmallEmbedder.embed_documents, []

    def embed_until_interrupted(self, texts):
        if sum(sizes) >= 4:
            raise KeyboardInterrupt
        sizes.append(len(texts))
        return embed(self, texts)

    monkeypatch.setattr(index_module, "CHUNKS_A_WRITE", 4)
    with monkeypatch.context() as patched:
        patched.setattr(SmallEmbedder, "embed_documents", embed_until_interrupted)
        assert "Stopped. 4 of " in sift("index", "docs", code=130).err
    assert stored() == 4
    assert record("index", "docs")["n_unchanged"] == 4


def test_ctrl_c_while_reading_says_that_nothing_was_done(sift, elsewhere, monkeypatch):
    def interrupted(file, chunker):
        raise KeyboardInterrupt

    monkeypatch.setattr(budget, "read_file", interrupted)
    assert "Stopped while reading." in sift("index", "docs", code=130).err
    assert not (elsewhere / ".sift").exists()


def test_what_someone_deleted_from_the_store_is_read_again(record, store, elsewhere):
    (elsewhere / "docs/long.md").write_text(long_text(4), encoding="utf-8")
    n_chunks = record("index", "docs/long.md", "--store", store)["n_chunks"]
    assert n_chunks > 1
    with open_store(StoreAddress.parse(store)) as source:
        source.remove(sorted(source.content_ids())[:1])
        source.complete()
    assert counts(record("index", "docs/long.md", "--store", store)) == (1, n_chunks - 1, 0)


def edited(text, change):
    """Return the memory as another version may have written it, with a checksum to match."""
    content = json.loads(text)["content"]
    return seal({**content, **change(content)}, MEMORY_NAME).decode()


SPOILED = {
    "no JSON": lambda text: "{",
    "something else's": lambda text: seal({"prefill": 3}, "cost.json").decode(),
    "other readers": lambda text: edited(text, lambda _: {"readers": {"sources": "0"}}),
    "a list": lambda text: seal([], MEMORY_NAME).decode(),
    "no readers": lambda text: edited(text, lambda _: {"readers": 5}),
    "files as a list": lambda text: edited(text, lambda _: {"files": [1]}),
    "a reason that is a list": lambda text: edited(
        text, lambda of: {"files": {name: {"reason": [], "detail": ""} for name in of["files"]}}
    ),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_memory_of_something_else_is_no_memory(record, loads, spoil):
    record("index", "docs")
    memory = Path(".sift", MEMORY_NAME)
    memory.write_text(spoil(memory.read_text(encoding="utf-8")), encoding="utf-8")
    for _ in range(2):
        assert counts(record("index", "docs")) == (0, 2, 0)
    assert len(loads) == 2


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
@pytest.mark.parametrize("target", ["/dev/zero", "../mine.txt"], ids=["without end", "a file"])
def test_links_in_a_received_folder_lead_to_nothing_read_or_written(record, elsewhere, target):
    (elsewhere / "mine.txt").write_text("mine", encoding="utf-8")
    (elsewhere / ".sift").mkdir()
    (elsewhere / ".sift" / MEMORY_NAME).symlink_to(target)
    assert counts(record("index", "docs")) == (2, 0, 0)
    assert (elsewhere / "mine.txt").read_text(encoding="utf-8") == "mine"


def test_a_memory_that_cannot_be_written_is_no_error(record, elsewhere):
    record("index", "docs")
    (elsewhere / ".sift" / MEMORY_NAME).unlink()
    (elsewhere / ".sift" / MEMORY_NAME).mkdir()
    assert counts(record("index", "docs")) == (0, 2, 0)


def test_chunks_are_embedded_to_their_end(minilm):
    text = "\n\n".join(f"def f_{n}(a, b):\n    return a[{n}] + b['x.y/z{n}']" for n in range(200))
    chunks = chunker_for(minilm).split(text, format="text", document_id="x")
    assert len(chunks) > 10
    assert max(minilm.count_tokens(chunk.text) for chunk in chunks) <= minilm.max_tokens


def test_a_word_without_end_is_cut(minilm):
    chunks = chunker_for(minilm).split("x" * 50_000, format="text", document_id="x")
    assert "".join(chunk.text for chunk in chunks) == "x" * 50_000
    assert max(len(chunk.text) for chunk in chunks) <= (MAX_TOKENS + 1) * CHARACTERS_A_TOKEN


def sizes(address="faiss:.sift"):
    with open_store(StoreAddress.parse(address)) as source:
        pool = source.fetch(
            Query(text="word1", embedding=SmallEmbedder(32).embed_query("word1")), 999
        )
    return sorted(len(text.split()) + 2 for text in pool.texts)


def test_a_length_of_chunks_is_kept_until_another_is_asked_for(record, elsewhere, loads):
    (elsewhere / "docs/long.md").write_text(long_text(4), encoding="utf-8")
    first = record("index", "docs")
    assert (first["chunk_tokens"], max(sizes())) == (None, 45)
    short = record("index", "docs", "--chunk-tokens", "20")
    assert short["chunk_tokens"] == 20
    assert max(sizes()) <= 20
    assert short["n_deleted"] > 0
    n_loaded = len(loads)
    again = record("index", "docs")  # the length of the last time: nothing is read
    assert (again["chunk_tokens"], len(loads)) == (20, n_loaded)
    assert counts(again) == (0, short["n_chunks"], 0)
    (elsewhere / "docs/more.md").write_text(long_text(2), encoding="utf-8")
    record("index", "docs")
    assert max(sizes()) <= 20
    back = record("index", "docs", "--chunk-tokens", "64")
    assert max(sizes()) == 45
    assert back["n_chunks"] == stored()


def test_collections_of_one_folder_have_their_own_length(record, elsewhere):
    (elsewhere / "docs/long.md").write_text(long_text(4), encoding="utf-8")
    record("index", "docs", "--store", "qdrant:store#short", "--chunk-tokens", "20")
    assert record("index", "docs", "--store", "qdrant:store#long")["chunk_tokens"] is None
    assert max(sizes("qdrant:store#long")) == 45


def test_a_length_that_cannot_be_is_refused_and_nothing_is_written(sift, elsewhere):
    for length, complaint in (("65", "reads 64 tokens"), ("15", "--chunk-tokens"), ("x", "x")):
        assert complaint in sift("index", "docs", "--chunk-tokens", length, code=2).err
    assert not (elsewhere / ".sift").exists()


def test_a_folder_of_an_older_version_gets_words_by_the_same_command(record, loads):
    store = "faiss:.sift"
    record("index", "docs", "--store", store)
    path = Path(".sift/manifest.json")
    manifest = json.loads(path.read_text())
    del manifest["state"]["words"]
    manifest["sha256"] = json_checksum(manifest["state"])
    path.write_text(json.dumps(manifest))
    assert not FaissSource.load(".sift").has_words
    again = record("index", "docs", "--store", store)
    assert (counts(again), len(loads)) == ((0, 2, 0), 1)
    assert FaissSource.load(".sift").has_words


def test_chunks_have_dates_and_a_touched_file_stays_as_it_is(record, elsewhere):
    (elsewhere / "docs/dogs.md").write_text("---\ndate: 2019-05-01\n---\n# Dogs\n\nThey bark.\n")
    os.utime(elsewhere / "docs/cats.md", (1_000_000_000, 1_000_000_000))
    record("index", "docs")
    with open_store(StoreAddress.parse("faiss:.sift")) as source:
        query = Query(text="", embedding=SmallEmbedder(32).embed_query("dogs"))
        found = {one["source"]: one for one in source.fetch(query, 10).metadata}
    dates = {name: (one["date"], one["date_kind"]) for name, one in found.items()}
    assert dates["docs/dogs.md"] == ("2019-05-01", "front_matter")
    assert dates["docs/cats.md"] == ("2001-09-09T01:46:40+00:00", "file")
    os.utime(elsewhere / "docs/cats.md")
    assert record("index", "docs")["n_added"] == 0


def test_an_office_file_without_its_package_names_the_extra(record, store, elsewhere, monkeypatch):
    book = openpyxl.Workbook()
    book.active.append(["Birds", "sing"])
    book.save(elsewhere / "docs/birds.xlsx")
    (elsewhere / "away").mkdir()
    (elsewhere / "away/openpyxl.py").write_text("raise ImportError(name='openpyxl')")
    with monkeypatch.context() as without:
        without.syspath_prepend(elsewhere / "away")
        told = record("index", "docs", "--store", store)
    (skipped,) = [path for path in told["skipped"] if path["source"] == "docs/birds.xlsx"]
    assert skipped["reason"] == "missing_office_package"
    assert "`openpyxl` could not be imported" in skipped["detail"]
    assert install_command("office") in skipped["detail"]
    assert record("index", "docs", "--store", store)["n_added"] == 1
