"""The commands of `sift`, as a Typer application that loads a command when it is called.

`sift --help` lists the commands by what stands here and imports none of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from sift_core.cli.interrupts import raise_interrupts
from sift_core.cli.settings import (
    default_map,
    refuse_flags_of_settings,
    refuse_obeyed,
    settings_file,
    wrong_setting,
)
from sift_core.cli.streams import plain
from sift_core.errors import MissingDependencyError

try:
    import typer
    from typer.core import TyperCommand, TyperGroup
except ImportError as error:
    raise MissingDependencyError("typer", extra="cli") from error

_NUMBA_SETTINGS = ".numba_config.yaml"  # names where Numba keeps, and unpickles, compiled code
_PREFIX = "SIFT"  # of environment variables: SIFT_SEARCH_N_SELECT

# Name → module below sift_core.cli and what to call in it; line in `sift --help`.
_COMMANDS = {
    "index": ("index:index", "Make a store hold the text of files and folders, in chunks."),
    "search": ("search:search", "Find the chunks that say most together."),
    "ask": ("ask:ask", "Answer a question from the indexed chunks."),
    "complete": ("complete:complete", "Go on with code or text, in the style of the index."),
    "serve": (
        "serve:serve",
        "Serve index and model to clients of OpenAI's API and others.",
    ),
    "mcp": ("mcp:mcp", "Serve the index to agents, over the Model Context Protocol."),
    "learn": ("learn:learn", "Learn the index beforehand, for quick answers without reading."),
    "calibrate": ("calibrate:calibrate", "Measure which way to answer is best for the index."),
    "diagnose": (
        "diagnose:diagnose",
        "Say how redundant a collection is, and what SIFT changes.",
    ),
    "doctor": ("doctor:doctor", "Say what is installed, what is missing and how to install it."),
    "eval": ("eval_retrieval:app", "Measure what the paper measured, on your data."),
}
# Words of other tools → our command.
_MEANT = {
    **dict.fromkeys(("chat", "repl", "talk"), "ask --chat"),
    **dict.fromkeys(("answer", "rag", "question", "generate", "run"), "ask QUESTION"),
    **dict.fromkeys(("query", "retrieve", "find", "select", "choose", "rerank"), "search QUESTION"),
    **dict.fromkeys(("add", "build", "embed", "import", "ingest", "load"), "index FOLDER"),
    **dict.fromkeys(("api", "http", "server", "service", "start", "ui", "web"), "serve"),
    **dict.fromkeys(("fine-tune", "finetune", "train"), "learn"),
    **dict.fromkeys(("benchmark", "evaluate", "measure"), "eval"),
    **dict.fromkeys(("check", "info", "status"), "doctor"),
    "agent": "mcp",
    "code": "complete FILE",
    "help": "--help",
    "version": "--version",
}
_WITH_TABLES = sorted(_COMMANDS.keys() - {"eval"})  # in sift.toml


class _Command(TyperCommand):
    """A command whose defaults may come from the settings file; an error there names the file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the file, then the arguments; help shows in spite of a wrong file."""
        assert self.name is not None
        if not ctx.resilient_parsing and not set(args) & set(ctx.help_option_names):
            refuse_flags_of_settings(self, args)
            ctx.obj = settings_file(ctx.find_root().params.get("config"))
            if ctx.obj is not None:
                options = [str(one.name) for one in self.params if _is_option(one)]
                ctx.default_map = default_map(ctx.obj, self.name, options, _WITH_TABLES)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            wrong = error.param and wrong_setting(ctx, error.param, error.message)
            if wrong:
                raise wrong from error
            raise


class _UnloadedCommand(TyperCommand):
    """Stands for a command in lists; `load` imports it."""

    def load(self) -> Any:
        """Return the command itself, as Typer makes it."""
        assert self.name is not None
        module, _, name = _COMMANDS[self.name][0].partition(":")
        found = getattr(import_module(f"sift_core.cli.{module}"), name)
        if isinstance(found, typer.Typer):
            return typer.main.get_command(found)
        application = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        prefix = f"{_PREFIX}_{self.name.upper()}"
        context = {"auto_envvar_prefix": prefix}
        application.command(self.name, cls=_Command, context_settings=context)(found)
        command: Any = typer.main.get_command(application)
        command.help = _unwrapped(command.help or "")
        for option in filter(_is_option, command.params):
            # The epilog of `sift --help` says once that every option has a variable of its own,
            # which goes before the one of all commands.
            option.show_envvar = option.envvar is not None
            if option.envvar is not None:
                option.envvar = [f"{prefix}_{option.name.upper()}", option.envvar]
        if settings := sorted(getattr(found, "settings", ())):
            for option in command.params:
                if option.name in settings:
                    option.former_flags = [*option.opts, *option.secondary_opts]
                    option.hidden, option.opts, option.secondary_opts = True, [], []
            command.epilog = (
                f"Settings without a flag: {prefix}_{settings[0].upper()} and so on in the "
                f'environment, or these keys of the table "{self.name}" in a settings file: '
                f"{', '.join(one.replace('_', '-') for one in settings)}."
            )
        return command


class _LazyGroup(TyperGroup):
    """A group that imports a command when it is called, or its own help or completion asked."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        for name, (_, line) in _COMMANDS.items():
            self.add_command(_UnloadedCommand(name=name, help=line))

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order in which a newcomer meets them."""
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return name, command and remaining arguments of a call; the command is loaded."""
        if not ctx.resilient_parsing and (meant := _MEANT.get(args[0])):
            ctx.fail(f"No such command {args[0]!r}. Did you mean 'sift {meant}'?")
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, _UnloadedCommand):
            os.getcwd()  # raises where the folder is gone, in which torch cannot be loaded
            command = self.commands[command.name or ""] = command.load()
        raise_interrupts()
        return name, command, rest

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the arguments; what is refused is told without what steers a terminal."""
        with _clean_refusals():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Call the command; what is refused is told without what steers a terminal."""
        with _clean_refusals():
            return super().invoke(ctx)


@contextmanager
def _clean_refusals() -> Iterator[None]:
    """Clean Click's usage errors, which Typer prints itself."""
    try:
        yield
    except Exception as error:
        if isinstance(message := getattr(error, "message", None), str):
            error.message = plain(message)  # type: ignore[attr-defined]
        raise


def _is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")


def _unwrapped(text: str) -> str:
    """Return a docstring with a line a paragraph, which Typer wraps; examples keep their lines."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        paragraph if paragraph.startswith("Example") else " ".join(paragraph.split())
        for paragraph in paragraphs
    )


app: typer.Typer = typer.Typer(
    name="sift",
    cls=_LazyGroup,
    help="Choose retrieved chunks that are informative together, and answer with them.",
    epilog="Settings: flags go before environment variables (SIFT_STORE, SIFT_EMBEDDER, "
    "SIFT_MODEL; SIFT_SEARCH_COMPARE for `sift search --compare`), these before one TOML file "
    "(--config, else sift.toml in your configuration folder; a table a command), and that before "
    "the defaults. Begin with: sift index FOLDER, then sift search QUESTION.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        sys.stdout.write(f"sift-rerank {version('sift-rerank')}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_print_version,
            help="Show the version and exit.",
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(envvar="SIFT_CONFIG", metavar="FILE", help="Settings, in TOML"),
    ] = None,
) -> None:
    """Take what stands before the command; a command reads the settings file itself."""
    refuse_obeyed(_NUMBA_SETTINGS, "Numba")
