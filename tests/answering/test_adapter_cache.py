import json
import os
import pickle
import random
import subprocess
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from sift_core import InvalidInputError
from sift_core.answering import FineTuningSettings, adapter_cache
from sift_core.answering.adapter_cache import ABANDONED_S, AdapterCache, adapter_key
from sift_core.answering.model.adapters import (
    AdaptedLayer,
    Adapter,
    AdapterLayout,
)
from sift_core.answering.report import FineTuningReport
from sift_core.errors import AdapterCacheWarning
from tests.answering.plain_peft import lora

SETTINGS = FineTuningSettings(lora=lora(4), learning_rate=1e-2)
TEXTS = ["the cat sat on the mat", "the dog sat on the log"]
KEYS = [f"{number:064x}" for number in range(20)]
LAYOUT = AdapterLayout(layers=(AdaptedLayer(name="layer", n_in=64, n_out=64),), rank=8)
N_BYTES = 4 * LAYOUT.n_values
REPORT = FineTuningReport(losses=(1.5, 0.1 + 0.2), n_steps=2, n_skipped=1, checkpointing=True)


def an_adapter(seed=0):
    values = torch.randn(LAYOUT.n_values, generator=torch.Generator().manual_seed(seed))
    return Adapter(layout=LAYOUT, alpha=16.0, values=values)


def assert_equal_weights(first, second):
    ours, theirs = first.tensors(), second.tensors()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def names_in(folder):
    return sorted(entry.name.removesuffix(".safetensors") for entry in folder.iterdir())


def n_bytes_in(folder):
    return sum(entry.stat().st_size for entry in folder.iterdir())


def file_of(folder, key):
    return folder / f"{key}.safetensors"


def key_of(lm, **changes):
    given = {
        "base": "f" * 64,
        "tokenizer": lm.tokenizer,
        "document_ids": ["1", "2"],
        "texts": TEXTS,
        "settings": SETTINGS,
    }
    return adapter_key(**{**given, **changes})


def test_equal_inputs_have_one_key_and_all_others_another(make_random_lm):
    lm = make_random_lm()
    changes = [
        {},
        {"base": "e" * 64},
        {"document_ids": ["1", "3"]},
        {"document_ids": ["2", "1"]},
        {"texts": TEXTS[::-1]},
        {"texts": [TEXTS[0] + TEXTS[1], ""]},  # the same letters, cut elsewhere
        {"document_ids": ["1" + TEXTS[0][:1], "2"], "texts": [TEXTS[0][1:], TEXTS[1]]},
        {"document_ids": ["1", "2", "2"], "texts": [*TEXTS, TEXTS[1]]},
        {"settings": replace(SETTINGS, lora=lora(5))},
        {"settings": replace(SETTINGS, lora=lora(4, 17))},
        {"settings": replace(SETTINGS, lora=lora(4, targets=["q_proj", "v_proj"]))},
        {"settings": replace(SETTINGS, learning_rate=2e-2)},
        {"settings": replace(SETTINGS, seed=1)},
        {"settings": replace(SETTINGS, schedule="linear")},
    ]
    keys = [key_of(lm, **change) for change in changes]
    assert len(set(keys)) == len(changes)
    assert keys == [key_of(lm, **change) for change in changes]
    assert all(len(key) == 64 and int(key, 16) >= 0 for key in keys)


def test_settings_without_effect_do_not_change_the_key(make_random_lm):
    lm = make_random_lm()
    assert key_of(lm, settings=replace(SETTINGS, max_seconds=3.0)) == key_of(lm)
    default, same = FineTuningSettings(), FineTuningSettings(learning_rate=5e-4)
    assert key_of(lm, settings=default) == key_of(lm, settings=same)


def test_a_tokenizer_that_reads_otherwise_has_another_key(byte_tokenizer, make_random_lm, small_lm):
    lm = make_random_lm()
    keys = {key_of(lm), key_of(small_lm)}
    changed = type(byte_tokenizer)(
        tokenizer_object=byte_tokenizer.backend_tokenizer, bos_token="<s>", eos_token="<s>"
    )
    assert key_of(lm, tokenizer=changed) in keys  # an equal one
    cut = type(byte_tokenizer)(
        tokenizer_object=byte_tokenizer.backend_tokenizer, bos_token="<s>", eos_token="<s>"
    )
    cut("abc def", truncation=True, max_length=2)
    assert key_of(lm, tokenizer=cut) in keys  # the last call's truncation is not its own
    changed.chat_template = "{{ messages }}"
    keys.add(key_of(lm, tokenizer=changed))
    changed.model_max_length = 7
    keys.add(key_of(lm, tokenizer=changed))
    changed.add_tokens(["cat"])
    keys.add(key_of(lm, tokenizer=changed))
    assert len(keys) == 5


def test_an_adapter_is_found_in_memory_then_on_disk_with_its_report(tmp_path):
    cache = AdapterCache(tmp_path / "new" / "folder")
    assert cache.get(KEYS[0]) is None
    assert cache.put(KEYS[0], an_adapter(), REPORT)
    for found, source in [
        (cache.get(KEYS[0]), "memory"),
        (AdapterCache(tmp_path / "new" / "folder").get(KEYS[0]), "disk"),
    ]:
        assert_equal_weights(found.adapter, an_adapter())
        assert found.adapter.key == KEYS[0]
        assert found.report == replace(REPORT, source=source)
    assert cache.get(KEYS[1]) is None
    if os.name == "posix":  # for the owner alone
        assert (tmp_path / "new" / "folder").stat().st_mode & 0o077 == 0
        assert file_of(tmp_path / "new" / "folder", KEYS[0]).stat().st_mode & 0o077 == 0


def test_what_was_cut_short_is_not_cached(tmp_path):
    cache = AdapterCache(tmp_path)
    assert not cache.put(KEYS[0], an_adapter(), replace(REPORT, stop_reason="time"))
    assert not cache.put(KEYS[0], an_adapter(), replace(REPORT, stop_reason="diverged"))
    assert cache.get(KEYS[0]) is None
    assert not names_in(tmp_path)


@pytest.mark.parametrize("key", ["", "../" + KEYS[0][3:], KEYS[0] + "\n", "F" * 64, "a/b", None])
def test_a_key_that_is_no_hash_is_refused(key, tmp_path):
    cache = AdapterCache(tmp_path / "cache")
    for call in (
        lambda: cache.get(key),
        lambda: cache.put(key, an_adapter(), REPORT),
    ):
        with pytest.raises(InvalidInputError, match="64 hexadecimal digits"):
            call()
    assert not names_in(tmp_path)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def put_a_pickle(path):
    torch.save({"values": torch.zeros(3)}, path)


def put_another_keys(path):
    AdapterCache(path.parent).put(KEYS[1], an_adapter(), REPORT)
    os.replace(file_of(path.parent, KEYS[1]), path)


def describe(path, change):
    """Write a file whose checksum is right, and whose description is changed."""
    with safe_open(path, framework="pt") as file:
        described, values = file.metadata()["adapter"], file.get_tensor("values")
    described, values = change(described, values)
    checksum = adapter_cache._checksum(described, values)
    save_file({"values": values}, path, {"adapter": described, "sha256": checksum})


def nest_too_deep(path):
    describe(path, lambda described, values: ("[" * 100_000, values))


def scale_by_text(path):
    describe(path, lambda d, values: (json.dumps({**json.loads(d), "alpha": "x"}), values))


def put_whole_numbers(path):
    describe(path, lambda described, values: (described, values.long()))


def put_nan(path):
    describe(path, lambda described, values: (described, values * torch.nan))


def reporting(**changes):
    """Return what changes the report of a file, or its description where that has the field."""

    def change(path):
        def forge(described, values):
            record = json.loads(described)
            (record if changes.keys() <= record.keys() else record["report"]).update(changes)
            return json.dumps(record), values

        describe(path, forge)

    return change


CRAFTED = [
    *(nest_too_deep, scale_by_text, put_whole_numbers, put_nan),
    *(reporting(losses=["x"]), reporting(losses=[float("nan")]), reporting(losses=5)),
    *(reporting(learned=["a"]), reporting(learned=[-1]), reporting(n_steps=None)),
    *(reporting(n_skipped=1.5), reporting(checkpointing="no"), reporting(stop_reason="time")),
    *(reporting(base_name=5), reporting(rank="8"), reporting(layers=[{"name": 5}])),
]


@pytest.mark.parametrize("damage", [cut, put_a_pickle, put_another_keys, *CRAFTED])
def test_a_damaged_adapter_is_reported_deleted_and_learned_anew(damage, tmp_path):
    AdapterCache(tmp_path).put(KEYS[0], an_adapter(), REPORT)
    damage(file_of(tmp_path, KEYS[0]))
    cache = AdapterCache(tmp_path)
    with pytest.warns(AdapterCacheWarning, match="damaged and was deleted"):
        assert cache.get(KEYS[0]) is None
    assert names_in(tmp_path) == []
    assert cache.get(KEYS[0]) is None  # once is enough
    cache.put(KEYS[0], an_adapter(), REPORT)
    assert AdapterCache(tmp_path).get(KEYS[0]).report.source == "disk"


def test_every_bit_is_checked(tmp_path):
    cache = AdapterCache(tmp_path, max_memory_bytes=0)
    cache.put(KEYS[0], an_adapter(), REPORT)
    sound = file_of(tmp_path, KEYS[0]).read_bytes()
    for place in range(0, len(sound), max(1, len(sound) // 60)):
        altered = bytearray(sound)
        altered[place] ^= 0x01  # turns no blank into another blank
        file_of(tmp_path, KEYS[0]).write_bytes(altered)
        with pytest.warns(AdapterCacheWarning):
            assert cache.get(KEYS[0]) is None


def test_foreign_files_are_left_alone_and_old_drafts_are_not(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "model.safetensors").write_bytes(b"mine")
    for name, age in [("old", ABANDONED_S + 60), ("young", ABANDONED_S - 60)]:
        draft = tmp_path / f"{name}.unfinished"
        draft.write_bytes(b"half")
        then = draft.stat().st_mtime - age
        os.utime(draft, (then, then))
    cache = AdapterCache(tmp_path, max_disk_bytes=N_BYTES * 3 // 2)
    for key in KEYS[:3]:
        cache.put(key, an_adapter(), REPORT)
    assert names_in(tmp_path) == [KEYS[2], "model", "notes.txt", "young.unfinished"]
    cache.clear()
    assert names_in(tmp_path) == ["model", "notes.txt", "young.unfinished"]
    assert cache.get(KEYS[2]) is None


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
def test_a_full_disk_is_reported_and_leaves_nothing_half_written(tmp_path):
    resource = pytest.importorskip("resource")
    cache = AdapterCache(tmp_path)
    cache.put(KEYS[0], an_adapter(), REPORT)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, N_BYTES // 2):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))  # Python ignores SIGXFSZ
        try:
            with pytest.warns(AdapterCacheWarning, match="could not be written"):
                assert cache.put(KEYS[1], an_adapter(), REPORT)  # it is in memory
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert names_in(tmp_path) == [KEYS[0]]
        assert cache.get(KEYS[1]).report.source == "memory"
    assert AdapterCache(tmp_path).get(KEYS[0]).report.source == "disk"
    assert cache.put(KEYS[1], an_adapter(), REPORT)
    assert AdapterCache(tmp_path).get(KEYS[1]).report.source == "disk"


def test_memory_is_bounded_and_the_least_recently_used_goes_first():
    cache = AdapterCache(max_memory_bytes=3 * N_BYTES)
    for key in KEYS[:3]:
        cache.put(key, an_adapter(), REPORT)
    cache.get(KEYS[0])
    cache.put(KEYS[1], an_adapter(), REPORT)  # again: takes no more room
    cache.put(KEYS[3], an_adapter(), REPORT)
    assert [key for key in KEYS if cache.get(key)] == [KEYS[0], KEYS[1], KEYS[3]]
    cache.clear()
    assert not any(cache.get(key) for key in KEYS)


def test_the_disk_is_bounded_and_use_in_memory_counts_as_use(tmp_path):
    one = AdapterCache(tmp_path)
    one.put(KEYS[0], an_adapter(), REPORT)
    limit = 3 * n_bytes_in(tmp_path)
    cache = AdapterCache(tmp_path, max_disk_bytes=limit)
    for key in KEYS[1:3]:
        cache.put(key, an_adapter(), REPORT)
    assert cache.get(KEYS[0]).report.source == "disk"
    assert cache.get(KEYS[1]).report.source == "memory"
    for key in KEYS[3:5]:
        cache.put(key, an_adapter(), REPORT)
    assert names_in(tmp_path) == [KEYS[1], KEYS[3], KEYS[4]]
    assert n_bytes_in(tmp_path) <= limit


def test_an_adapter_above_both_limits_is_not_kept(tmp_path):
    cache = AdapterCache(tmp_path, max_memory_bytes=N_BYTES - 1, max_disk_bytes=N_BYTES - 1)
    assert not cache.put(KEYS[0], an_adapter(), REPORT)
    assert not names_in(tmp_path)
    # Its weights fit, all its files do not.
    assert not AdapterCache(tmp_path, max_memory_bytes=0, max_disk_bytes=N_BYTES).put(
        KEYS[0], an_adapter(), REPORT
    )
    assert not names_in(tmp_path)


def use_at_random(folder, seed):
    cache = AdapterCache(folder, max_memory_bytes=2 * N_BYTES, max_disk_bytes=6 * N_BYTES)
    for number in random.Random(seed).choices(range(10), k=60):
        found = cache.get(KEYS[number])
        if found is None:
            cache.put(KEYS[number], an_adapter(number), REPORT)
        else:
            assert_equal_weights(found.adapter, an_adapter(number))
            assert found.adapter.key == KEYS[number]


def use_in_threads(folder, seed):
    with ThreadPoolExecutor(3) as threads, warnings.catch_warnings():
        warnings.simplefilter("error")
        list(threads.map(partial(use_at_random, folder), range(seed, seed + 3)))


@pytest.mark.slow
def test_many_threads_and_processes_share_a_folder(tmp_path):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as others:
        other = others.submit(use_in_threads, tmp_path, 90)
        use_in_threads(tmp_path, 0)
        other.result(120)
    use_at_random(tmp_path, 5)  # writers at once may exceed the limit until the next writes
    assert set(names_in(tmp_path)) <= set(KEYS)
    assert n_bytes_in(tmp_path) <= 6 * N_BYTES
    for number in range(10):
        found = AdapterCache(tmp_path).get(KEYS[number])
        if found is not None:
            assert_equal_weights(found.adapter, an_adapter(number))


def test_a_pickled_cache_has_its_folder_and_limits(tmp_path):
    cache = AdapterCache(tmp_path, max_memory_bytes=7, max_disk_bytes=8)
    again = pickle.loads(pickle.dumps(cache))
    assert again.is_on_disk
    assert pickle.dumps(again) == pickle.dumps(cache)


EVICTING = """
import sys, pathlib
path = pathlib.Path(sys.argv[1])
content = path.read_bytes()
draft = path.with_suffix(".new")
print("begun", flush=True)
while True:
    draft.write_bytes(content)
    draft.replace(path)
    path.unlink()
"""


@pytest.mark.slow
def test_a_file_that_another_process_deletes_meanwhile_is_absent_not_damaged(tmp_path):
    """safetensors opens a file twice. What was gone at the second time was called damaged."""
    cache = AdapterCache(tmp_path, max_memory_bytes=0)
    cache.put(KEYS[0], an_adapter(), REPORT)
    evicting = [sys.executable, "-c", EVICTING, str(file_of(tmp_path, KEYS[0]))]
    found = []
    with subprocess.Popen(evicting, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with warnings.catch_warnings():
            warnings.simplefilter("error", AdapterCacheWarning)
            try:
                found = [cache.get(KEYS[0]) for _ in range(3000)]
            finally:
                process.kill()
    kept = [one for one in found if one is not None]
    assert all(torch.equal(one.adapter.values, an_adapter().values) for one in kept)
