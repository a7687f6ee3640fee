"""An adapter that has learned a collection: what it learns, what is kept, what is refused."""

from __future__ import annotations

import json
import os
import resource
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from sift_core import InvalidInputError
from sift_core.answering import FineTuningSettings, collection, learn_collection
from sift_core.answering.collection import MANIFEST, load_learned
from sift_core.answering.model.adapters import CONFIG_NAME, WEIGHTS_NAME
from sift_core.files import seal, unseal
from sift_core.types import DocumentSample
from tests.answering.plain_peft import assert_same_state, lora, state_of

SETTINGS = FineTuningSettings(lora=lora(2), learning_rate=5e-3)
N = 12


def sample_of(order):
    return DocumentSample(
        document_ids=[f"{i:02}" for i in order],
        texts=[f"{'abc'[i // 4] * 9} {i}" for i in order],
        embeddings=np.ones((N, 2)),
        metadata=[{}] * N,
        n_stored=N,
    )


CHUNKS = sample_of(range(N))


@pytest.fixture
def lm(make_random_lm):
    return make_random_lm()


def learned(lm, folder, sample=CHUNKS, **changes):
    return learn_collection(lm, sample, folder, **{"settings": SETTINGS, **changes})


def bits_of(lm):
    return sum(map(lm.bits_per_byte, CHUNKS.texts)) / N


def test_what_is_learned_is_kept_and_the_model_stays_as_it_is(lm, tmp_path):
    before, base, seen = state_of(lm), bits_of(lm), []
    first = learned(lm, tmp_path, on_step=lambda done, total, _: seen.append((done, total)))
    assert seen == [(done, N) for done in range(1, N + 1)]
    again = learned(lm, tmp_path, on_step=seen.append)  # is not called
    assert torch.equal(first.values, again.values)
    assert first.key == again.key != ""
    with lm.adapted(again):
        assert bits_of(lm) < base - 0.1
    assert_same_state(lm, before)


def test_the_order_of_the_sample_does_not_count_and_the_number_of_chunks_does(lm, tmp_path):
    first = learned(lm, tmp_path / "1", n_chunks=6)
    order = np.random.default_rng(1).permutation(N)
    assert torch.equal(
        first.values, learned(lm, tmp_path / "2", sample_of(order), n_chunks=6).values
    )
    assert not torch.equal(first.values, learned(lm, tmp_path / "3").values)


def test_a_call_that_was_interrupted_leaves_nothing_that_would_be_taken_for_the_whole(lm, tmp_path):
    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learned(lm, tmp_path, on_step=stop)
    with pytest.raises(InvalidInputError, match="nothing was learned"):
        load_learned(tmp_path, lm)
    learned(lm, tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"sample": replace(CHUNKS, texts=[text.upper() for text in CHUNKS.texts])},
        {"settings": replace(SETTINGS, learning_rate=1e-3)},
    ],
    ids=["chunks", "settings"],
)
def test_a_folder_of_something_else_is_refused_and_stays(lm, tmp_path, changes):
    learned(lm, tmp_path)
    before = (tmp_path / MANIFEST).read_bytes()
    with pytest.raises(InvalidInputError, match="delete that folder"):
        learned(lm, tmp_path, **changes)
    assert (tmp_path / MANIFEST).read_bytes() == before


def test_what_has_changed_alone_is_learned(lm, tmp_path):
    first = learned(lm, tmp_path)
    texts = [*CHUNKS.texts[1:], "something else 13"]
    seen = []
    changed = replace(CHUNKS, texts=texts)
    second = learned(lm, tmp_path, changed, on_step=lambda *step: seen.append(step[:2]))
    assert seen == [(1, 1)]
    assert second.key != first.key
    with lm.adapted(first):
        before = lm.bits_per_byte(texts[-1])
    with lm.adapted(second):
        assert lm.bits_per_byte(texts[-1]) < before
    again = learned(lm, tmp_path, changed, on_step=lambda *step: seen.append(step))
    assert len(seen) == 1
    assert torch.equal(again.values, second.values)


def test_the_next_call_learns_those_for_which_time_was_too_short(lm, tmp_path):
    settings = replace(SETTINGS, max_seconds=1e-9)  # one step is always taken
    for n in range(1, N + 1):
        learned(lm, tmp_path, settings=settings)
        assert len(unseal((tmp_path / MANIFEST).read_bytes(), MANIFEST)["learned"]) == n
    learned(lm, tmp_path, settings=settings, on_step=lambda *_: pytest.fail("it learned"))


@pytest.mark.parametrize("changes", [{"n_chunks": 3}, {"sample": sample_of([*range(N)][::-1])}])
def test_nothing_is_learned_where_all_is_known(lm, tmp_path, changes):
    first = learned(lm, tmp_path)
    again = learned(lm, tmp_path, on_step=lambda *_: pytest.fail("it learned"), **changes)
    assert again.key == first.key


def test_it_opens_under_no_other_model(lm, tmp_path, make_random_lm):
    learned(lm, tmp_path)
    with pytest.raises(InvalidInputError, match="not by"):
        load_learned(tmp_path, make_random_lm("gpt2"))


@pytest.mark.parametrize("damage", ["changed", "format"])
def test_a_folder_that_is_of_no_use_is_refused(lm, tmp_path, damage, monkeypatch):
    learned(lm, tmp_path)
    path = tmp_path / MANIFEST
    if damage == "changed":
        record = json.loads(path.read_text())
        record["content"]["model"] = "another"
        path.write_text(json.dumps(record))
    else:
        monkeypatch.setattr(collection, "FORMAT", collection.FORMAT + 1)
    for use in (lambda: load_learned(tmp_path, lm), lambda: learned(lm, tmp_path)):
        with pytest.raises(InvalidInputError, match="run `sift learn` again"):
            use()


def test_no_chunk_is_refused(lm, tmp_path):
    with pytest.raises(InvalidInputError, match="n_chunks"):
        learned(lm, tmp_path, n_chunks=0)
    assert not list(tmp_path.iterdir())


def flip_a_bit(folder, other):
    path = folder / WEIGHTS_NAME
    content = bytearray(path.read_bytes())
    content[-2] ^= 0x40  # the highest bit of a float32's exponent
    path.write_bytes(content)


def change_alpha(folder, other):
    path = folder / CONFIG_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | {"lora_alpha": 1600}))


def swap(folder, other):
    for name in (WEIGHTS_NAME, CONFIG_NAME):
        os.replace(other / name, folder / name)


def link(folder, other):
    (folder / WEIGHTS_NAME).unlink()
    (folder / WEIGHTS_NAME).symlink_to(other / WEIGHTS_NAME)


def link_to_a_device(folder, other):
    (folder / WEIGHTS_NAME).unlink()
    (folder / WEIGHTS_NAME).symlink_to("/dev/zero")


def delete(folder, other):
    (folder / CONFIG_NAME).unlink()


def cut(folder, other):
    os.truncate(folder / WEIGHTS_NAME, 100)


@pytest.mark.parametrize(
    "damage", [flip_a_bit, change_alpha, swap, link, link_to_a_device, delete, cut]
)
def test_a_damaged_adapter_is_refused(lm, tmp_path, damage):
    learned(lm, tmp_path / "mine")
    learned(lm, tmp_path / "other", n_chunks=3)
    damage(tmp_path / "mine", tmp_path / "other")
    for use in (
        lambda: load_learned(tmp_path / "mine", lm),
        lambda: learned(lm, tmp_path / "mine"),
    ):
        with pytest.raises(InvalidInputError, match="run `sift learn` again"):
            use()


@contextmanager
def disk_that_is_full_after(n_bytes):
    """Refuse to write beyond a number of bytes of any file, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("n_bytes", [0, 100, 1000])  # the configuration has some 800
def test_a_full_disk_leaves_no_half_file_and_the_next_call_learns(lm, tmp_path, n_bytes):
    whole = learned(lm, tmp_path / "whole")
    before = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    with disk_that_is_full_after(n_bytes):
        with pytest.raises(InvalidInputError, match="make room"):
            learned(lm, tmp_path / "new")
        with pytest.raises(OSError, match="too large"):
            whole.save(tmp_path / "whole")
    assert not list((tmp_path / "new").iterdir())
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    assert torch.equal(learned(lm, tmp_path / "new").values, whole.values)


def test_what_is_learned_is_not_begun_where_it_cannot_be_kept(lm, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="of no use"):
        learned(lm, tmp_path / "file" / "below", on_step=lambda *_: pytest.fail("it has begun"))


# A forger makes the checksum fit, so each value is looked at.
@pytest.mark.parametrize(
    "changes",
    [
        {"files": None},
        {"files": {}},
        {"files": {"../../etc/passwd": "0"}},
        {"files": {WEIGHTS_NAME: None, CONFIG_NAME: None}},
        {"identity": None},
        {"model": 5},
        {"fingerprint": []},
        {"format": "2"},
        {"learned": None},
        {"learned": [7]},
    ],
    ids=repr,
)
@pytest.mark.parametrize("is_missing", [False, True])
def test_a_forged_manifest_is_refused(lm, tmp_path, changes, is_missing):
    learned(lm, tmp_path)
    path = tmp_path / MANIFEST
    content = unseal(path.read_bytes(), MANIFEST) | changes
    if is_missing:
        content.pop(next(iter(changes)))
    path.write_bytes(seal(content, MANIFEST))
    for use in (lambda: load_learned(tmp_path, lm), lambda: learned(lm, tmp_path)):
        with pytest.raises(InvalidInputError, match="run `sift learn` again"):
            use()


@pytest.mark.parametrize("content", [None, 5, "text", [], {}, [[]], {"format": None}], ids=repr)
def test_a_forged_manifest_of_another_form_is_refused(lm, tmp_path, content):
    (tmp_path / MANIFEST).write_bytes(seal(content, MANIFEST))
    with pytest.raises(InvalidInputError, match="run `sift learn` again"):
        load_learned(tmp_path, lm)
