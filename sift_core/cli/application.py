"""The commands of `sift`, as a Typer application that loads a command when it is called.

`sift --help` lists the commands by what stands here and imports none of them.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from sift_core.cli.settings import defaults_of, read_settings, settings_file
from sift_core.errors import MissingDependencyError

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
        "doctor_command", "doctor", "Say what is installed, what is missing and how to install it."
    ),
    "select": _Command(
        "select_command", "select", "Choose rows of a .npy file; no store, no model.", False
    ),
    "eval": _Command("evaluation", "app", "Measure what the paper measured, on your data.", False),
}


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
        prefix = f"SIFT_{self.name.upper()}" if self._where.has_settings else None
        application = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        application.command(self.name, context_settings={"auto_envvar_prefix": prefix})(found)
        command = typer.main.get_command(application)
        command.help = _unwrapped(command.help or "")
        for parameter in command.params:
            # Every option has a variable: the epilog says so once. Shared ones show theirs.
            if not parameter.envvar and hasattr(parameter, "show_envvar"):
                parameter.show_envvar = False
        return command


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
    context: typer.Context,
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
    name = context.invoked_subcommand or ""
    command = context.command.commands.get(name)  # type: ignore[attr-defined]  # a _LazyGroup
    if command is None or name not in _COMMANDS or not _COMMANDS[name].has_settings:
        return
    path = settings_file(config)
    if path is None:
        return
    tables = [other for other, where in _COMMANDS.items() if where.has_settings]
    settings = read_settings(path, tables)
    options = {
        flag.removeprefix("--"): parameter.name
        for parameter in command.params
        for flag in parameter.opts
        if flag.startswith("--") and flag != "--help"
    }
    context.default_map = {name: defaults_of(path, settings, name, options)}
