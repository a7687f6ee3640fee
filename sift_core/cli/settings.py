"""Options that commands share, and sift.toml as Click's `default_map`.

The order is Click's: flags, environment, the file, defaults. The file is always the user's own: no
sift.toml of the current folder is read, since whoever made that folder may have written it. Secrets
are not settings: they come from the environment alone (QDRANT_API_KEY).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

from sift_core.answering.model.bundled import SMOLLM2
from sift_core.errors import InvalidInputError, MissingDependencyError

try:
    import typer
except ImportError as error:
    raise MissingDependencyError("typer", extra="cli") from error

DEFAULT_STORE = "faiss:.sift"
DEFAULT_EMBEDDER = "all-MiniLM-L6-v2"
DEFAULT_MODEL = SMOLLM2
DEFAULT_ADAPTERS = ".sift-adapters"
FILE_NAME = "sift.toml"

SHARED = ("embedder", "model", "store")  # may stand at the top of the file, for every command


class EffortName(str, Enum):
    """How much a fine-tuning learns."""

    QUICK = "quick"
    BALANCED = "balanced"
    THOROUGH = "thorough"


class DtypeName(str, Enum):
    """Number types of a model's weights."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class OffTopic(str, Enum):
    """What is done with a question on which the index says nothing."""

    REFUSE = "refuse"
    BASE = "base"


class CondenseName(str, Enum):
    """What is searched for where a question follows others."""

    JOIN = "join"
    MODEL = "model"
    OFF = "off"

    @property
    def condense(self) -> Literal["join", "model"] | None:
        """As `AnswerEngine` takes it."""
        return None if self is CondenseName.OFF else self.value


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
    str,
    typer.Option(
        "--model",
        envvar="SIFT_MODEL",
        metavar="NAME",
        help="A causal language model of transformers: name on the hub, or folder. The default is "
        "installed as a package, without a hub.",
    ),
]
CiteOption = Annotated[
    bool,
    typer.Option("--cite", help="Number the chunks, and ask for marks: [1] is the first source."),
]
OffTopicOption = Annotated[
    OffTopic,
    typer.Option(
        "--on-off-topic",
        help="What mode auto does where the index says nothing on a question: says so, or lets "
        "the model answer from what it knows.",
    ),
]
CondenseOption = Annotated[
    CondenseName,
    typer.Option(
        help="What a question that follows others is searched for: together with the one before "
        "it and by itself, as the model rewrites it, or by itself alone.",
    ),
]
QueryOption = Annotated[
    list[str] | None,
    typer.Option(
        "--query",
        help="What is looked for in place of QUESTION: a part, or a rewrite; may come several "
        "times.",
    ),
]
EffortOption = Annotated[
    EffortName,
    typer.Option(help="How much a fine-tuning learns at most: 5, 12 or 50 steps."),
]
StepsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Training steps of a fine-tuning, with the paper's rate, in place of --effort.",
        show_default=False,
    ),
]
AdaptersOption = Annotated[
    str,
    typer.Option(
        "--adapters",
        metavar="FOLDER",
        help="Where the adapters are that sift learn makes for the mode merged.",
    ),
]
CalibrationOption = Annotated[
    str | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="Where what sift calibrate finds is kept; beside the index if left out.",
        show_default=False,
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(help="cpu, cuda, mps; the fastest there is if left out.", show_default=False),
]
DtypeOption = Annotated[
    DtypeName,
    typer.Option(
        help="Number type of the model. auto takes the fastest on a CPU (sift doctor says which), "
        "and that of the stored weights on a GPU."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]

_SECRETS = "; secrets belong into the environment (QDRANT_API_KEY), not here"


def question_from(argument: str) -> str:
    """Return the question that an argument means: itself, or what stdin has for "-".

    Raises:
        InvalidInputError: If it is empty.
    """
    from sift_core.checks import check_question

    question = sys.stdin.read().strip() if argument == "-" else argument
    check_question(question)
    return question


def settings_file(given: Path | None) -> Path | None:
    """Return the settings file to read; None if there is none.

    Args:
        given: The file that the user names. Default: sift.toml in the user's configuration folder
            (~/.config/sift-rerank on Linux), if it is there.

    Raises:
        InvalidInputError: If `given` is no file.
    """
    if given is None:
        own = Path(typer.get_app_dir("sift-rerank"), FILE_NAME)
        # An account without a home gets a relative path, which anybody's folder may have.
        return own if own.is_absolute() and own.is_file() else None
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
        is_table = isinstance(value, dict)
        if key not in (commands if is_table else SHARED):
            raise InvalidInputError(
                f"the settings file {str(path)!r} has the unknown {'table' if is_table else 'key'} "
                f"{key!r}; there are {', '.join(SHARED)} and the tables "
                f"{', '.join(f'[{name}]' for name in sorted(commands))}{_SECRETS}"
            )
    values = {key: _text(path, key, settings[key]) for key in SHARED if key in settings}
    for key, value in settings.get(command, {}).items():
        if key.replace("-", "_") not in options:
            there = ", ".join(sorted(name.replace("_", "-") for name in options))
            raise InvalidInputError(
                f"the settings file {str(path)!r} has the unknown key {key!r} in [{command}]; "
                f"there are {there}{_SECRETS}"
            )
        values[key.replace("-", "_")] = _text(path, key, value)
    return values


def origin_of(context: typer.Context, parameter: Any) -> tuple[str, str | None]:
    """Return where a command got an option's value: its kind, and the name of the place.

    Args:
        context: Of the command, whose `obj` is the settings file.
        parameter: Click's.

    Returns:
        "flag" and "--store", "environment" and the variable, "file" and its path, or "default"
        and None.
    """
    source = context.get_parameter_source(parameter.name)
    if source is not None and source.name == "COMMANDLINE":
        return "flag", f"--{parameter.name.replace('_', '-')}"
    if source is not None and source.name == "ENVIRONMENT":
        names = parameter.envvar or [f"{context.auto_envvar_prefix}_{parameter.name.upper()}"]
        return "environment", next(name for name in names if os.environ.get(name))
    if source is not None and source.name == "DEFAULT_MAP":
        return "file", str(context.obj)
    return "default", None


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


def wrong_setting(context: typer.Context, parameter: Any, why: str) -> InvalidInputError | None:
    """Return the error of a refused value that a variable or the file sets; None for a flag's.

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
        key, value = parameter.name, (context.default_map or {})[parameter.name]
        return InvalidInputError(
            f"the settings file {place!r} has {key.replace('_', '-')} = {value!r} for "
            f"sift {context.info_name}: {why}"
        )
    return None


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
        raise InvalidInputError(
            f"the settings file {str(path)!r} cannot be read: {error}; may this user read it?"
        ) from error
    except ValueError as error:  # broken TOML, or not UTF-8
        raise InvalidInputError(
            f"the settings file {str(path)!r} is no TOML: {error}; a text stands in quotes, as in "
            f"store = {DEFAULT_STORE!r}"
        ) from error
    return settings


def _text(path: Path, key: str, value: Any) -> str:
    """Return a value as it would be typed."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, (str, int, float)):
        raise InvalidInputError(
            f"the settings file {str(path)!r} has a {type(value).__name__} for {key!r}: it must "
            f"be a text in quotes, a number, true or false"
        )
    return str(value)
