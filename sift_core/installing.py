"""The command that adds a package to the environment that runs, for messages.

Environments of uv and pipx have no pip of their own: "pip install" would install elsewhere.
"""

from __future__ import annotations

import json
import shlex
import sys
from importlib.util import find_spec
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
    from importlib import metadata

    bracket = f"[{extra}]" if extra else ""
    try:
        recorded = metadata.distribution(distribution).read_text("direct_url.json")
    except metadata.PackageNotFoundError:  # its folder stands on PYTHONPATH
        recorded = None
    origin = json.loads(recorded or "{}")
    folder = Path(unquote(urlsplit(origin.get("url", "")).path))
    if "dir_info" in origin and folder.is_dir():
        option = "-e " if origin["dir_info"].get("editable") else ""
        quoted = shlex.quote(f"{folder}{bracket}")
        return _by_uvx_or_pipx(quoted, upgrade=upgrades) or f"{pip_install()} {option}{quoted}"
    return add_command(f"{distribution}{bracket}", upgrade=upgrades)


def add_command(requirement: str, *, upgrade: bool = False) -> str:
    """Return the command that adds a requirement such as "sift-rerank[faiss]" to what runs.

    Args:
        requirement: As pip takes it, without quotes.
        upgrade: Whether versions that are installed shall be replaced by newer ones. Environments
            of `uvx` and `pipx run` are made anew and need no such option. Default: False.
    """
    quoted = shlex.quote(requirement)
    option = "--upgrade " if upgrade else ""
    return _by_uvx_or_pipx(quoted, upgrade=upgrade) or f"{pip_install()} {option}{quoted}"


def _by_uvx_or_pipx(quoted: str, *, upgrade: bool) -> str:
    """Return the command if uv's cache or pipx has the environment; empty otherwise."""
    home = Path(sys.prefix)
    if "archive-v0" in home.parts:  # of uv's cache: nobody should install into it
        return f"uvx --with {quoted}"
    if not (home / "pipx_metadata.json").is_file():
        return ""
    if home.parent.name != "venvs":
        return f"pipx run --with {quoted}"
    return f"pipx inject {'--force ' if upgrade else ''}{home.name} {quoted}"


def pip_install() -> str:
    """Return "pip install", or uv's command where the environment has no pip."""
    if find_spec("pip") is not None:
        return "pip install"
    return f"uv pip install --python {shlex.quote(sys.executable)}"
