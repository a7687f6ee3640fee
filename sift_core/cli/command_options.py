"""What an option of a command may be set to, in the settings file and in the environment.

Typer converts such values as if they stood on the command line, and blames a flag that nobody
typed; here they are judged before, by the command's own annotations.
"""

from __future__ import annotations

import datetime
import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, get_args, get_type_hints

from sift_core.errors import InvalidInputError, MissingDependencyError

try:
    from typer.models import OptionInfo
except ImportError as error:
    raise MissingDependencyError("typer", extra="cli") from error

_BOOLEANS = {  # the words that Typer takes
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False),
}


@dataclass(frozen=True, kw_only=True)
class CommandOption:
    """One option of a command, as files and the environment set it.

    Args:
        flag: Its long flag without dashes, which is its key in a settings file: "n-select".
        parameter: Name of the function's parameter.
        kind: bool, int, float, str, Path or an Enum of texts.
        least: The smallest number allowed; None for no bound.
        most: The largest number allowed; None for no bound.
        variables: Environment variables that set it; the first that is not empty counts.
    """

    flag: str
    parameter: str
    kind: type
    least: float | None
    most: float | None
    variables: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """What it may be, to follow "it must be"."""
        if issubclass(self.kind, Enum):
            return f"one of {', '.join(str(member.value) for member in self.kind)}"
        if self.kind is bool:
            return "true or false"
        if self.kind not in (int, float):
            return "a text in quotes"
        bounds = [
            f"{sign} {bound}"
            for sign, bound in ((">=", self.least), ("<=", self.most))
            if bound is not None
        ]
        noun = "an integer" if self.kind is int else "a number"
        return f"{noun} {' and '.join(bounds)}".strip()

    @property
    def variable(self) -> str | None:
        """The environment variable that sets it now; None if there is none."""
        return next((name for name in self.variables if os.environ.get(name)), None)

    def converted(self, value: Any) -> Any:
        """Return a value as Typer takes it; numbers and booleans may be texts.

        Raises:
            ValueError: If it is none that is allowed.
        """
        if isinstance(value, str):
            value = self._parsed(value)
        elif self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        elif self.kind not in (bool, int, float) or type(value) is not self.kind:
            raise ValueError(value)
        if self.least is not None and not value >= self.least:
            raise ValueError(value)
        if self.most is not None and not value <= self.most:
            raise ValueError(value)
        return value

    def _parsed(self, text: str) -> Any:
        if issubclass(self.kind, Enum):
            return str(self.kind(text).value)
        if self.kind is bool:
            if text.strip().lower() not in _BOOLEANS:
                raise ValueError(text)
            return _BOOLEANS[text.strip().lower()]
        return self.kind(text) if self.kind in (int, float) else text


def options_of(
    command: str, function: Callable[..., Any], parameters: Iterable[Any]
) -> dict[str, CommandOption]:
    """Return the options of a command by flag: {"n-select": …}.

    Args:
        command: Its name.
        function: What it calls, with annotations.
        parameters: What Typer made of the function's parameters.
    """
    hints = get_type_hints(function, include_extras=True)
    options = {}
    for parameter in parameters:
        flags = [flag[2:] for flag in parameter.opts if flag.startswith("--")]
        if not flags or parameter.name not in hints:
            continue  # an argument, or --help
        kind, least, most = _kind_and_bounds(hints[parameter.name])
        own = f"SIFT_{command}_{flags[0]}".upper().replace("-", "_")
        shared = parameter.envvar or ()
        options[flags[0]] = CommandOption(
            flag=flags[0],
            parameter=parameter.name,
            kind=kind,
            least=least,
            most=most,
            variables=(own, *([shared] if isinstance(shared, str) else shared)),
        )
    return options


def unknown_variables(
    command: str, options: Mapping[str, CommandOption], given: Iterable[str]
) -> Iterator[str]:
    """Yield a note for each environment variable that looks like a setting and is none.

    Args:
        command: The command's name; looked at are variables that begin with SIFT_ and this name.
        options: Of the command, by flag.
        given: Names of variables.
    """
    known = [name for option in options.values() for name in option.variables]
    prefix = f"SIFT_{command.upper()}_"
    for name in sorted(given):
        if name.startswith(prefix) and name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
            advice = f"; did you mean {near[0]}?" if near else ""
            yield f"the environment variable {name} is no setting of sift {command}{advice}"


def wrong_variable(option: CommandOption) -> InvalidInputError | None:
    """Return what is wrong with the environment variable that sets an option; None if nothing."""
    if option.variable is None:
        return None
    value = os.environ[option.variable]
    try:
        option.converted(value)
    except ValueError:
        return InvalidInputError(
            f"the environment variable {option.variable} is {value!r}: it must be {option.allowed}"
        )
    return None


def as_toml(value: Any) -> str:
    """Return how a value of a settings file is shown in a message; lists and tables as […], {…}."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (list, dict)):
        return "[…]" if isinstance(value, list) else "{…}"
    return repr(value)


def _kind_and_bounds(hint: Any) -> tuple[type, float | None, float | None]:
    """Return type and bounds of `Annotated[int | None, typer.Option(min=1)]` and the like."""
    least = most = None
    while get_args(hint):  # Python 3.10 puts Optional around Annotated where the default is None
        for extra in getattr(hint, "__metadata__", ()):
            if isinstance(extra, OptionInfo):
                least, most = extra.min, extra.max
        hint = get_args(hint)[0]
    assert isinstance(hint, type)
    return hint, least, most
