"""Where this library keeps what it would be slow to make again, and whether it is whole."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
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


def measured_once(name: str, circumstances: Sequence[str], measure: Callable[[], float]) -> float:
    """Return a number that is measured once on this machine and kept in the cache folder.

    So that all processes decide alike. Where the folder cannot be read or written it is measured
    each time.

    Args:
        name: What is measured, as a file's name.
        circumstances: What it depends on beside the machine, such as versions.
        measure: Measures it.
    """
    digest = _checksum([platform.node(), platform.machine(), *circumstances])[:16]
    try:
        path = default_cache_folder() / "measured" / f"{name}-{digest}.json"
    except InvalidInputError:  # this account has no home
        return measure()
    try:
        return float(unsealed(path.read_bytes(), name))
    except (OSError, ValueError, TypeError):  # none yet, or damaged
        found = measure()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(sealed(found, name), encoding="utf-8")
        os.replace(draft, path)
    return found


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
