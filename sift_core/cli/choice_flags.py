"""The options of a choice as flags of a command, made from the fields of `ChoiceOptions`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from functools import wraps
from typing import Annotated, Any, get_type_hints

from sift_core.errors import MissingDependencyError
from sift_core.options import ChoiceOptions, help_of
from sift_core.protocols import Selector

try:
    import typer
except ImportError as error:
    raise MissingDependencyError("typer", extra="cli") from error

# Fields whose flag has another name. It is the name in a settings file, too.
_NAMES = {"n_candidates": "candidates"}


def with_choice_flags(*, n_select: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator: the parameter `options` of a command becomes a flag for each option.

    Options that are functions or objects have no flag.

    Args:
        n_select: Name of the parameter for `n_select`; its flag has the short form -n.
    """
    names = {
        one.name: {"n_select": n_select, **_NAMES}.get(one.name, one.name)
        for one in fields(ChoiceOptions)
        if not one.metadata.get("is_live")
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for one in signature.parameters.values():
            parameters += _flags(names) if one.name == "options" else [one]

        @wraps(command)
        def run(**given: Any) -> None:
            options = {field: given.pop(name) for field, name in names.items()}
            command(**given, options=ChoiceOptions(**options))

        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # as typer reads it
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _flags(names: Mapping[str, str]) -> list[inspect.Parameter]:
    hints = get_type_hints(ChoiceOptions, localns={"Callable": Callable, "Selector": Selector})
    return [
        inspect.Parameter(
            names[one.name],
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=one.default,
            annotation=Annotated[hints[one.name], _flag(one, names)],
        )
        for one in fields(ChoiceOptions)
        if one.name in names
    ]


def _flag(option: Field[Any], names: Mapping[str, str]) -> Any:
    """Return what Typer needs of a flag: its name, help and least value."""

    def flag_of(name: str) -> str:
        return f"--{names.get(name, name).replace('_', '-')}"

    short = ["-n"] if option.name == "n_select" else []
    return typer.Option(
        *short,
        flag_of(option.name),
        min=option.metadata.get("minimum"),
        metavar="KEY" if str(option.type).startswith("str") else None,
        help=re.sub(r"`(\w+)`", lambda found: flag_of(found[1]), help_of(option.name)),
        show_default=False,
    )
