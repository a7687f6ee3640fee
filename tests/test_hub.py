"""Where a model is: in a folder, or on a hub that knows it, hides it, fails or is out of reach."""

from unittest.mock import MagicMock

import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

from sift_core.errors import InvalidInputError
from sift_core.hub import model_place


def test_a_folder_is_its_own_place(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "models/own").mkdir(parents=True)
    assert model_place(str(tmp_path / "models/own"), "transformers") == str(tmp_path / "models/own")
    assert model_place("~/models/own", "transformers") == str(tmp_path / "models/own")


@pytest.mark.parametrize("name", ["./gone", "/gone", "~/gone", "a/b/c"])
def test_what_can_only_be_a_folder_is_not_looked_for_on_the_hub(name):
    with pytest.raises(InvalidInputError, match="there is no model folder"):
        model_place(name, "transformers")


def test_the_hub_is_asked_once_and_not_for_long(monkeypatch):
    asked = MagicMock()
    monkeypatch.setattr(huggingface_hub, "model_info", asked)
    assert model_place("someone/here", "transformers") == "someone/here"
    asked.assert_called_once_with("someone/here", timeout=5.0)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RepositoryNotFoundError("404", response=MagicMock()), "the hub has no such model"),
        (GatedRepoError("403", response=MagicMock()), "accepted its terms and set HF_TOKEN"),
        (OSError("503 from\n the hub"), r"cannot be asked for it \(503 from the hub\)"),
    ],
    ids=["missing", "gated", "failing"],
)
def test_why_the_hub_does_not_give_it(monkeypatch, error, message):
    monkeypatch.setattr(huggingface_hub, "model_info", MagicMock(side_effect=error))
    with pytest.raises(InvalidInputError, match=message):
        model_place("someone/model", "transformers")


def test_what_no_hub_could_know_is_refused():
    with pytest.raises(InvalidInputError, match=r"'a model\?' is no folder"):
        model_place("a model?", "transformers")
