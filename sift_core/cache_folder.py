"""Where this library keeps what it would be slow to make again."""

from __future__ import annotations

import os
from pathlib import Path

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
