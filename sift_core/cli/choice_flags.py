"""The options of a choice as flags of a command, made from the fields of `ChoiceOptions`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from functools import wraps
from typing import Annotated, Any, TypeVar, get_type_hints

from sift_core.errors import MissingDependencyError
from sift_core.options import ChoiceOptions, help_of
from sift_core.protocols import Selector

try:
    import typer
except ImportError as error:
    raise MissingDependencyError("typer", extra="cli") from error

T = TypeVar("T")

# Fields whose flag has another name. It is the name in a settings file, too.
_NAMES = {"n_candidates": "candidates"}


def with_choice_flags(
    *, n_select: str, is_command: bool = True
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Return a decorator: the parameter `options` becomes a flag for each option of a choice.

    Options that are functions or objects have no flag. A caller in Python may leave flags out, or
    pass `options` in place of them.

    Args:
        n_select: Name of the parameter for `n_select`; its flag has the short form -n.
        is_command: Whether Typer reads the function: then its annotations are evaluated.
    """
    names = {
        one.name: {"n_select": n_select, **_NAMES}.get(one.name, one.name)
        for one in fields(ChoiceOptions)
        if not one.metadata.get("is_live")
    }

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        signature = inspect.signature(command, eval_str=is_command)
        parameters: list[inspect.Parameter] = []
        for one in signature.parameters.values():
            parameters += _flags(names) if one.name == "options" else [one]

        @wraps(command)
        def run(*arguments: Any, **given: Any) -> T:
            flags = {field: given.pop(name) for field, name in names.items() if name in given}
            given.setdefault("options", ChoiceOptions(**flags))
            return command(*arguments, **given)

        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # as typer reads it
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _flags(names: Mapping[str, str]) -> list[inspect.Parameter]:
    hints = get_type_hints(ChoiceOptions, localns={"Callable": Callable, "Selector": Selector})
    return [
        inspect.Parameter(
            names[one.name],
            inspect.Parameter.KEYWORD_ONLY,
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
