"""Flags that several commands have, and their defaults."""

from __future__ import annotations

import inspect
import json
import re
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from itertools import chain
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from sift_core.answering.model.bundled import SMOLLM2
from sift_core.checks import check_question, short_repr
from sift_core.errors import InvalidInputError, MissingDependencyError, MissingKeyWarning
from sift_core.options import ChoiceOptions, help_of
from sift_core.protocols import CandidateSource, Selector
from sift_core.service.settings import KEY_VARIABLE
from sift_core.sources.metadata_filters import N_LOOKED_AT, missing_keys_message
from sift_core.types import Query

try:
    import typer
except ImportError as error:
    raise MissingDependencyError("typer", extra="cli") from error

T = TypeVar("T")

DEFAULT_STORE = "faiss:.sift"
DEFAULT_EMBEDDER = "all-MiniLM-L6-v2"
DEFAULT_MODEL = SMOLLM2
DEFAULT_ADAPTERS = ".sift-adapters"
GENERATOR_KEY_VARIABLE = "SIFT_GENERATOR_API_KEY"

DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
EffortName = Literal["quick", "balanced", "thorough"]

StoreOption = Annotated[
    str,
    typer.Option(
        envvar="SIFT_STORE",
        metavar="ADDRESS",
        help="faiss:FOLDER, qdrant:FOLDER or qdrant:URL; #NAME at the end names a collection of "
        "Qdrant. A server's key is read from QDRANT_API_KEY.",
    ),
]
AlsoStoreOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ADDRESS",
        help="Another store to read; may come several times. --embedder counts for it where it "
        "records none, --text-key and --vector-name do not.",
    ),
]
EmbedderOption = Annotated[
    str | None,
    typer.Option(
        envvar="SIFT_EMBEDDER",
        metavar="NAME",
        help="A sentence-transformers model: name on the hub, or folder. If left out, the one "
        f"that the store was made with; {DEFAULT_EMBEDDER} for a new store.",
    ),
]
ModelOption = Annotated[
    str,
    typer.Option(
        envvar="SIFT_MODEL",
        metavar="NAME",
        help="A causal language model of transformers: name on the hub, or folder. The default is "
        "installed as a package, without a hub.",
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
FilterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="KEY=VALUE",
        help="Only chunks with this metadata; may come several times. Several values of one key "
        "are alternatives. A dot leads into an object.",
    ),
]
EffortOption = Annotated[
    EffortName,
    typer.Option(help="How much a fine-tuning learns at most: 5, 12 or 50 steps."),
]
AdaptersOption = Annotated[
    str,
    typer.Option(
        metavar="FOLDER",
        help="Where sift learn keeps what it has learned, for the mode learned.",
    ),
]
CalibrationOption = Annotated[
    str | None,
    typer.Option(
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
HostOption = Annotated[
    str,
    typer.Option(
        help="Address to listen at. Others than the loopback need a key, which clients send: put "
        f"it into the environment variable {KEY_VARIABLE}."
    ),
]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")]
NoAuthOption = Annotated[
    bool, typer.Option("--no-auth", help="Let anybody who reaches the address call.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]


@dataclass(frozen=True, kw_only=True)
class StoreLayout:
    """How to read a collection that another tool filled; each field is a flag."""

    text_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Payload key of the texts in a collection of Qdrant that another tool filled. If "
            "left out, where LangChain, LlamaIndex and Haystack keep them.",
            show_default=False,
        ),
    ] = None
    vector_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The dense vector to search in such a collection; its only one if left out.",
            show_default=False,
        ),
    ] = None


DEFAULT_LAYOUT = StoreLayout()


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """How `sift ask` and `sift serve` answer; each field is a flag."""

    effort: EffortOption = "balanced"
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Training steps of a fine-tuning, with the paper's rate, in place of --effort.",
            show_default=False,
        ),
    ] = None
    cite: Annotated[
        bool,
        typer.Option(
            "--cite", help="Number the chunks, and ask for marks: [1] is the first source."
        ),
    ] = False
    on_off_topic: Annotated[
        Literal["refuse", "base"],
        typer.Option(
            help="What mode auto does if the index has nothing on a question: refuse says so, "
            "base lets the model answer from what it knows.",
        ),
    ] = "refuse"
    query_rewriting: Annotated[
        Literal["join", "model", "off"],
        typer.Option(
            help="How to search for a follow-up question: join searches for it with the one before "
            "it and alone, model has the model rewrite it, off searches for it as typed.",
        ),
    ] = "join"
    calibration: CalibrationOption = None
    device: DeviceOption = None
    dtype: DtypeOption = "auto"
    generator: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A server of OpenAI's API that writes the answers in place of --model, such as "
            "Ollama's http://127.0.0.1:11434/v1. It learns nothing: there are the modes context "
            f"and base. Its key is read from {GENERATOR_KEY_VARIABLE}.",
            show_default=False,
        ),
    ] = None
    generator_model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The model's name at --generator.", show_default=False),
    ] = None
    generator_window: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Tokens that the server's model sees at once; what the server says if left out, "
            "else 4096.",
            show_default=False,
        ),
    ] = None


# Options of a choice whose flag has another name. It is the name in a settings file, too.
_NAMES = {"n_candidates": "candidates"}


def with_flags(
    *,
    n_select: str = "n_select",
    settings: Collection[str] = (),
    defaults: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Return a decorator that replaces groups of options by a flag for each option.

    A group is a keyword-only parameter whose type is a dataclass, such as `ChoiceOptions`. Options
    that are functions or objects have no flag. A caller in Python may leave options out, or pass a
    group in place of its options.

    Args:
        n_select: Name of the parameter for `ChoiceOptions.n_select`. Its flag may also be written
            --n-select or -n. Default: "n_select".
        settings: Parameters and groups that get no flag: their values come from the environment or
            the settings file. Default: none.
        defaults: Fields of `ChoiceOptions` with another default in this command. Default: none.
    """

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        signature = inspect.signature(command, eval_str=True)
        groups = {
            one.name: _flags(one.annotation, n_select, defaults or {})
            for one in signature.parameters.values()
            if one.kind is one.KEYWORD_ONLY and hasattr(one.annotation, "__dataclass_fields__")
        }
        parameters: list[inspect.Parameter] = []
        for one in signature.parameters.values():
            parameters += groups[one.name].values() if one.name in groups else [one]

        @wraps(command)
        def run(*arguments: Any, **given: Any) -> T:
            for group, flags in groups.items():
                values = {
                    field: given.pop(flag.name)
                    for field, flag in flags.items()
                    if flag.name in given
                }
                if group not in given:
                    kind = signature.parameters[group].annotation
                    others = (defaults or {}) if kind is ChoiceOptions else {}
                    given[group] = kind(**{**others, **values})
            return command(*arguments, **given)

        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # as typer reads it
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        members = [groups[one].values() if one in groups else () for one in settings]
        run.settings = {*settings, *(flag.name for flag in chain(*members))} - groups.keys()  # type: ignore[attr-defined]  # as `application` reads it
        return run

    return decorate


def conditions_from(filters: Sequence[str] | None) -> dict[str, list[str | int | bool]]:
    """Return the conditions of `--filter`. A number, true or false is also compared as a text.

    From then on Qdrant's warning of missing keys is silent, since the commands say what is missing.

    Raises:
        InvalidInputError: If one is not KEY=VALUE.
    """
    if filters:
        warnings.filterwarnings("ignore", "no point of collection", MissingKeyWarning)
    conditions: dict[str, list[str | int | bool]] = {}
    for one in filters or ():
        key, sign, text = one.partition("=")
        if not key.strip() or not sign:
            raise InvalidInputError(f"--filter must be KEY=VALUE, got {short_repr(one)}")
        values = conditions.setdefault(key.strip(), [])
        values.append(text)
        if re.fullmatch(r"-?(0|[1-9][0-9]{0,17})|true|false", text):
            values.append(json.loads(text))
    return conditions


def no_match(
    conditions: Mapping[str, Sequence[str | int | bool]], source: CandidateSource, query: Query
) -> InvalidInputError:
    """Return the error for conditions of `--filter` that no chunk of a store passes."""
    some = source.fetch(query, N_LOOKED_AT)
    missing = missing_keys_message(conditions, some.metadata)
    return InvalidInputError(missing or "no chunk passes --filter; correct it")


def question_from(argument: str) -> str:
    """Return the question that an argument means: itself, or what stdin has for "-".

    Raises:
        InvalidInputError: If it is empty.
    """
    question = sys.stdin.read().strip() if argument == "-" else argument
    check_question(question)
    return question


def _flags(
    kind: type[Any], n_select: str, defaults: Mapping[str, Any]
) -> dict[str, inspect.Parameter]:
    """Return a parameter for each field of a group that has a flag."""
    others = defaults if kind is ChoiceOptions else {}
    options = [one for one in fields(kind) if not one.metadata.get("is_live")]
    names = {one.name: one.name for one in options}
    here = {"Callable": Callable, "Selector": Selector}
    hints = get_type_hints(kind, localns=here, include_extras=True)
    if kind is ChoiceOptions:  # declared without knowledge of Typer
        names |= {"n_select": n_select, **_NAMES}
        hints |= {name: Annotated[hints[name], _choice_flag(name, names)] for name in names}
    return {
        one.name: inspect.Parameter(
            names[one.name],
            inspect.Parameter.KEYWORD_ONLY,
            default=others.get(one.name, one.default),
            annotation=hints[one.name],
        )
        for one in options
    }


def _choice_flag(field: str, names: Mapping[str, str]) -> Any:
    """Return what Typer needs of a flag: its name, help and least value."""
    option = ChoiceOptions.__dataclass_fields__[field]

    def flag_of(name: str) -> str:
        return f"--{names.get(name, name).replace('_', '-')}"

    flags = [flag_of(field)]
    if field == "n_select":  # by its name everywhere else, too
        flags = ["-n", *dict.fromkeys([*flags, "--n-select"])]
    return typer.Option(
        *flags,
        min=option.metadata.get("minimum"),
        max=option.metadata.get("maximum"),
        metavar="KEY" if str(option.type).startswith("str") else None,
        help=re.sub(r"`(\w+)`", lambda found: flag_of(found[1]), help_of(field)),
        show_default=False,
    )
