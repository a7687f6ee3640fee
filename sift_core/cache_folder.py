"""Where this library keeps what it would be slow to make again, and whether it is whole."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from sift_core.errors import InvalidInputError


def default_cache_folder() -> Path:
    """Return where caches of this library are, by the XDG base directories; nothing is made.

    Raises:
        InvalidInputError: If this account has no home folder, nor a variable that says where.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = os.path.expanduser("~")  # itself where there is none
    if not os.path.isabs(base) and not os.path.isabs(home):
        raise InvalidInputError(
            "this account has no home folder to keep caches in; set HOME or XDG_CACHE_HOME to a "
            "folder that it may write, as a whole path"
        )
    root = Path(base) if os.path.isabs(base) else Path(home, ".cache")
    return root / "sift-rerank"


def sealed(content: Any, name: str) -> str:
    """Return what JSON can hold as JSON, with its name and a checksum."""
    return json.dumps({"sha256": _checksum([name, content]), "name": name, "content": content})


def unsealed(text: bytes, name: str) -> Any:
    """Return what `sealed` was given under this name.

    Raises:
        ValueError: If it is not as it was written, or something else's.
    """
    try:
        record = json.loads(text)
        content = record["content"]
        if (record["name"], record["sha256"]) == (name, _checksum([name, content])):
            return content
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise ValueError(f"it is none of ours, or damaged: {type(error).__name__}") from error
    raise ValueError("its name or its checksum is another one")


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
