"""Flags go before the environment, that before one TOML file, that before the defaults."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sift_core.cli import run
from sift_core.cli.application import _COMMANDS, app
from sift_core.cli.command_options import CommandOption
from sift_core.cli.settings import defaults_of, settings_file, wrong_values
from sift_core.errors import InvalidInputError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("SIFT_STORE", "SIFT_CONFIG", "SIFT_EMBEDDER", "SIFT_INDEX_STORE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def store_error(capsys, *arguments):
    """Return the line of an index command whose store has a wrong form, which it repeats."""
    assert run(lambda: app([*arguments])) == 2
    return capsys.readouterr().err


def test_flag_then_variable_then_file_then_default(elsewhere, monkeypatch, capsys):
    (elsewhere / "a.md").write_text("text", encoding="utf-8")
    (elsewhere / "sift.toml").write_text('store = "of-file"\n', encoding="utf-8")
    assert "'of-file'" in store_error(capsys, "index", "a.md")
    monkeypatch.setenv("SIFT_STORE", "of-variable")
    assert "'of-variable'" in store_error(capsys, "index", "a.md")
    assert "'of-flag'" in store_error(capsys, "index", "a.md", "--store", "of-flag")


def test_a_commands_table_goes_before_the_top_of_the_file(elsewhere, capsys):
    text = 'store = "of-all"\n[index]\nstore = "of-index"\nverbose = true\n'
    (elsewhere / "mine.toml").write_text(text, encoding="utf-8")
    assert "'of-index'" in store_error(capsys, "--config", "mine.toml", "index", "a.md")


def test_the_first_file_that_exists_is_taken_alone(elsewhere):
    assert settings_file(None) is None
    home = elsewhere / "config/sift-rerank"
    home.mkdir(parents=True)
    (home / "sift.toml").touch()
    assert settings_file(None) == home / "sift.toml"
    (elsewhere / "sift.toml").touch()
    assert settings_file(None).resolve() == elsewhere / "sift.toml"
    with pytest.raises(InvalidInputError, match=r"no settings file 'no\.toml'"):
        settings_file("no.toml")


WRONG = {
    "unknown key": ("stroe = 'x'", "unknown key 'stroe'; there are embedder, model, store and"),
    "unknown table": ("[serach]\nx = 1", r"unknown table 'serach'"),
    "secret": ("api-key = 'hunter2'", r"holds 'api-key'; secrets belong into the environment"),
    "secret in a table": ("[qdrant]\napi_key = 'hunter2'", r"holds 'api_key'; secrets"),
    "table for a value": ("[store]\nx = 1", "unknown table 'store'"),
    "no TOML": ("store = ", "is no TOML"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_a_file_that_cannot_be_used_is_refused_without_its_values(elsewhere, capsys, text, message):
    (elsewhere / "sift.toml").write_text(text, encoding="utf-8")
    assert run(lambda: app(["search", "How?"])) == 2
    told = capsys.readouterr().err
    assert re.search(f"^error: the settings file 'sift.toml' .*{message}", told), told
    assert told.count("\n") == 1
    assert "hunter2" not in told


WRONG_VALUES = {
    "word for an integer": ("n-select = 'five'", "has n-select = 'five'", "an integer >= 1"),
    "fraction for an integer": ("n_select = 2.5", "has n_select = 2.5", "an integer >= 1"),
    "boolean for an integer": ("n-select = true", "has n-select = true", "an integer >= 1"),
    "too small": ("n-select = 0", "has n-select = 0", "an integer >= 1"),
    "list": ("candidates = [200]", "has candidates = […]", "an integer >= 1"),
    "date": ("candidates = 2026-01-02", "has candidates = 2026-01-02", "an integer >= 1"),
    "word for a number": ("noise-variance = 'low'", "has noise-variance = 'low'", "a number"),
    "no member": ("kernel = 'rfb'", "has kernel = 'rfb'", "one of auto, rbf, linear"),
    "number for a word": ("kernel = 1", "has kernel = 1", "one of auto, rbf, linear"),
    "number for a boolean": ("compare = 1", "has compare = 1", "true or false"),
    "word for a boolean": ("compare = 'maybe'", "has compare = 'maybe'", "true or false"),
    "number for a text": ("embedder = 5", "has embedder = 5", "a text in quotes"),
    "table for a value": ("store = {a = 1}", "has store = {…}", "a text in quotes"),
}


@pytest.mark.parametrize(("line", "has", "allowed"), WRONG_VALUES.values(), ids=WRONG_VALUES)
def test_a_wrong_value_of_the_file_is_said_of_the_file(elsewhere, capsys, line, has, allowed):
    (elsewhere / "sift.toml").write_text(f"[search]\n{line}\n", encoding="utf-8")
    assert run(lambda: app(["search", "How?"])) == 2
    assert capsys.readouterr().err == (
        f"error: the settings file 'sift.toml' {has} in [search]: it must be {allowed}\n"
    )


def test_a_wrong_value_at_the_top_of_the_file_has_no_table(elsewhere, capsys):
    (elsewhere / "sift.toml").write_text("store = 5\n", encoding="utf-8")
    assert run(lambda: app(["search", "How?"])) == 2
    assert "has store = 5: it must be a text in quotes" in capsys.readouterr().err


WRONG_VARIABLES = {
    "SIFT_SEARCH_N_SELECT": ("abc", "an integer >= 1"),
    "SIFT_SEARCH_CANDIDATES": ("0", "an integer >= 1"),
    "SIFT_SEARCH_NOISE_VARIANCE": ("low", "a number"),
    "SIFT_SEARCH_KERNEL": ("rfb", "one of auto, rbf, linear"),
    "SIFT_SEARCH_JSON": ("maybe", "true or false"),
}


@pytest.mark.parametrize("name", WRONG_VARIABLES)
def test_a_wrong_variable_is_said_of_the_variable(monkeypatch, capsys, name):
    value, allowed = WRONG_VARIABLES[name]
    monkeypatch.setenv(name, value)
    assert run(lambda: app(["search", "How?"])) == 2
    assert capsys.readouterr().err == (
        f"error: the environment variable {name} is {value!r}: it must be {allowed}\n"
    )


def test_a_flag_goes_before_a_wrong_variable_and_is_blamed_for_its_own_value(monkeypatch, capsys):
    monkeypatch.setenv("SIFT_SEARCH_N_SELECT", "abc")
    assert run(lambda: app(["search", "How?", "-n", "5"])) == 2
    assert "no index at faiss:.sift" in capsys.readouterr().err
    assert run(lambda: app(["search", "How?", "-n", "five"])) == 2
    assert "Invalid value for '-n' / '--n-select'" in capsys.readouterr().err


def test_a_commands_own_variable_goes_before_the_one_of_all(monkeypatch, capsys):
    monkeypatch.setenv("SIFT_STORE", "of-all")
    monkeypatch.setenv("SIFT_INDEX_STORE", "of-index")
    assert "'of-index'" in store_error(capsys, "index", "a.md")


def test_a_variable_that_is_no_setting_gets_a_note_without_its_value(monkeypatch, capsys):
    monkeypatch.setenv("SIFT_SEARCH_N_SELCT", "hunter2")
    monkeypatch.setenv("SIFT_SEARCH_QQQ", "hunter2")
    monkeypatch.setenv("SIFT_ASK_STEPZ", "of another command")
    assert run(lambda: app(["search", "How?"])) == 2
    note = "note: the environment variable"
    assert capsys.readouterr().err.splitlines() == [
        f"{note} SIFT_SEARCH_N_SELCT is no setting of sift search; "
        "did you mean SIFT_SEARCH_N_SELECT?",
        f"{note} SIFT_SEARCH_QQQ is no setting of sift search",
        "error: no index at faiss:.sift; make one: sift index FOLDER",
    ]


def test_the_help_of_a_command_shows_in_spite_of_a_wrong_file(elsewhere, capsys):
    (elsewhere / "sift.toml").write_text("[search]\nn-selct = 3\n", encoding="utf-8")
    assert run(lambda: app(["search", "--help"])) == 0
    assert "--n-select" in capsys.readouterr().out


def option(name, kind, least=None):
    return CommandOption(
        flag=name,
        parameter=name.replace("-", "_"),
        kind=kind,
        least=least,
        most=None,
        variables=(),
    )


def test_what_a_command_is_told_are_its_options_by_parameter():
    options = {
        "store": option("store", str),
        "quiet": option("quiet", bool),
        "max-size": option("max-size", float, 0),
    }
    settings = {
        "model": "m",
        "store": "of-all",
        "index": {"store": "of-index", "quiet": "yes", "max_size": 3},
        "search": {"store": "of-search"},
    }
    found = defaults_of(settings, "index", options)
    assert found == {"store": "of-index", "quiet": True, "max_size": 3.0}
    assert isinstance(found["max_size"], float)


def test_what_is_wrong_in_a_table_is_said_all_at_once(elsewhere):
    options = {"store": option("store", str), "max-size": option("max-size", float, 0)}
    settings = {"index": {"paths": "x", "password": "x", "max-size": -1, "store": "s"}}
    unknown, secret, value = wrong_values(Path("sift.toml"), settings, "index", options)
    assert "unknown key 'paths' in [index]; there are max-size, store" in unknown
    assert "secrets belong" in secret
    assert value.endswith("has max-size = -1 in [index]: it must be a number >= 0")
    assert defaults_of(settings, "index", options) == {"store": "s"}


def test_help_loads_no_command_and_nothing_heavy():
    program = (
        "import sys\nfrom sift_core.cli import run\nfrom sift_core.cli.application import app\n"
        "code = run(lambda: app(['--help']))\n"
        "heavy = {'numpy', 'torch', 'faiss', 'qdrant_client', 'sift_core.evaluation'}\n"
        "heavy |= {name for name in sys.modules if name.endswith('_command')}\n"
        "sys.exit(code or ' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    for name in _COMMANDS:
        assert name in done.stdout


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_command_has_its_own_help(capsys, name):
    assert run(lambda: app([name, "--help"])) == 0
    assert f" {name} " in capsys.readouterr().out
