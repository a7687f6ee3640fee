"""The settings file sift.toml, as Click's `default_map`.

The order is Click's: flags, environment, the file, defaults. The file is always the user's own: no
sift.toml of the current folder is read, since whoever made that folder may have written it. Secrets
are not settings: they come from the environment alone (QDRANT_API_KEY).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from sift_core.errors import InvalidInputError, MissingDependencyError

try:
    import typer
except ImportError as error:
    raise MissingDependencyError("typer", extra="cli") from error

FILE_NAME = "sift.toml"
SHARED = ("embedder", "model", "store")  # may stand at the top of the file, for every command

_SECRETS = (
    "; keys belong into the environment (QDRANT_API_KEY, SIFT_API_KEY, SIFT_GENERATOR_API_KEY), "
    "not here"
)


def settings_file(given: Path | None) -> Path | None:
    """Return the settings file to read; None if there is none.

    Args:
        given: The file that the user names. Default: sift.toml in the user's configuration folder
            (~/.config/sift-rerank on Linux), if it is there and can be read.

    Raises:
        InvalidInputError: If `given` is no file.
    """
    if given is None:
        own = Path(typer.get_app_dir("sift-rerank"), FILE_NAME)
        try:
            # An account without a home gets a relative path, which anybody's folder may have.
            if not own.is_absolute() or not own.is_file():
                return None
            own.read_bytes()
        except OSError as error:  # nobody has named it: the commands work without it
            warnings.warn(
                f"the settings file {str(own)!r} is left out, since it cannot be read: {error}; "
                f"make it readable, or name another one with --config",
                stacklevel=2,
            )
            return None
        return own
    if not given.is_file():
        raise InvalidInputError(
            f"there is no settings file {str(given)!r}; correct --config or SIFT_CONFIG"
        )
    return given


def default_map(
    path: Path, command: str, options: Collection[str], commands: Collection[str]
) -> dict[str, str]:
    """Return what a settings file says to one command, by the names of its parameters.

    The command's own table goes before what stands at the top. Values are texts, which Click
    judges as if they had been typed.

    Args:
        path: The file.
        command: The command's name.
        options: Names of its options' parameters.
        commands: Names of the commands that may have a table.

    Raises:
        InvalidInputError: If the file cannot be read, or has an unknown key or table, or a list,
            date or table for a value. No value of an unknown key is shown: it may be a secret.
        MissingDependencyError: If this Python (3.10) cannot read TOML and tomli is missing.
    """
    settings = _read(path)
    for key, value in settings.items():
        kind, names = ("table", commands) if isinstance(value, dict) else ("key", SHARED)
        if key not in names:
            raise _wrong(
                path,
                f"has the unknown {kind} {key!r}; there are {', '.join(SHARED)} and the tables "
                f"{', '.join(f'[{name}]' for name in sorted(commands))}{_SECRETS}",
            )
    own = settings.get(command, {})
    for key in own:
        if key.replace("-", "_") not in options:
            there = ", ".join(sorted(name.replace("_", "-") for name in options))
            raise _wrong(
                path, f"has the unknown key {key!r} in [{command}]; there are {there}{_SECRETS}"
            )
    values = {key: settings[key] for key in SHARED if key in settings} | own
    return {key.replace("-", "_"): _text(path, key, value) for key, value in values.items()}


def origin_of(context: typer.Context, parameter: Any) -> tuple[str, str | None]:
    """Return where a command got an option's value: its kind, and the name of the place.

    Args:
        context: Of the command, whose `obj` is the settings file.
        parameter: Click's.

    Returns:
        "flag" and "--store", "environment" and the variable, "file" and its path, or "default"
        and None.
    """
    match getattr(context.get_parameter_source(parameter.name), "name", None):
        case "COMMANDLINE":
            return "flag", f"--{parameter.name.replace('_', '-')}"
        case "ENVIRONMENT":
            names = parameter.envvar or [f"{context.auto_envvar_prefix}_{parameter.name.upper()}"]
            return "environment", next(name for name in names if os.environ.get(name))
        case "DEFAULT_MAP":
            return "file", str(context.obj)
    return "default", None


def wrong_setting(context: typer.Context, parameter: Any, why: str) -> InvalidInputError | None:
    """Return the error of a refused value that a variable or the file sets, and None for a flag's.

    Args:
        context: Of the command.
        parameter: Click's.
        why: What Click says of the value.
    """
    kind, place = origin_of(context, parameter)
    if kind == "environment" and place:
        return InvalidInputError(
            f"the environment variable {place} is {os.environ[place]!r}: {why}"
        )
    if kind == "file":
        key, value = parameter.name.replace("_", "-"), (context.default_map or {})[parameter.name]
        return _wrong(context.obj, f"has {key} = {value!r} for sift {context.info_name}: {why}")
    return None


def refuse_flags_of_settings(command: Any, arguments: Sequence[str]) -> None:
    """Say where a setting stands that was typed as a flag.

    Args:
        command: Click's. A parameter without a flag is a setting.
        arguments: What was typed behind the command's name.

    Raises:
        InvalidInputError: If one of the arguments is such a flag.
    """
    for parameter in command.params:
        key, flags = parameter.name.replace("_", "-"), getattr(parameter, "former_flags", ())
        if any(_is_typed(flag, one) for flag in flags for one in arguments):
            variable = f"SIFT_{command.name}_{parameter.name}".upper()
            raise InvalidInputError(
                f"sift {command.name} has no flag --{key}; set {variable} in the environment, or "
                f"{key} in the table [{command.name}] of a settings file"
            )


def _is_typed(flag: str, argument: str) -> bool:
    """Return whether an argument is a flag, perhaps with its value behind: `--n=5`, `-n5`."""
    if flag.startswith("--"):
        return argument.partition("=")[0] == flag
    return argument.startswith(flag) and not argument.startswith("--")


def refuse_obeyed(name: str, library: str) -> None:
    """Refuse to go on if the current folder has a settings file of a library that can run code.

    Args:
        name: The file.
        library: Reads the file from the current folder.

    Raises:
        InvalidInputError: If the file is there.
    """
    if Path(name).exists():
        raise InvalidInputError(
            f"the current folder has {name}, which {library} obeys and which can make it run code; "
            f"work from another folder"
        )


def _read(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ImportError as error:
            raise MissingDependencyError("tomli", extra="cli") from error
    try:
        settings: dict[str, Any] = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error}; may this user read it?") from error
    except ValueError as error:  # broken TOML, or not UTF-8
        raise _wrong(
            path, f"is no TOML: {error}; a text stands in quotes, as in store = 'faiss:.sift'"
        ) from error
    return settings


def _text(path: Path, key: str, value: Any) -> str:
    """Return a value as it would be typed."""
    if not isinstance(value, (str, int, float)):
        raise _wrong(
            path,
            f"has a {type(value).__name__} for {key!r}: it must be a text in quotes, a number, "
            f"true or false",
        )
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wrong(path: Path, what: str) -> InvalidInputError:
    return InvalidInputError(f"the settings file {str(path)!r} {what}")
