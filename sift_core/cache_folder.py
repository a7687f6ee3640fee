"""Where this library keeps what it would be slow to make again."""

from __future__ import annotations

import os
from pathlib import Path


def default_cache_folder() -> Path:
    """Return where caches of this library are, by the XDG base directories; nothing is made."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "sift-rerank"
