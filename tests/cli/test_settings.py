"""Flags go before the environment, that before one TOML file, that before the defaults."""

import subprocess
import sys

import pytest

from sift_core.cli import run
from sift_core.cli.application import _COMMANDS, app
from sift_core.cli.settings import defaults_of, read_settings, settings_file
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
def test_a_file_that_cannot_be_used_is_refused_without_its_values(elsewhere, text, message):
    path = elsewhere / "sift.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInputError, match=message) as refusal:
        read_settings(path, ["index", "search"])
    assert "hunter2" not in str(refusal.value)


def test_keys_of_a_command_are_its_options(elsewhere):
    options = {"store": "store", "json": "as_json", "max-file-size": "max_file_size"}
    settings = {"model": "m", "index": {"json": True, "max_file_size": 3}}
    found = defaults_of(elsewhere, settings, "index", options)
    assert found == {"as_json": True, "max_file_size": 3}
    with pytest.raises(InvalidInputError, match=r"unknown key .paths. in .index."):
        defaults_of(elsewhere, {"index": {"paths": "x"}}, "index", options)
    with pytest.raises(InvalidInputError, match="secrets belong"):
        defaults_of(elsewhere, {"index": {"password": "x"}}, "index", options)


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
