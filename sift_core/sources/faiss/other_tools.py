"""Folders with a Faiss index that other tools wrote. They are read, and never written to.

LlamaIndex  default__vector_store.json (in Faiss' own format), docstore.json, index_store.json;
            id_map.json where documents can be deleted
Haystack    NAME.faiss, NAME.json
LangChain   NAME.faiss, NAME.pkl, which is refused: unpickling can run code
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sift_core.errors import CandidateSourceError
from sift_core.files import DAMAGE
from sift_core.sources.content_ids import content_id
from sift_core.sources.faiss.documents import DocumentTable, Row
from sift_core.sources.faiss.entries import faiss
from sift_core.sources.layouts import read_entry, text_of_node
from sift_core.types import Document

_DOCSTORE, _INDEX_STORE, _ID_MAP = "docstore.json", "index_store.json", "id_map.json"
_HAYSTACK = ("id", "content", "blob", "score", "embedding", "sparse_embedding")
_SOURCE = "1"  # LlamaIndex's relationship to the document that a node is of
_START_KEY = "start_char_idx"


class Found(NamedTuple):
    """The files of another tool: the index, and those with the documents."""

    index_file: Path
    documents: Path


def find_files(folder: Path) -> Found | None:
    """Return the files of another tool in a folder; None if there are none of a known kind."""
    if not folder.is_dir():
        return None
    if (docstore := folder / _DOCSTORE).is_file():
        stores = sorted(folder.glob("*vector_store.json"))
        binary = [path for path in stores if not path.read_bytes()[:1] == b"{"]
        return Found((binary or stores or [docstore])[0], docstore)
    for index in sorted(folder.glob("*.faiss")):
        for suffix in (".json", ".pkl"):
            if index.with_suffix(suffix).is_file():
                return Found(index, index.with_suffix(suffix))
    return None


def read_files(found: Found) -> tuple[Any, DocumentTable]:
    """Return the index and its documents. Entries without a document count as deleted.

    Raises:
        CandidateSourceError: If a file cannot be read, is damaged or a pickle, or there is no Faiss
            index.
    """
    if found.documents.suffix == ".pkl":
        raise CandidateSourceError(
            f"{str(found.documents)!r} is a pickle of LangChain, which can run code and so is not "
            f"read; load it with LangChain's FAISS.load_local, then call FaissSource(store.index, "
            f"{{row: Document(document_id=i, text=d.page_content, metadata=d.metadata) for row, i "
            f"in store.index_to_docstore_id.items() for d in [store.docstore.search(i)]}})"
            f".save(FOLDER)"
        )
    try:
        if found.index_file.read_bytes()[:1] == b"{" or found.index_file == found.documents:
            raise CandidateSourceError(
                f"{str(found.documents.parent)!r} has documents of LlamaIndex, and its vectors are "
                f"in no Faiss index; make one by FaissVectorStore, or run `sift index` on the files"
            )
        index = faiss.read_index(str(found.index_file))
        rows = _of_llama_index if found.documents.name == _DOCSTORE else _of_haystack
        return index, DocumentTable(rows(found.documents))
    except (OSError, RuntimeError, *DAMAGE) as error:
        raise CandidateSourceError(
            f"{str(found.index_file.parent)!r} cannot be read as an index of another tool: "
            f"{type(error).__name__}: {error}; restore it, or index the files by `sift index`"
        ) from error


def _of_llama_index(docstore: Path) -> Iterator[Row]:
    nodes = _read(docstore)["docstore/data"]
    for faiss_id, node_id in _node_ids(docstore.parent).items():
        if node_id not in nodes:  # deleted there
            continue
        node = _parsed(nodes[node_id]["__data__"])
        metadata = dict(node.get("metadata") or {})
        source = (node.get("relationships") or {}).get(_SOURCE) or {}
        about = {"ref_doc_id": source.get("node_id"), _START_KEY: node.get(_START_KEY)}
        metadata |= {key: value for key, value in about.items() if value is not None}
        text = text_of_node(node) or ""
        yield _row(faiss_id, Document(document_id=node_id, text=text, metadata=metadata))


def _node_ids(folder: Path) -> dict[str, str]:
    """Return the node of each Faiss id, as the index's own map says, else the index store."""
    if (id_map := folder / _ID_MAP).is_file():
        return dict(_read(id_map)["faiss_id_to_node_id_map"])
    stored = _read(folder / _INDEX_STORE)["index_store/data"].values()
    structs = [_parsed(each["__data__"]) for each in stored if each["__type__"] == "vector_store"]
    if len(structs) != 1:
        raise ValueError(f"{_INDEX_STORE} has {len(structs)} vector indexes in place of one")
    return dict(structs[0]["nodes_dict"])


def _of_haystack(path: Path) -> Iterator[Row]:
    found = _read(path)
    documents = {each["id"]: each for each in found["documents"]}
    for faiss_id, document_id in found["id_map"].items():
        fields = documents[document_id]
        entry = read_entry({k: v for k, v in fields.items() if k not in _HAYSTACK}, _HAYSTACK[0])
        text = fields.get("content") or ""
        yield _row(faiss_id, Document(document_id=document_id, text=text, metadata=entry.metadata))


def _row(faiss_id: str, document: Document) -> Row:
    return int(faiss_id), content_id(document), document


def _read(path: Path) -> Any:
    return json.loads(path.read_bytes())


def _parsed(data: Any) -> Mapping[str, Any]:
    """Return an object that LlamaIndex keeps as it is, or as text."""
    parsed: Mapping[str, Any] = json.loads(data) if isinstance(data, str) else data
    return parsed
