"""Flags go before the environment, that before one TOML file, that before the defaults."""

from pathlib import Path

import pytest

from sift_core.cli.settings import settings_file
from sift_core.errors import InvalidInputError

OWN = "config/sift-rerank/sift.toml"  # the user's own, since XDG_CONFIG_HOME is `config` here


def write(text, name=OWN):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")


def test_flag_then_variable_then_file_then_default(refusal, monkeypatch):
    assert "faiss:.sift" in refusal("search", "How?")
    write('store = "of-all"\n[search]\nstore = "of-table"\n', OWN)
    assert "'of-all'" in refusal("ask", "How?")
    write('store = "of-top"\n[index]\nstore = "of-another-command"\n', "other.toml")
    assert "'of-table'" in refusal("search", "How?")
    monkeypatch.setenv("SIFT_CONFIG", "other.toml")
    assert "'of-top'" in refusal("search", "How?")
    assert "'of-table'" in refusal("--config", OWN, "search", "How?")
    monkeypatch.setenv("SIFT_STORE", "of-variable")
    assert "'of-variable'" in refusal("search", "How?")
    monkeypatch.setenv("SIFT_SEARCH_STORE", "of-own-variable")
    assert "'of-own-variable'" in refusal("search", "How?")
    assert "'of-flag'" in refusal("search", "How?", "--store", "of-flag")


@pytest.mark.parametrize(
    ("key", "value"), [("n-select", "12"), ("n_select", "12"), ("n-select", '"12"')]
)
def test_a_key_is_a_flag_and_its_value_what_would_be_typed(refusal, key, value):
    write(f"[search]\n{key} = {value}\ncandidates = 11\ncompare = true\nnoise-variance = 1\n")
    assert "--candidates must be >= --n-select, got 11 and 12" in refusal("search", "How?")


def test_booleans_are_words_of_toml_or_of_the_environment(refusal, monkeypatch):
    write("[ask]\nchat = false\n")
    assert "there is no question" in refusal("ask")
    monkeypatch.setenv("SIFT_ASK_CHAT", "yes")
    assert "all of stdin is questions" in refusal("ask", "-")


def test_a_named_file_replaces_the_users_own(elsewhere):
    assert settings_file(None) is None
    write("")
    assert settings_file(None) == elsewhere / OWN
    write("", "other.toml")
    assert settings_file(Path("other.toml")) == Path("other.toml")
    with pytest.raises(InvalidInputError, match=r"no settings file 'no\.toml'"):
        settings_file(Path("no.toml"))


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("where", ["a name that is too long", "a device that refuses to be read"])
def test_an_own_file_that_cannot_be_read_stops_no_command(where, sift, monkeypatch):
    if where == "a name that is too long":
        monkeypatch.setenv("XDG_CONFIG_HOME", f"/{'a' * 300}")
    else:
        Path(OWN).parent.mkdir(parents=True)
        Path(OWN).symlink_to("/proc/self/mem")
    said = sift("ask", code=2).err
    assert "note: the settings file" in said
    assert "make it readable" in said
    assert "there is no question" in said  # what was asked for is done


def test_a_named_file_that_cannot_be_read_is_refused(refusal):
    Path("named.toml").symlink_to("/proc/self/mem")
    assert "cannot be read" in refusal("--config", "named.toml", "ask")


def test_a_file_in_the_current_folder_has_no_effect(refusal, record):
    write('store = "qdrant:./data"\nembedder = "./evil"\nmodel = "./evil"\n', "sift.toml")
    assert "no index at faiss:.sift;" in refusal("search", "How?")
    settings = record("doctor")["settings"]
    assert settings.pop("file") is None
    assert {value["from"] for value in settings.values()} == {"default"}
    write("no TOML", "sift.toml")
    assert "no index at faiss:.sift;" in refusal("search", "How?")


WRONG = {
    "unknown key": ("stroe = 'x'", ["unknown key 'stroe'", "embedder, model, store"]),
    "unknown table": ("[serach]\nx = 1", ["unknown table 'serach'", "[search]"]),
    "unknown option": ("[search]\nn-selct = 1", ["'n-selct' in [search]", "n-select"]),
    "secret in a table": ("[search]\napi_key = 'hunter2'", ["'api_key'", "environment"]),
    "word for an integer": ("[search]\nn-select = 'five'", ["n-select = 'five' for sift search"]),
    "too small": ("[search]\nn-select = 0", ["n-select = '0'", "1"]),
    "no member": ("[search]\nkernel = 'rfb'", ["kernel = 'rfb'", "auto", "linear"]),
    "list": ("[search]\ncandidates = [200]", ["list for 'candidates'", "a number"]),
}


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_the_file_is_said_of_the_file(refusal, text, words):
    write(text)
    told = refusal("search", "How?")
    assert "the settings file '" in told
    assert f"{OWN}' has " in told
    assert all(word in told for word in words), told
    assert "hunter2" not in told


def test_a_wrong_variable_is_blamed_and_a_flag_goes_before_it(sift, refusal, monkeypatch):
    name = "SIFT_SEARCH_N_SELECT"
    monkeypatch.setenv(name, "abc")
    assert f"the environment variable {name} is 'abc': " in refusal("search", "How?")
    assert "no index at faiss:.sift" in refusal("search", "How?", "-n", "5")
    assert "'-n' / '--n-select'" in sift("search", "How?", "-n", "five", code=2).err


def test_the_help_of_a_command_shows_in_spite_of_a_wrong_file(sift):
    write("[search]\nn-selct = 3\n")
    assert "--n-select" in sift("search", "--help").out


def test_a_folder_named_as_the_home_is_not_the_users_own(elsewhere, monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # an account without a home
    (elsewhere / "~/.config/sift-rerank").mkdir(parents=True)
    (elsewhere / "~/.config/sift-rerank/sift.toml").write_text('store = "qdrant:data"\n')
    assert settings_file(None) is None
