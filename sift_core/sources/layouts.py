"""Where other tools keep a document's text, metadata and id in the entry of a store.

LangChain   {"page_content": text, "metadata": {…}}
Haystack    {"content": text, "meta": {…}, "id": …, "blob": None, …}
LlamaIndex  {"_node_content": JSON of a node with its text, …}, the metadata beside it
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

TEXT_KEYS = ("text", "page_content", "content")
METADATA_KEYS = ("metadata", "meta")
OWN_ID_KEY = "id"  # Haystack's, beside the store's
NODE_KEY = "_node_content"
_OF_NODES = (NODE_KEY, "_node_type")  # say nothing of the document
_START_KEY = "start_char_idx"


class Entry(NamedTuple):
    """A document as another tool has stored it.

    Args:
        text: None if there is none under the key.
        metadata: The rest of the payload, with the keys of a metadata object in place of it.
        document_id: None if the payload has no id.
    """

    text: str | None
    metadata: dict[str, Any]
    document_id: str | None = None


def read_entry(payload: Mapping[str, Any], text_key: str | None = None) -> Entry:
    """Return the document of a payload, which is not changed.

    Args:
        payload: What the store has of a document beside its vectors.
        text_key: The text's key; dots lead into nested objects. Default: the text of LlamaIndex's
            node, else the first of `TEXT_KEYS` that holds a text which is not empty.
    """
    rest = dict(payload)
    node = _node_of(rest)
    text: str | None = None
    document_id: str | None = None
    if text_key is not None:
        text = take_text(rest, text_key)
    elif (text := text_of_node(node)) is None:
        found = [key for key in TEXT_KEYS if isinstance(rest.get(key), str)]
        key = max(found, key=lambda key: bool(rest[key].strip()), default=None)
        text = None if key is None else rest.pop(key)
        if key == "content" and isinstance(rest.get("meta"), Mapping):  # Haystack's own fields
            own_id = rest.pop(OWN_ID_KEY, None)
            document_id = None if own_id is None else str(own_id)
            rest = {name: value for name, value in rest.items() if value is not None}
    start = node.get(_START_KEY)
    if isinstance(start, int):
        rest.setdefault(_START_KEY, start)
    for key in METADATA_KEYS:
        if isinstance(rest.get(key), Mapping):
            rest = {**rest.pop(key), **rest}
    return Entry(text, rest, document_id)


def take_text(payload: dict[str, Any], text_key: str) -> str | None:
    """Return the text under a key and take it out; None if there is none.

    Args:
        payload: A copy; what it holds is not changed.
        text_key: Dots lead into nested objects, unless the payload has a key spelled with them.
    """
    holder, key = payload, text_key
    while key not in holder and "." in key:
        outer, key = key.split(".", 1)
        if not isinstance(holder.get(outer), Mapping):
            break
        holder[outer] = holder = dict(holder[outer])  # the client's object stays whole
    text = holder.pop(key, None)
    return text if isinstance(text, str) else None


def text_of_node(node: Mapping[str, Any]) -> str | None:
    """Return the text of a node of LlamaIndex; None if it is kept elsewhere, or there is none."""
    resource = node.get("text_resource")  # of documents and of nodes with media
    text = node.get("text") or (resource.get("text") if isinstance(resource, Mapping) else None)
    return text if isinstance(text, str) and text else None


def _node_of(rest: dict[str, Any]) -> Mapping[str, Any]:
    """Return the node of a payload and take it out; empty if there is none."""
    if not isinstance(rest.get(NODE_KEY), str):
        return {}
    try:
        node = json.loads(rest[NODE_KEY])
    except (ValueError, RecursionError):
        return {}
    for key in _OF_NODES:
        rest.pop(key, None)
    return node if isinstance(node, Mapping) else {}
