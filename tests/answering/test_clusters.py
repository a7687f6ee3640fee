"""Adapters learned beforehand: clusters, what a question gets of them, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from sift_core import InvalidInputError, Query
from sift_core.answering import FineTuningSettings, LanguageModel
from sift_core.answering.learning import clusters
from sift_core.answering.learning.clusters import MANIFEST, ClusterAdapters, learn_clusters
from sift_core.types import DocumentSample
from tests.answering.plain_peft import assert_same_state, lora, state_of

SETTINGS = FineTuningSettings(lora=lora(2), learning_rate=2e-2)
N = 12  # chunks, of three subjects far from one another
SUBJECTS = np.repeat(np.eye(3, 5), N // 3, axis=0)
CHUNKS = DocumentSample(
    document_ids=[f"{i:02}" for i in range(N)],
    texts=[f"{'abc'[i // 4] * 9} {i}" for i in range(N)],
    embeddings=SUBJECTS + np.random.default_rng(0).normal(scale=0.01, size=(N, 5)),
    metadata=[{}] * N,
    n_stored=N,
)


@pytest.fixture
def lm(make_random_lm):
    return make_random_lm()


def learned(lm, folder, sample=CHUNKS, **changes):
    options = {"embedder_name": "e", "n_clusters": 3, "settings": SETTINGS, **changes}
    return learn_clusters(lm, sample, folder, **options)


def query(*vectors):
    first, *also = (Query(text="q", embedding=np.array(one, dtype=float)) for one in vectors)
    return replace(first, also=tuple(also))


def test_each_cluster_learns_its_own_chunks_and_the_model_stays_as_it_is(lm, tmp_path):
    before = state_of(lm)
    found = learned(lm, tmp_path)
    assert_same_state(lm, before)
    assert found.centroids.shape == (3, 5)
    assert found.n_bytes == sum(4 * one.values.numel() for one in found.adapters)
    for subject in range(3):
        axis = np.eye(3, 5)[subject]
        assert (found.centroids @ axis).max() == pytest.approx(1, abs=1e-3)
        with lm.adapted(found.adapter_for(query(axis))):
            bits = [lm.bits_per_byte("abc"[other] * 9) for other in range(3)]
        gains = [lm.bits_per_byte("abc"[other] * 9) - bits[other] for other in range(3)]
        assert np.argmax(gains) == subject
    assert_same_state(lm, before)


def test_shares_are_a_softmax_of_cosines_cut_at_the_least(lm, tmp_path):
    found = replace(learned(lm, tmp_path), centroids=np.eye(3, 5), beta=2.0, at_most=3)
    # Cosines .8, .6, 0: e^1.6 = 4.953, e^1.2 = 3.320, e^0 = 1; in shares .5341, .3580, .1078.
    asked = query([8, 6, 0, 0, 0])
    assert found.shares(asked) == pytest.approx([0.5341, 0.3580, 0.1078], abs=1e-4)
    cut = replace(found, least=0.2).shares(asked)
    assert cut == pytest.approx([0.5341 / 0.8921, 0.3580 / 0.8921, 0], abs=1e-4)
    assert replace(found, at_most=1).shares(asked).tolist() == [1, 0, 0]
    # Two vectors: the mean of what each would get.
    both = found.shares(query([1, 0, 0, 0, 0], [0, 1, 0, 0, 0]))
    one = found.shares(query([1, 0, 0, 0, 0]))
    assert both[0] == pytest.approx((one[0] + one[1]) / 2)


def test_what_is_learned_does_not_depend_on_the_order_of_the_sample(lm, tmp_path):
    order = np.random.default_rng(1).permutation(N)
    other = DocumentSample(
        document_ids=[CHUNKS.document_ids[i] for i in order],
        texts=[CHUNKS.texts[i] for i in order],
        embeddings=CHUNKS.embeddings[order],
        metadata=[{}] * N,
        n_stored=N,
    )
    first, second = learned(lm, tmp_path / "1"), learned(lm, tmp_path / "2", other)
    assert (first.centroids == second.centroids).all()
    for one, two in zip(first.adapters, second.adapters, strict=True):
        assert torch.equal(one.values, two.values)
        assert one.key == two.key


def test_an_interrupted_call_goes_on_where_it_was(lm, tmp_path):
    whole = learned(lm, tmp_path / "whole")

    def stop(done, total, loss):
        assert total == N
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learned(lm, tmp_path / "cut", on_step=stop)
    with pytest.raises(InvalidInputError, match="1 of 3 adapters"):
        ClusterAdapters.load(tmp_path / "cut", lm)
    seen = []
    found = learned(lm, tmp_path / "cut", on_step=lambda done, *_: seen.append(done))
    assert seen == list(range(5, N + 1))  # the first four were learned
    for one, two in zip(whole.adapters, found.adapters, strict=True):
        assert torch.equal(one.values, two.values)


def test_so_many_chunks_are_learned_at_most(lm, tmp_path):
    seen = []
    learned(lm, tmp_path, n_chunks=6, on_step=lambda done, total, _: seen.append(total))
    assert seen == [6] * 6


def test_copies_of_a_chunk_make_no_more_clusters(lm, tmp_path):
    copies = DocumentSample(
        document_ids=["1", "2"],
        texts=["a", "b"],
        embeddings=np.ones((2, 3)),
        metadata=[{}] * 2,
        n_stored=2,
    )
    assert len(learned(lm, tmp_path, copies).adapters) == 1


@pytest.mark.parametrize("change", ["chunks", "settings", "clusters", "embedder"])
def test_a_folder_of_something_else_is_refused_and_stays(lm, tmp_path, change):
    learned(lm, tmp_path)
    before = (tmp_path / MANIFEST).read_bytes()
    texts = [text.upper() for text in CHUNKS.texts]
    changes = {
        "chunks": {"sample": replace(CHUNKS, texts=texts)},
        "settings": {"settings": replace(SETTINGS, learning_rate=1e-3)},
        "clusters": {"n_clusters": 2},
        "embedder": {"embedder_name": "other"},
    }[change]
    with pytest.raises(InvalidInputError, match="delete that folder"):
        learned(lm, tmp_path, **changes)
    assert (tmp_path / MANIFEST).read_bytes() == before


def test_what_was_learned_in_float32_opens_in_bfloat16(lm, tmp_path, make_random_lm):
    found = learned(lm, tmp_path)
    other = make_random_lm()
    half = LanguageModel(other.model.to(torch.bfloat16), other.tokenizer)
    opened = ClusterAdapters.load(tmp_path, half)
    for ours, theirs in zip(opened.adapters, found.adapters, strict=True):
        assert torch.equal(ours.values, theirs.values)


def test_adapters_of_another_model_are_refused(lm, tmp_path, make_random_lm):
    learned(lm, tmp_path)
    with pytest.raises(InvalidInputError, match="not by"):
        ClusterAdapters.load(tmp_path, make_random_lm("gpt2"))


@pytest.mark.parametrize("damage", ["no folder", "cut", "changed", "format"])
def test_a_folder_that_is_of_no_use_is_refused(lm, tmp_path, damage, monkeypatch):
    learned(lm, tmp_path)
    path = tmp_path / MANIFEST
    text = path.read_text()
    if damage == "no folder":
        tmp_path /= "none"
    elif damage == "cut":
        path.write_text(text[:100])
    elif damage == "changed":
        record = json.loads(text)
        record["content"]["embedder"] = "x"
        path.write_text(json.dumps(record))
    else:
        monkeypatch.setattr(clusters, "FORMAT", clusters.FORMAT + 1)
    with pytest.raises(InvalidInputError):
        ClusterAdapters.load(tmp_path, lm)


@pytest.mark.parametrize("wrong", [{"n_clusters": 0}, {"n_chunks": 0}])
def test_what_cannot_be_learned_is_refused(lm, tmp_path, wrong):
    with pytest.raises(InvalidInputError):
        learned(lm, tmp_path, **wrong)
    assert not list(tmp_path.iterdir())


def test_a_question_of_another_dimension_is_refused(lm, tmp_path):
    with pytest.raises(InvalidInputError, match="5 dimensions"):
        learned(lm, tmp_path).adapter_for(query([1, 0, 0]))
