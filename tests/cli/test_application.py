"""How commands are found, loaded and ended: help, exit codes, notes, and defects of ours."""

import subprocess
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import pytest

from sift_core.cli import run
from sift_core.cli.application import _COMMANDS
from sift_core.installing import install_command

HEAVY = {"numpy", "rich.progress", "torch", "faiss", "matplotlib", "qdrant_client", "transformers"}


def python(program, *, code=0):
    """Return what a Python program of its own wrote."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.slow
def test_help_loads_no_command_and_nothing_heavy():
    done = python(
        "import sys\nfrom sift_core.cli import run\nfrom sift_core.cli.application import app\n"
        "code = run(lambda: app(['--help']))\n"
        f"print(*set(sys.modules) & {HEAVY!r}, file=sys.stderr)\nsys.exit(code)"
    )
    assert done.stderr == "\n"
    assert all(name in done.stdout for name in _COMMANDS)


@pytest.mark.parametrize("name", [*sorted(_COMMANDS.keys() - {"eval"}), "eval retrieval"])
def test_every_command_has_help_with_an_example_and_json(sift, name):
    told = sift(*name.split(), "--help").out
    assert f"sift {name} " in told
    assert ("--json" in told) == (name not in ("serve", "mcp"))  # which print no result


def test_the_version_is_that_of_the_distribution(sift):
    assert sift("--version").out == f"sift-rerank {version('sift-rerank')}\n"


@pytest.mark.slow
def test_the_module_runs_as_a_command_and_completes():
    command = [sys.executable, "-m", "sift_core.cli"]
    told = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    assert "search" in told.stdout
    shell = {"_SIFT_COMPLETE": "complete_bash", "COMP_WORDS": "sift search --co", "COMP_CWORD": "2"}
    program = (
        f"import os, sys; os.environ.update({shell!r}); sys.argv = ['sift']\n"
        "from sift_core.cli import main; main()"
    )
    assert "--compare" in python(program).stdout


@pytest.mark.slow
def test_without_its_extra_the_command_says_what_to_install():
    program = "import sys; sys.modules['typer'] = None; from sift_core.cli import main; main()"
    error = python(program, code=2).stderr
    assert error.startswith("error: `typer` could not be imported")
    assert install_command("cli") in error


@pytest.mark.slow
def test_a_defect_of_ours_is_shown_and_asked_to_be_reported():
    program = "import sift_core.cli as cli; cli._application = lambda: 1 / 0; cli.main()"
    *_, error, advice = python(program, code=1).stderr.splitlines()
    assert error == "ZeroDivisionError: division by zero"
    assert "report it" in advice


def test_no_command_starts_beside_a_file_that_numba_would_obey(refusal):
    Path(".numba_config.yaml").write_text("cache_dir: data\n", encoding="utf-8")
    assert "which Numba obeys" in refusal("search", "How?")
    assert "which Numba obeys" in refusal("eval", "retrieval")


def test_a_warning_is_a_note_of_one_line_that_cannot_steer_the_terminal(capsys):
    def warn():
        warnings.simplefilter("default")
        warnings.warn("local mode\x1b[2J is slow\n for 20,000 points", UserWarning, stacklevel=1)

    assert run(warn) == 0
    assert capsys.readouterr().err == "note: local mode[2J is slow for 20,000 points\n"


def test_ctrl_c_inside_compiled_code_is_ctrl_c(capsys):
    def interrupted():
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise SystemError("returned a result with an exception set") from error

    assert run(interrupted) == 130
    assert capsys.readouterr().err == ""

    def defect():
        raise SystemError("something else")

    with pytest.raises(SystemError):
        run(defect)
