"""Where the command line takes its settings from: flags, environment, one TOML file, defaults.

Typer knows this order; here are the options that commands share, and the file. Secrets are not
settings: they come from the environment alone (QDRANT_API_KEY).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from sift_core.errors import InvalidInputError, MissingDependencyError

try:
    import typer
except ImportError as error:
    raise MissingDependencyError("typer", extra="cli") from error

DEFAULT_STORE = "faiss:.sift"
DEFAULT_EMBEDDER = "all-MiniLM-L6-v2"
FILE_NAME = "sift.toml"

SHARED = ("embedder", "model", "store")  # may stand at the top of the file, for every command

StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="SIFT_STORE",
        metavar="ADDRESS",
        help="faiss:FOLDER, qdrant:FOLDER or qdrant:URL; #NAME at the end names a collection of "
        "Qdrant. A server's key is read from QDRANT_API_KEY.",
    ),
]
EmbedderOption = Annotated[
    str | None,
    typer.Option(
        "--embedder",
        envvar="SIFT_EMBEDDER",
        metavar="NAME",
        help="A sentence-transformers model: name on the hub, or folder. If left out, the one "
        f"that the store was made with; {DEFAULT_EMBEDDER} for a new store.",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        envvar="SIFT_MODEL",
        metavar="NAME",
        help="A causal language model of transformers: name on the hub, or folder.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]

_SECRET_WORDS = {"apikey", "key", "password", "passwd", "secret", "token"}


def settings_file(given: str | Path | None) -> Path | None:
    """Return the settings file to read; None where there is none.

    That is `given`, else ./sift.toml, else sift.toml in the user's folder for settings
    (~/.config/sift-rerank on Linux): the first that exists, alone.

    Raises:
        InvalidInputError: If `given` is no file.
    """
    if given is not None:
        if not Path(given).is_file():
            raise InvalidInputError(
                f"there is no settings file {str(given)!r}; correct --config or SIFT_CONFIG"
            )
        return Path(given)
    places = (Path(FILE_NAME), Path(typer.get_app_dir("sift-rerank")) / FILE_NAME)
    return next((path for path in places if path.is_file()), None)


def read_settings(path: Path, commands: Iterable[str]) -> dict[str, Any]:
    """Return what a settings file holds: shared settings, and a table for each command.

    Args:
        path: The file.
        commands: Names of the commands that may have a table.

    Raises:
        InvalidInputError: If the file cannot be read, has another key, or holds a secret.
        MissingDependencyError: If this Python (3.10) cannot read TOML and tomli is missing.
    """
    try:
        settings: dict[str, Any] = _loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise InvalidInputError(
            f"the settings file {str(path)!r} cannot be read: {error}; may this user read it?"
        ) from error
    except ValueError as error:  # broken TOML, or not UTF-8
        raise InvalidInputError(
            f"the settings file {str(path)!r} is no TOML: {error}; a text stands in quotes, as in "
            f"store = {DEFAULT_STORE!r}"
        ) from error
    tables = sorted(commands)
    for key, value in settings.items():
        is_table = isinstance(value, dict)
        if key not in (tables if is_table else SHARED):
            _refuse_secrets(path, [key, *(value if is_table else ())])
            raise InvalidInputError(
                f"the settings file {str(path)!r} has the unknown {'table' if is_table else 'key'} "
                f"{key!r}; there are {', '.join(SHARED)} and the tables "
                f"{', '.join(f'[{name}]' for name in tables)}"
            )
    return settings


def defaults_of(
    path: Path, settings: Mapping[str, Any], command: str, options: Mapping[str, str]
) -> dict[str, Any]:
    """Return what a settings file says about one command, by the names of its parameters.

    A command's own table goes before what stands at the top.

    Args:
        path: The file, for messages.
        settings: What `read_settings` returned.
        command: The command's name.
        options: Parameter of each option: {"json": "as_json"} for `--json`.

    Raises:
        InvalidInputError: If the command's table has a key that is no option of it, a table or a
            secret.
    """
    table = settings.get(command, {})
    for key, value in table.items():
        name = key.replace("_", "-")
        if name not in options or isinstance(value, dict):
            _refuse_secrets(path, [key])
            raise InvalidInputError(
                f"the settings file {str(path)!r} has the unknown key {key!r} in [{command}]; "
                f"there are {', '.join(sorted(options))}"
            )
    shared = {key: settings[key] for key in SHARED if key in settings and key in options}
    return {options[key.replace("_", "-")]: value for key, value in {**shared, **table}.items()}


def _refuse_secrets(path: Path, keys: Iterable[str]) -> None:
    """Refuse a key that seems to name a secret, without showing its value."""
    for key in keys:
        if _SECRET_WORDS & set(re.split(r"[^a-z]+", key.lower())):
            raise InvalidInputError(
                f"the settings file {str(path)!r} holds {key!r}; secrets belong into the "
                f"environment (QDRANT_API_KEY), where no file or backup keeps them: remove it"
            )


def _loads(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ImportError as error:
            raise MissingDependencyError("tomli", extra="cli") from error
    return tomllib.loads(text)
