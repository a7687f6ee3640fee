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
from typing import Any

from sift_core.errors import CandidateSourceError
from sift_core.files import DAMAGE
from sift_core.sources.content_ids import content_id
from sift_core.sources.faiss.documents import DocumentTable, Row
from sift_core.sources.faiss.entries import faiss
from sift_core.sources.layouts import read_entry, text_of_node
from sift_core.types import Document

_DOCSTORE, _INDEX_STORE, _ID_MAP = "docstore.json", "index_store.json", "id_map.json"
_HAYSTACK = ("id", "blob", "score", "embedding", "sparse_embedding")
_SOURCE = "1"  # LlamaIndex's relationship to the document that a node is of
_START_KEY = "start_char_idx"


def find_documents(folder: Path) -> Path | None:
    """Return the file with the documents of another tool's index; None if there is none."""
    if (docstore := folder / _DOCSTORE).is_file():
        return docstore
    indexes = sorted(folder.glob("*.faiss"))
    beside = (index.with_suffix(suffix) for index in indexes for suffix in (".json", ".pkl"))
    return next(filter(Path.is_file, beside), None)


def read_index(documents: Path) -> tuple[Any, DocumentTable]:
    """Return the index and its documents. Entries without a document count as deleted.

    Args:
        documents: From `find_documents`.

    Raises:
        CandidateSourceError: If a file cannot be read, is damaged or a pickle, or there is no Faiss
            index.
    """
    folder = str(documents.parent)
    if documents.suffix == ".pkl":
        raise CandidateSourceError(
            f"{str(documents)!r} is a pickle of LangChain, which can run code and so is not "
            f"read; load it with LangChain's FAISS.load_local, then call FaissSource(store.index, "
            f"{{row: Document(document_id=i, text=d.page_content, metadata=d.metadata) for row, i "
            f"in store.index_to_docstore_id.items() for d in [store.docstore.search(i)]}})"
            f".save(FOLDER)"
        )
    try:
        index_file = _index_file(documents)
        if index_file is None:
            raise CandidateSourceError(
                f"{folder!r} has documents of LlamaIndex, and its vectors are in no Faiss index; "
                f"make one by FaissVectorStore, or run `sift index` on the files"
            )
        rows = _of_llama_index if documents.name == _DOCSTORE else _of_haystack
        return faiss.read_index(str(index_file)), DocumentTable(rows(documents))
    except (OSError, RuntimeError, *DAMAGE) as error:
        raise CandidateSourceError(
            f"{folder!r} cannot be read as an index of another tool: {type(error).__name__}: "
            f"{error}; restore it, or index the files by `sift index`"
        ) from error


def _index_file(documents: Path) -> Path | None:
    """Return the Faiss index of some documents; None if LlamaIndex keeps vectors otherwise."""
    if documents.name != _DOCSTORE:
        return documents.with_suffix(".faiss")
    for path in filter(Path.is_file, sorted(documents.parent.glob("*vector_store.json"))):
        with path.open("rb") as opened:
            if opened.read(1) != b"{":  # else a store of LlamaIndex's own
                return path
    return None


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
        fields = {k: v for k, v in documents[document_id].items() if k not in _HAYSTACK}
        entry = read_entry(fields, "content")
        text = entry.text or ""
        yield _row(faiss_id, Document(document_id=document_id, text=text, metadata=entry.metadata))


def _row(faiss_id: str, document: Document) -> Row:
    return int(faiss_id), content_id(document), document


def _read(path: Path) -> Any:
    return json.loads(path.read_bytes())


def _parsed(data: Any) -> Mapping[str, Any]:
    """Return an object that LlamaIndex keeps as it is, or as text."""
    parsed: Mapping[str, Any] = json.loads(data) if isinstance(data, str) else data
    return parsed
