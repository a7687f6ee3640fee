"""The command that adds a package to the environment that runs, for messages.

Environments of uv and pipx have no pip of their own: "pip install" would install elsewhere.
"""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path


def add_command(requirement: str, *, upgrade: bool = False) -> str:
    """Return the command that adds a requirement such as "sift-rerank[faiss]" to what runs.

    Args:
        requirement: As pip takes it, without quotes.
        upgrade: Whether versions that are installed shall be replaced by newer ones. Environments
            of `uvx` and `pipx run` are made anew and need no such option. Default: False.
    """
    quoted = shlex.quote(requirement)
    home = Path(sys.prefix)
    if "archive-v0" in home.parts:  # of uv's cache: nobody should install into it
        return f"uvx --with {quoted}"
    if (home / "pipx_metadata.json").is_file():
        if home.parent.name != "venvs":
            return f"pipx run --with {quoted}"
        return f"pipx inject {'--force ' if upgrade else ''}{home.name} {quoted}"
    return f"{pip_install()} {'--upgrade ' if upgrade else ''}{quoted}"


def pip_install() -> str:
    """Return "pip install", or uv's command where the environment has no pip."""
    if find_spec("pip") is not None:
        return "pip install"
    return f"uv pip install --python {shlex.quote(sys.executable)}"
