import json
import os
import subprocess
import sys
import warnings
from importlib.metadata import version

import numpy as np
import pytest

from sift_core import ContextSelector, RBFKernel, SIFTSelector
from sift_core.cli import run
from sift_core.cli.application import app


@pytest.fixture
def files(tmp_path):
    """Return a function that saves arrays and returns their paths as text."""

    def save(**arrays):
        for name, array in arrays.items():
            np.save(tmp_path / f"{name}.npy", array)
        return [str(tmp_path / f"{name}.npy") for name in arrays]

    return save


def sift(*arguments):
    return run(lambda: app(list(arguments)))


@pytest.mark.parametrize(
    ("options", "selector"),
    [
        ([], ContextSelector()),
        (["--kernel", "auto", "--noise-variance", "0.5"], ContextSelector(noise_variance=0.5)),
        (["--kernel", "linear"], SIFTSelector()),
        (["--kernel", "linear", "--allow-repeats"], SIFTSelector(allow_repeats=True)),
        (["--kernel", "rbf"], SIFTSelector(kernel=RBFKernel(), noise_variance=0.1)),
        (
            ["--kernel", "rbf", "--noise-variance", "0.5"],
            SIFTSelector(kernel=RBFKernel(), noise_variance=0.5),
        ),
    ],
)
def test_select_prints_what_the_selector_returns(files, capsys, options, selector):
    generator = np.random.default_rng(0)
    query, candidates = generator.normal(size=8), generator.normal(size=(20, 8))
    paths = files(query=query, candidates=candidates)
    assert sift("select", *paths, "-n", "5", *options, "--json") == 0
    expected = selector.select(query, candidates, 5)
    record = json.loads(capsys.readouterr().out)
    assert record["positions"] == expected.positions.tolist()
    assert record["variances"] == pytest.approx(expected.variances.tolist())
    assert record["stop_reason"] == "n_select"


def test_select_prints_a_table(files, capsys):
    paths = files(query=np.array([1.0, 0.0]), candidates=np.eye(2))
    assert sift("select", *paths, "-n", "1", "--kernel", "linear") == 0
    # k(q, x) = 1, so σ² falls from 1 to 1 - 1 / (1 + 0.01) = 0.009901
    assert capsys.readouterr().out.split() == ["position", "σ²", "after", "0", "0.009901"]


WRONG = {
    "NaN": ([np.nan, 0.0], np.eye(2), "`query` must be finite, got nan"),
    "infinite candidate": ([1.0, 0.0], [[np.inf, 0.0]], "`candidates` must be finite, got inf"),
    "another dimension": ([1.0, 0.0, 0.0], np.eye(2), "must have 3 columns like the query, got 2"),
    "zero vector": ([1.0, 0.0], [[0.0, 0.0]], "must not be all zero"),
    "a matrix as query": (np.eye(2), np.eye(2), "`query` must have 1 dimension"),
    "three dimensions": (np.ones((1, 1, 2)), np.eye(2), "`query` must have 1 dimension"),
    "words": (["a", "b"], np.eye(2), "real numbers"),
}


@pytest.mark.parametrize(("query", "candidates", "message"), WRONG.values(), ids=WRONG)
def test_arrays_that_cannot_be_used_give_one_line_and_exit_code_2(
    files, capsys, query, candidates, message
):
    paths = files(query=np.array(query), candidates=np.array(candidates))
    assert sift("select", *paths) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_a_file_that_is_not_there_gives_exit_code_2(capsys):
    assert sift("select", "no-such.npy", "nor-this.npy") == 2
    assert "cannot read `query` from 'no-such.npy'" in capsys.readouterr().err


def test_a_pickle_is_not_read(files, capsys):
    paths = files(query=np.array([{}], dtype=object), candidates=np.eye(2))
    assert sift("select", *paths) == 2
    assert "cannot read `query`" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", [["--noise-variance", "0"], ["-n", "-1"], ["--kernel", "rbf", "-n", "-1"]]
)
def test_options_out_of_range_give_exit_code_2(files, capsys, option):
    paths = files(query=np.array([1.0, 0.0]), candidates=np.eye(2))
    assert sift("select", *paths, *option) == 2
    assert "must be" in capsys.readouterr().err


def test_repeats_are_refused_for_a_prompt(files, capsys):
    paths = files(query=np.array([1.0, 0.0]), candidates=np.eye(2))
    assert sift("select", *paths, "--allow-repeats") == 2
    assert "`allow_repeats` has no meaning" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["no-such-command"], ["select"], ["select", "--wrong"]])
def test_wrong_usage_gives_exit_code_2(arguments, capsys):
    assert sift(*arguments) == 2
    assert "Usage" in capsys.readouterr().err


def test_the_module_runs_as_a_command():
    command = [sys.executable, "-m", "sift_core.cli", "--help"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "select" in finished.stdout


def test_without_its_extra_the_command_says_what_to_install():
    program = "import sys; sys.modules['typer'] = None; from sift_core.cli import main; main()"
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 2
    assert finished.stderr.startswith("error: `typer` could not be imported")
    assert "sift-rerank[cli]" in finished.stderr


def test_a_terminal_that_cannot_show_sigma_still_gets_the_numbers(files):
    paths = files(query=np.array([1.0, 0.0]), candidates=np.eye(2))
    finished = subprocess.run(
        [sys.executable, "-m", "sift_core.cli", "select", *paths, "--kernel", "linear"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert b"0.009901" in finished.stdout


@pytest.mark.parametrize("content", [b"PK\x03\x04 not a zip", b"\x93NUMPY", b""])
def test_a_broken_file_gives_exit_code_2(tmp_path, content, capsys):
    (tmp_path / "broken.npy").write_bytes(content)
    assert sift("select", str(tmp_path / "broken.npy"), "x.npy") == 2
    assert "cannot read `query`" in capsys.readouterr().err


def test_an_archive_of_arrays_gives_exit_code_2(tmp_path, capsys):
    np.savez(tmp_path / "several.npz", a=np.eye(2))
    assert sift("select", str(tmp_path / "several.npz"), "x.npy") == 2
    assert "cannot read `query`" in capsys.readouterr().err


def test_the_version_is_that_of_the_distribution(capsys):
    assert run(lambda: app(["--version"])) == 0
    assert capsys.readouterr().out == f"sift-rerank {version('sift-rerank')}\n"


def test_a_warning_is_a_note_of_one_line(capsys):
    def warn():
        warnings.simplefilter("default")
        warnings.warn("local mode is slow\n for 20,000 points", UserWarning, stacklevel=1)

    assert run(warn) == 0
    assert capsys.readouterr().err == "note: local mode is slow for 20,000 points\n"


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


def test_a_defect_of_ours_is_shown_and_asked_to_be_reported():
    program = "import sift_core.cli as cli; cli._application = lambda: 1 / 0; cli.main()"
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 1
    *_, error, advice = finished.stderr.splitlines()
    assert error == "ZeroDivisionError: division by zero"
    assert advice == "This is a defect of sift-rerank: report it with the lines above."
