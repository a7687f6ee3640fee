"""How to install a part of this library that is missing: from where the library itself came."""

from __future__ import annotations

import json
import shlex
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "sift-rerank"


def install_command(
    extra: str = "", distribution: str = DISTRIBUTION, *, upgrades: bool = False
) -> str:
    """Return the line for a shell that installs a distribution with an extra.

    It names the folder that the distribution was installed from, if it was one and is still there:
    the registry may have another version, or none. Reads one small file.

    Args:
        extra: Its name. Default: none.
        distribution: This library, or one of its plugins. Default: "sift-rerank".
        upgrades: Whether it replaces versions that are too old. Default: False.
    """
    bracket = f"[{extra}]" if extra else ""
    try:
        told = metadata.distribution(distribution).read_text("direct_url.json")
    except metadata.PackageNotFoundError:  # its folder stands on PYTHONPATH
        told = None
    origin = json.loads(told or "{}")
    folder = Path(unquote(urlsplit(origin.get("url", "")).path))
    if "dir_info" in origin and folder.is_dir():
        option = "-e " if origin["dir_info"].get("editable") else ""
        return f"pip install {option}{shlex.quote(f'{folder}{bracket}')}"
    option = "--upgrade " if upgrades else ""
    return f"pip install {option}{shlex.quote(f'{distribution}{bracket}')}"
