"""The commands that the pages show are there: targets, modules, options of `sift`, extras."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib")  # Python 3.11
typer = pytest.importorskip("typer")
application = pytest.importorskip("sift_core.cli.application")

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`((?:sift|make|python) [^`…]*)`")
SHELLS = {"", "bash", "console", "sh"}
COMMAND = re.compile(r"^(?:\$ )?((?:sift|make|pip|python) .*)$", re.MULTILINE)
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = set(PYPROJECT["project"]["optional-dependencies"])
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found = [] if page.parent.name == "decisions" else INLINE.findall(BLOCK.sub("", text))
        for language, block in BLOCK.findall(text):
            shown = block.replace("\\\n", " ") if language in SHELLS else ""
            found += COMMAND.findall(shown)
        for command in dict.fromkeys(found):
            yield pytest.param(command, id=f"{page.stem}: {command[:50]}")


def loaded(command):
    """A command of `sift` with its options; `sift --help` has names of them only."""
    return command.load() if hasattr(command, "load") else command


def check_sift(words):
    command = typer.main.get_command(application.app)
    rest = words
    while hasattr(command, "commands") and rest:
        known = {flag for parameter in command.params for flag in parameter.opts}
        while rest and rest[0].startswith("-"):
            assert rest[0] in {*known, "--help", "--install-completion"}
            if rest.pop(0) in ("--help", "--install-completion"):
                return
            rest.pop(0)
        assert rest[0] in command.commands
        command = loaded(command.commands[rest.pop(0)])
    known = {
        flag
        for parameter in command.params
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }
    given = {word.split("=")[0] for word in rest if re.match(r"-{1,2}[a-z]", word)}
    assert given - known <= {"--help"}


def check_pip(words):
    assert words[0] == "install"
    for word in words[1:]:
        for extras in re.findall(r"^(?:\.|sift-rerank)\[(.+)\]$", word):
            assert set(extras.split(",")) <= EXTRAS
        if word.startswith("."):
            assert (ROOT / word.split("[")[0]).is_dir()


def check_python(words):
    if words[0] == "-m":
        assert find_spec(words[1]) is not None
    else:
        assert (ROOT / words[0]).is_file()


def leaves(command, *names):
    """Every command that does something, with its name."""
    command = loaded(command)
    if not hasattr(command, "commands"):
        yield pytest.param(command, id=" ".join(names))
    for name, below in getattr(command, "commands", {}).items():
        yield from leaves(below, *names, name)


@pytest.mark.parametrize("command", list(leaves(typer.main.get_command(application.app), "sift")))
def test_help_shows_examples_that_can_be_called(command):
    shown = f"{command.help or ''}\n{command.epilog or ''}"
    examples = re.findall(r"(?:^|Example: )\s*(sift .*)$", shown, re.MULTILINE)
    assert examples
    for example in examples:
        check_sift(shlex.split(example)[1:])


@pytest.mark.parametrize("command", list(commands()))
def test_the_command_is_there(command):
    program, *words = shlex.split(command, comments=True)
    if program == "make":
        assert {word for word in words if "=" not in word} <= TARGETS
    else:
        {"sift": check_sift, "pip": check_pip, "python": check_python}[program](words)
