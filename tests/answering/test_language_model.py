import copy
import json
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

from sift_core import AnswerError, InvalidInputError
from sift_core.answering import LanguageModel
from sift_core.answering.model.layers import ModelLayers
from sift_core.errors import reason_of
from tests.evil import Evil


def windows_of(lm, n_tokens, *, window, context="", monkeypatch):
    monkeypatch.setattr(LanguageModel, "window", property(lambda self: window))
    text = "abcdefghijklmnopqrstuvwxyz"[:n_tokens]
    letters = lm.tokenizer.convert_ids_to_tokens
    return [
        ("".join(letters(w.inputs)), "".join(letters(w.targets)))
        for w in lm.windows(text, context=context)
    ]


def test_rolling_windows_by_hand(make_random_lm, monkeypatch):
    # lm-evaluation-harness, get_rolling_token_windows with a window of 4 and context_len 1:
    # the first window starts from the prefix token, the last keeps a full window of inputs.
    assert windows_of(make_random_lm(), 10, window=4, monkeypatch=monkeypatch) == [
        ("<s>abc", "abcd"),
        ("defg", "efgh"),
        ("fghi", "ij"),
    ]


def test_every_window_begins_with_the_context(make_random_lm, monkeypatch):
    # Lead <s> X and a blank line of two letters: 4 inputs of 6, so 3 targets a window.
    windows = windows_of(make_random_lm(), 5, window=6, context="X", monkeypatch=monkeypatch)
    assert windows == [("<s>XĊĊab", "abc"), ("<s>XĊĊcd", "de")]


@pytest.mark.parametrize("n_tokens", [1, 63, 64, 65, 128, 200])
@pytest.mark.parametrize("context", ["", "some context"])
def test_every_token_is_predicted_once_and_no_window_overflows(make_random_lm, n_tokens, context):
    lm = make_random_lm()
    text = "".join(chr(97 + i % 26) for i in range(n_tokens))
    windows = lm.windows(text, context=context)
    assert [t for w in windows for t in w.targets] == lm.token_ids(text)
    assert all(len(w.targets) <= len(w.inputs) <= lm.window for w in windows)


def test_an_empty_text_has_no_bits_per_byte(make_random_lm):
    with pytest.raises(InvalidInputError, match="must not be empty"):
        make_random_lm().bits_per_byte("")


def test_a_context_that_fills_the_window_is_refused(make_random_lm):
    with pytest.raises(InvalidInputError, match="leaves no room"):
        make_random_lm().bits_per_byte("text", context="x" * 100)


def test_a_prompt_that_does_not_fit_is_refused_rather_than_cut(make_random_lm):
    with pytest.raises(InvalidInputError, match="prompt of 61 tokens and 8 new ones"):
        make_random_lm().generate("x" * 60, max_new_tokens=8)


@pytest.mark.parametrize("name", ["no/such/folder/here", "examples"])
def test_an_unknown_model_gives_an_error_that_says_what_to_pass(name, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InvalidInputError, match=r"no causal language model .*Pass a folder"):
        LanguageModel.from_pretrained(name)


def test_a_tokenizer_of_another_model_is_refused(make_random_lm, small_lm):
    with pytest.raises(InvalidInputError, match="knows 631 tokens, the model 257"):
        LanguageModel(make_random_lm().model, small_lm.tokenizer)


def test_a_tokenizer_without_a_start_is_refused(make_random_lm, byte_tokenizer):
    tokenizer = copy.deepcopy(byte_tokenizer)
    tokenizer.bos_token = tokenizer.eos_token = None
    with pytest.raises(InvalidInputError, match="BOS or EOS"):
        LanguageModel(make_random_lm().model, tokenizer)


def test_weights_that_are_incomplete_are_refused(make_random_lm, byte_tokenizer, tmp_path):
    lm = make_random_lm()
    lm.model.save_pretrained(tmp_path)
    byte_tokenizer.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: w for name, w in weights.items() if "layers.1" not in name}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InvalidInputError, match=r"weights .* are incomplete: 9 are missing"):
        LanguageModel.from_pretrained(tmp_path, device="cpu", dtype="float32")


def test_a_broken_weights_file_is_one_of_our_errors(make_random_lm, byte_tokenizer, tmp_path):
    make_random_lm().model.save_pretrained(tmp_path)
    byte_tokenizer.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(InvalidInputError, match="no causal language model"):
        LanguageModel.from_pretrained(tmp_path, device="cpu", dtype="float32")


def test_weights_that_are_a_pickle_by_another_name_are_not_run(
    make_random_lm, byte_tokenizer, tmp_path
):
    model = make_random_lm().model
    model.config.save_pretrained(tmp_path)
    byte_tokenizer.save_pretrained(tmp_path)
    parts = {"metadata": {}, "weight_map": dict.fromkeys(model.state_dict(), "part.dat")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(parts), encoding="utf-8")
    torch.save(Evil(str(tmp_path / "code-ran")), tmp_path / "part.dat")
    with pytest.raises(InvalidInputError, match="no causal language model"):
        LanguageModel.from_pretrained(tmp_path, device="cpu", dtype="float32")
    assert not (tmp_path / "code-ran").exists()


def test_running_out_of_memory_while_scoring_is_one_of_our_errors(make_random_lm, monkeypatch):
    lm = make_random_lm()

    def fail(self, *_):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(ModelLayers, "hidden", fail)
    with pytest.raises(AnswerError, match="could not score"):
        lm.bits_per_byte("text")


def test_a_pickle_has_the_name_and_not_the_weights(random_model, make_random_lm):
    model = LanguageModel.from_pretrained(random_model, device="cpu", dtype="float32")
    pickled = pickle.dumps(model)
    assert len(pickled) < 2000
    again = pickle.loads(pickled)
    assert again.fingerprint == model.fingerprint
    assert again.name == model.name
    with pytest.raises(InvalidInputError, match="save_pretrained"):
        pickle.dumps(make_random_lm())


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_file_of_llama_cpp_is_refused_by_name(tmp_path, is_folder):
    file = tmp_path / "model-Q4_K_M.gguf"
    file.write_bytes(b"GGUF")
    place = tmp_path if is_folder else file
    with pytest.raises(InvalidInputError, match=r"llama\.cpp \(GGUF\).*config\.json") as caught:
        LanguageModel.from_pretrained(str(place))
    assert file.name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_librarys_error_is_not_cut_before_its_reason():
    error = RuntimeError("Error(s) in loading:\n\tsize mismatch for head: [258, 8] and [256, 8].")
    assert reason_of(error) == "Error(s) in loading: size mismatch for head: [258, 8] and [256, 8]."
    assert reason_of(ValueError()) == "ValueError"
