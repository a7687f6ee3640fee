"""Where the command line takes its settings from: flags, environment, one TOML file, defaults.

Typer knows this order; here are the options that commands share, and the file. Secrets are not
settings: they come from the environment alone (QDRANT_API_KEY).
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from sift_core.cli.command_options import CommandOption, as_toml
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


def read_settings(path: Path) -> dict[str, Any]:
    """Return what a settings file holds: shared settings, and a table for each command.

    Raises:
        InvalidInputError: If the file cannot be read.
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
    return settings


def wrong_names(path: Path, settings: Mapping[str, Any], commands: Iterable[str]) -> Iterator[str]:
    """Yield what is wrong with the keys and tables at the top of a settings file.

    Args:
        path: The file, for messages.
        settings: What `read_settings` returned.
        commands: Names of the commands that may have a table.
    """
    tables = sorted(commands)
    for key, value in settings.items():
        is_table = isinstance(value, dict)
        if key not in (tables if is_table else SHARED):
            yield _secret(path, [key, *(value if is_table else ())]) or (
                f"the settings file {str(path)!r} has the unknown {'table' if is_table else 'key'} "
                f"{key!r}; there are {', '.join(SHARED)} and the tables "
                f"{', '.join(f'[{name}]' for name in tables)}"
            )


def wrong_values(
    path: Path, settings: Mapping[str, Any], command: str, options: Mapping[str, CommandOption]
) -> Iterator[str]:
    """Yield what is wrong with what a settings file says to one command.

    Args:
        path: The file, for messages.
        settings: What `read_settings` returned.
        command: The command's name.
        options: Its options, by flag.
    """
    for table, key, value in _said_to(settings, command, options):
        place = f" in [{table}]" if table else ""
        option = options.get(key.replace("_", "-"))
        if option is None:
            yield _secret(path, [key]) or (
                f"the settings file {str(path)!r} has the unknown key {key!r} in [{command}]; "
                f"there are {', '.join(sorted(options))}"
            )
            continue
        try:
            option.converted(value)
        except ValueError:
            yield (
                f"the settings file {str(path)!r} has {key} = {as_toml(value)}{place}: it must be "
                f"{option.allowed}"
            )


def defaults_of(
    settings: Mapping[str, Any], command: str, options: Mapping[str, CommandOption]
) -> dict[str, Any]:
    """Return what a settings file says to one command, by the names of its parameters.

    A command's own table goes before what stands at the top. What `wrong_values` finds is left
    out.
    """
    found = {}
    for _, key, value in _said_to(settings, command, options):
        option = options.get(key.replace("_", "-"))
        if option is not None:
            with contextlib.suppress(ValueError):
                found[option.parameter] = option.converted(value)
    return found


def _said_to(
    settings: Mapping[str, Any], command: str, options: Mapping[str, CommandOption]
) -> Iterator[tuple[str, str, Any]]:
    """Yield table ("" for the top), key and value of what one command is told; its own last."""
    for key in SHARED:
        if key in options and key in settings and not isinstance(settings[key], dict):
            yield "", key, settings[key]
    table = settings.get(command)
    if isinstance(table, dict):
        for key, value in table.items():
            yield command, key, value


def _secret(path: Path, keys: Iterable[str]) -> str | None:
    """Return a refusal of keys that seem to name a secret, without values; None if none does."""
    for key in keys:
        if _SECRET_WORDS & set(re.split(r"[^a-z]+", key.lower())):
            return (
                f"the settings file {str(path)!r} holds {key!r}; secrets belong into the "
                f"environment (QDRANT_API_KEY), where no file or backup keeps them: remove it"
            )
    return None


def _loads(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ImportError as error:
            raise MissingDependencyError("tomli", extra="cli") from error
    return tomllib.loads(text)
