"""The commands of `sift`, as a Typer application that loads a command when it is called.

`sift --help` lists the commands by what stands here and imports none of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from sift_core.cli.command_options import (
    CommandOption,
    options_of,
    unknown_variables,
    wrong_variable,
)
from sift_core.cli.settings import (
    defaults_of,
    read_settings,
    settings_file,
    wrong_names,
    wrong_values,
)
from sift_core.errors import InvalidInputError, MissingDependencyError, SiftError

try:
    import typer
    from typer.core import TyperCommand, TyperGroup
except ImportError as error:
    raise MissingDependencyError("typer", extra="cli") from error


class _Command(NamedTuple):
    """One command: where it is, and its line in `sift --help`."""

    module: str
    name: str  # of a function, or of a Typer application with commands of its own
    help: str
    has_settings: bool = True  # whether it takes SIFT_… variables and a table in sift.toml
    reports_settings: bool = False  # whether it says itself what is wrong with them all


_COMMANDS = {
    "index": _Command(
        "index_command", "index", "Make a store hold the text of files and folders, in chunks."
    ),
    "search": _Command("search_command", "search", "Find the chunks that say most together."),
    "ask": _Command("ask_command", "ask", "Answer a question from the indexed chunks."),
    "diagnose": _Command(
        "diagnose_command", "diagnose", "Say how redundant a collection is, and what SIFT changes."
    ),
    "doctor": _Command(
        "doctor_command",
        "doctor",
        "Say what is installed, what is missing and how to install it.",
        reports_settings=True,
    ),
    "select": _Command(
        "select_command", "select", "Choose rows of a .npy file; no store, no model.", False
    ),
    "eval": _Command("evaluation", "app", "Measure what the paper measured, on your data.", False),
}


class _ConfiguredCommand(TyperCommand):
    """A command that is told by the environment and a settings file, too."""

    options: Mapping[str, CommandOption]  # by flag
    reports_settings: bool

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the settings, then the arguments; what is wrong with a setting is said of it."""
        assert self.name is not None
        asks_for_help = bool(set(args) & set(ctx.help_option_names))
        is_lenient = self.reports_settings or asks_for_help or ctx.resilient_parsing
        if not is_lenient:
            for note in unknown_variables(self.name, self.options, os.environ):
                typer.echo(f"note: {note}", err=True)
        try:
            ctx.default_map = self._defaults(config_of(ctx), is_lenient=is_lenient)
        except SiftError:
            if not is_lenient:
                raise
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            wrong = self._wrong_variable(ctx, error)
            if wrong is None:
                raise
            raise wrong from error

    def _defaults(self, config: Path | None, *, is_lenient: bool) -> dict[str, Any]:
        path = settings_file(config)
        if path is None:
            return {}
        assert self.name is not None
        settings = read_settings(path)
        if not is_lenient:
            faults = chain(
                wrong_names(path, settings, configurable_names()),
                wrong_values(path, settings, self.name, self.options),
            )
            if (first := next(faults, None)) is not None:
                raise InvalidInputError(first)
        return defaults_of(settings, self.name, self.options)

    def _wrong_variable(self, ctx: Any, error: typer.BadParameter) -> InvalidInputError | None:
        """Return the error of a variable that a refused value is from; None if it is from none."""
        name = getattr(error.param, "name", None) or ""
        source = ctx.get_parameter_source(name)
        if source is None or source.name != "ENVIRONMENT":
            return None
        return next(
            (wrong_variable(each) for each in self.options.values() if each.parameter == name), None
        )


class _UnloadedCommand(TyperCommand):
    """Stands for a command in lists; `load` imports it."""

    def __init__(self, name: str, command: _Command) -> None:
        super().__init__(name=name, help=command.help)
        self._where = command

    def load(self) -> Any:
        """Return the command itself, as Typer makes it."""
        assert self.name is not None
        found = getattr(import_module(f"sift_core.cli.{self._where.module}"), self._where.name)
        if isinstance(found, typer.Typer):
            return typer.main.get_command(found)
        application = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        cls = _ConfiguredCommand if self._where.has_settings else TyperCommand
        application.command(self.name, cls=cls)(found)
        command: Any = typer.main.get_command(application)
        command.help = _unwrapped(command.help or "")
        if self._where.has_settings:
            command.reports_settings = self._where.reports_settings
            command.options = options_of(self.name, found, command.params)
            _name_variables(command)
        return command


def _name_variables(command: Any) -> None:
    """Let each option of a command be set by its variables, of which help shows shared ones."""
    by_parameter = {option.parameter: option for option in command.options.values()}
    for parameter in command.params:
        if parameter.name in by_parameter:
            # Every option has a variable of its own: the epilog says so once.
            parameter.show_envvar = bool(parameter.envvar)
            parameter.envvar = list(by_parameter[parameter.name].variables)


class _LazyGroup(TyperGroup):
    """A group that imports a command when it is called, or its own help or completion asked."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        for name, command in _COMMANDS.items():
            self.add_command(_UnloadedCommand(name, command))

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order in which a newcomer meets them."""
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return name, command and remaining arguments of a call; the command is loaded."""
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, _UnloadedCommand):
            command = self.commands[command.name or ""] = command.load()
        return name, command, rest


def _unwrapped(text: str) -> str:
    """Return a docstring with a line a paragraph, which Typer wraps; examples keep their lines."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        paragraph if paragraph.startswith("Example") else " ".join(paragraph.split())
        for paragraph in paragraphs
    )


app = typer.Typer(
    name="sift",
    cls=_LazyGroup,
    help="Choose retrieved chunks that are informative together, and answer with them.",
    epilog="Settings: flags go before environment variables (SIFT_STORE, SIFT_EMBEDDER, "
    "SIFT_MODEL; SIFT_SEARCH_COMPARE for `sift search --compare`), these before one TOML file "
    "(--config, else ./sift.toml, else sift.toml in your configuration folder; a table a "
    "command), and that before the defaults. "
    "Begin with: sift index FOLDER, then sift search QUESTION.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        typer.echo(f"sift-rerank {version('sift-rerank')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Show the version and exit."
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(envvar="SIFT_CONFIG", metavar="FILE", help="Settings, in TOML"),
    ] = None,
) -> None:
    """Take what stands before the command; a command reads the settings file itself."""


def config_of(context: Any) -> Path | None:
    """Return the settings file that a command's caller named; None for the usual places."""
    found: Path | None = context.find_root().params.get("config")
    return found


def configurable_names() -> list[str]:
    """Return the commands that have settings."""
    return [name for name, where in _COMMANDS.items() if where.has_settings]


def configurable_options() -> dict[str, Mapping[str, CommandOption]]:
    """Return the options of each command that has settings, by flag; this loads the commands."""
    return {
        name: _UnloadedCommand(name, _COMMANDS[name]).load().options
        for name in configurable_names()
    }
