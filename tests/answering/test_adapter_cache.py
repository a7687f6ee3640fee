import json
import os
import subprocess
import sys
import threading
import warnings
from dataclasses import replace

import pytest
import torch
from peft import PeftModel

from sift_core import InvalidInputError
from sift_core.answering import FineTuningSettings
from sift_core.answering.learning.adapter_cache import AdapterCache, adapter_key
from sift_core.answering.learning.adapter_folder import ABANDONED_S, RECORD_NAME
from sift_core.answering.learning.adapters import (
    CONFIG_NAME,
    WEIGHTS_NAME,
    AdaptedLayer,
    Adapter,
    AdapterLayout,
)
from sift_core.answering.learning.fine_tuning import fine_tune
from sift_core.errors import AdapterCacheWarning
from sift_core.types import FineTuningReport

SETTINGS = FineTuningSettings(rank=4, learning_rate=1e-2)
TEXTS = ["the cat sat on the mat", "the dog sat on the log"]
KEYS = [f"{number:064x}" for number in range(20)]
LAYOUT = AdapterLayout(layers=(AdaptedLayer(name="layer", n_in=64, n_out=64),), rank=8)
N_BYTES = 4 * LAYOUT.n_values
REPORT = FineTuningReport(losses=(1.5, 0.1 + 0.2), n_steps=2, n_skipped=1, rows_per_pass=3)


def an_adapter(seed=0):
    values = torch.randn(LAYOUT.n_values, generator=torch.Generator().manual_seed(seed))
    return Adapter(layout=LAYOUT, alpha=16.0, values=values)


def assert_equal_weights(first, second):
    ours, theirs = first.tensors(), second.tensors()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def names_in(folder):
    return sorted(entry.name for entry in folder.iterdir())


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
        {"settings": replace(SETTINGS, rank=5)},
        {"settings": replace(SETTINGS, alpha=17.0)},
        {"settings": replace(SETTINGS, learning_rate=2e-2)},
        {"settings": replace(SETTINGS, seed=1)},
        {"settings": replace(SETTINGS, scope="top:1")},
        {"settings": replace(SETTINGS, chunks_per_step=2)},
        {"settings": replace(SETTINGS, reuse_gradients=True)},
        {"settings": replace(SETTINGS, chunk_format="chat")},
        {"settings": replace(SETTINGS, chunk_format="chat", chat_request="Speak.")},
    ]
    keys = [key_of(lm, **change) for change in changes]
    assert len(set(keys)) == len(changes)
    assert keys == [key_of(lm, **change) for change in changes]
    assert all(len(key) == 64 and int(key, 16) >= 0 for key in keys)


def test_settings_without_effect_do_not_change_the_key(make_random_lm):
    lm = make_random_lm()
    for same in (
        replace(SETTINGS, max_seconds=3.0),
        replace(SETTINGS, chat_request="Of no use without a chat."),
    ):
        assert key_of(lm, settings=same) == key_of(lm)
    default, same = FineTuningSettings(), FineTuningSettings(learning_rate=5e-4)
    assert key_of(lm, settings=default) == key_of(lm, settings=same)


def test_a_tokenizer_that_reads_otherwise_has_another_key(byte_tokenizer, make_random_lm, tiny_lm):
    lm = make_random_lm()
    keys = {key_of(lm), key_of(tiny_lm)}
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


def test_ids_that_do_not_fit_the_texts_are_refused(make_random_lm):
    with pytest.raises(InvalidInputError, match="one id a text, got 1"):
        key_of(make_random_lm(), document_ids=["1"])


def test_an_adapter_is_found_in_memory_then_on_disk_with_its_report(tmp_path):
    cache = AdapterCache(tmp_path / "new" / "folder")
    assert cache.get(KEYS[0]) is None
    assert cache.put(KEYS[0], an_adapter(), REPORT)
    for found, source in [
        (cache.get(KEYS[0]), "memory"),
        (AdapterCache(cache.folder_of(KEYS[0]).parent).get(KEYS[0]), "disk"),
    ]:
        assert_equal_weights(found.adapter, an_adapter())
        assert found.adapter.key == KEYS[0]
        assert found.report == replace(REPORT, source=source)
    assert cache.get(KEYS[1]) is None


def test_what_came_from_disk_is_in_memory_afterwards(tmp_path):
    AdapterCache(tmp_path).put(KEYS[0], an_adapter(), REPORT)
    cache = AdapterCache(tmp_path)
    assert [cache.get(KEYS[0]).report.source for _ in range(3)] == ["disk", "memory", "memory"]
    assert cache.n_memory_bytes == N_BYTES


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache = AdapterCache()
    cache.put(KEYS[0], an_adapter(), REPORT)
    assert cache.get(KEYS[0]) is not None
    assert cache.folder_of(KEYS[0]) is None
    assert not names_in(tmp_path)
    assert cache.n_disk_bytes == 0


@pytest.mark.parametrize("shape", ["llama, tied head", "gpt2"])
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_a_cached_folder_is_an_adapter_of_peft(shape, make_random_lm, tmp_path):
    lm = make_random_lm(shape)
    tuned = fine_tune(lm, TEXTS, SETTINGS)
    AdapterCache(tmp_path).put(KEYS[0], tuned.adapter, tuned.report)
    cached = AdapterCache(tmp_path).get(KEYS[0])
    ids = torch.tensor([[0, *lm.token_ids(TEXTS[0])]])
    with torch.no_grad():
        base = lm.model(ids).logits
        with lm.adapted(tuned.adapter):
            learned = lm.model(ids).logits
        with lm.adapted(cached.adapter):
            assert torch.equal(lm.model(ids).logits, learned)
        theirs = PeftModel.from_pretrained(
            make_random_lm(shape).model, AdapterCache(tmp_path).folder_of(KEYS[0])
        )
        torch.testing.assert_close(theirs(ids).logits, learned, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(base, learned, atol=1e-3)


def test_what_was_cut_short_and_copies_of_a_model_are_not_cached(make_random_lm, tmp_path):
    cache = AdapterCache(tmp_path)
    assert not cache.put(KEYS[0], an_adapter(), replace(REPORT, stop_reason="time"))
    assert not cache.put(KEYS[0], an_adapter(), replace(REPORT, stop_reason="diverged"))
    tuned = fine_tune(make_random_lm(), TEXTS[:1], FineTuningSettings(scope="full"))
    assert not cache.put(KEYS[0], tuned.adapter, tuned.report)
    assert cache.get(KEYS[0]) is None
    assert not names_in(tmp_path)


@pytest.mark.parametrize("key", ["", "../" + KEYS[0][3:], KEYS[0] + "\n", "F" * 64, "a/b", None])
def test_a_key_that_is_no_hash_is_refused(key, tmp_path):
    cache = AdapterCache(tmp_path / "cache")
    for call in (
        lambda: cache.get(key),
        lambda: cache.put(key, an_adapter(), REPORT),
        lambda: cache.folder_of(key),
    ):
        with pytest.raises(InvalidInputError, match="64 hexadecimal digits"):
            call()
    assert not names_in(tmp_path)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) * 3 // 4] ^= 1
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


def delete(path):
    path.unlink()


def put_a_link(path):
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def put_a_pipe(path):
    path.unlink()
    os.mkfifo(path)


def put_a_folder(path):
    path.unlink()
    path.mkdir()


def nest_deeply(path):
    path.write_text("[" * 100_000)


def put_another_form(path):
    path.write_text('["checksum"]')


DAMAGE = [cut, flip_a_bit, empty, delete, put_a_link, put_a_pipe, put_a_folder]


@pytest.mark.parametrize("name", [WEIGHTS_NAME, CONFIG_NAME, RECORD_NAME])
@pytest.mark.parametrize("damage", [*DAMAGE, nest_deeply, put_another_form])
def test_a_damaged_adapter_is_reported_deleted_and_learned_anew(damage, name, tmp_path):
    writer = AdapterCache(tmp_path)
    writer.put(KEYS[0], an_adapter(), REPORT)
    damage(tmp_path / KEYS[0] / name)
    cache = AdapterCache(tmp_path)
    with pytest.warns(AdapterCacheWarning, match="damaged and was deleted"):
        assert cache.get(KEYS[0]) is None
    assert set(names_in(tmp_path)) <= {"elsewhere"}  # a link's target is not the cache's
    assert cache.get(KEYS[0]) is None  # once is enough
    cache.put(KEYS[0], an_adapter(), REPORT)
    assert AdapterCache(tmp_path).get(KEYS[0]).report.source == "disk"


def test_every_bit_of_every_file_is_checked(tmp_path):
    writer = AdapterCache(tmp_path, max_memory_bytes=0)
    for name in (WEIGHTS_NAME, CONFIG_NAME, RECORD_NAME):
        writer.put(KEYS[0], an_adapter(), REPORT)
        path = tmp_path / KEYS[0] / name
        sound = path.read_bytes()
        for place in range(0, len(sound), max(1, len(sound) // 40)):
            altered = bytearray(sound)
            altered[place] ^= 0x01  # turns no blank into another blank
            writer.put(KEYS[0], an_adapter(), REPORT)
            path.write_bytes(altered)
            with pytest.warns(AdapterCacheWarning):
                assert writer.get(KEYS[0]) is None


def test_a_record_of_another_key_is_not_taken(tmp_path):
    cache = AdapterCache(tmp_path)
    cache.put(KEYS[0], an_adapter(), REPORT)
    (tmp_path / KEYS[0]).rename(tmp_path / KEYS[1])
    with pytest.warns(AdapterCacheWarning, match="altered"):
        assert cache.get(KEYS[1]) is None


def test_an_entry_that_is_a_link_is_not_followed_and_its_target_stays(tmp_path):
    AdapterCache(tmp_path / "other").put(KEYS[0], an_adapter(), REPORT)
    before = os.stat(tmp_path / "other" / KEYS[0]).st_mtime_ns
    cache = AdapterCache(tmp_path / "cache")
    for use in ("touch", "get", "put", "clear", "evict"):
        (tmp_path / "cache").mkdir(exist_ok=True)
        (tmp_path / "cache" / KEYS[0]).symlink_to(tmp_path / "other" / KEYS[0])
        if use == "touch":
            in_memory = AdapterCache(tmp_path / "cache", max_disk_bytes=0)
            in_memory.put(KEYS[0], an_adapter(), REPORT)
            assert in_memory.get(KEYS[0]).report.source == "memory"
            (tmp_path / "cache" / KEYS[0]).unlink()
        elif use == "get":
            with pytest.warns(AdapterCacheWarning, match="no folder"):
                assert cache.get(KEYS[0]) is None
        elif use == "put":
            assert cache.put(KEYS[0], an_adapter(), REPORT)
            assert not (tmp_path / "cache" / KEYS[0]).is_symlink()
            cache.clear()
        elif use == "clear":
            cache.clear()
            (tmp_path / "cache" / KEYS[0]).unlink()
        else:
            AdapterCache(tmp_path / "cache", max_disk_bytes=0).put(KEYS[1], an_adapter(), REPORT)
    assert sorted(names_in(tmp_path / "other" / KEYS[0])) == sorted(
        [CONFIG_NAME, WEIGHTS_NAME, RECORD_NAME]
    )
    assert os.stat(tmp_path / "other" / KEYS[0]).st_mtime_ns == before


def test_foreign_files_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / ("A" * 64)).mkdir()
    cache = AdapterCache(tmp_path, max_disk_bytes=N_BYTES * 3 // 2)
    for key in KEYS[:3]:
        cache.put(key, an_adapter(), REPORT)
    assert len(names_in(tmp_path)) == 4
    cache.clear()
    assert names_in(tmp_path) == ["A" * 64, "folder", "notes.txt"]
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert cache.get(KEYS[2]) is None


def test_memory_is_bounded_and_the_least_recently_used_goes_first():
    cache = AdapterCache(max_memory_bytes=3 * N_BYTES)
    for key in KEYS[:3]:
        cache.put(key, an_adapter(), REPORT)
    cache.get(KEYS[0])
    cache.put(KEYS[1], an_adapter(), REPORT)  # again: takes no more room
    cache.put(KEYS[3], an_adapter(), REPORT)
    assert [key for key in KEYS if cache.get(key)] == [KEYS[0], KEYS[1], KEYS[3]]
    assert cache.n_memory_bytes == 3 * N_BYTES
    cache.clear()
    assert cache.n_memory_bytes == 0


def test_the_disk_is_bounded_and_use_in_memory_counts_as_use(tmp_path):
    one = AdapterCache(tmp_path)
    one.put(KEYS[0], an_adapter(), REPORT)
    limit = 3 * one.n_disk_bytes
    cache = AdapterCache(tmp_path, max_disk_bytes=limit)
    for key in KEYS[1:3]:
        cache.put(key, an_adapter(), REPORT)
    assert cache.get(KEYS[0]).report.source == "disk"
    assert cache.get(KEYS[1]).report.source == "memory"
    for key in KEYS[3:5]:
        cache.put(key, an_adapter(), REPORT)
    assert names_in(tmp_path) == [KEYS[1], KEYS[3], KEYS[4]]
    assert cache.n_disk_bytes <= limit


def test_an_adapter_above_both_limits_is_not_kept(tmp_path):
    cache = AdapterCache(tmp_path, max_memory_bytes=N_BYTES - 1, max_disk_bytes=N_BYTES - 1)
    assert not cache.put(KEYS[0], an_adapter(), REPORT)
    assert not names_in(tmp_path)
    # Its weights fit, all its files do not.
    assert not AdapterCache(tmp_path, max_memory_bytes=0, max_disk_bytes=N_BYTES).put(
        KEYS[0], an_adapter(), REPORT
    )
    assert not names_in(tmp_path)


def test_a_limit_below_zero_is_refused():
    with pytest.raises(InvalidInputError, match="max_memory_bytes"):
        AdapterCache(max_memory_bytes=-1)
    with pytest.raises(InvalidInputError, match="max_disk_bytes"):
        AdapterCache(max_disk_bytes=-1)


def test_drafts_of_killed_processes_are_deleted_and_young_ones_are_not(tmp_path):
    cache = AdapterCache(tmp_path)
    for name, age in [("old", ABANDONED_S + 60), ("young", ABANDONED_S - 60)]:
        draft = tmp_path / f".sift-unfinished-{name}"
        draft.mkdir()
        (draft / WEIGHTS_NAME).write_bytes(b"half")
        then = draft.stat().st_mtime - age
        os.utime(draft, (then, then))
    cache.put(KEYS[0], an_adapter(), REPORT)
    assert names_in(tmp_path) == [".sift-unfinished-young", KEYS[0]]


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
def test_a_full_disk_is_reported_and_leaves_nothing_half_written(tmp_path):
    resource = pytest.importorskip("resource")
    layout = AdapterLayout(layers=(AdaptedLayer(name="layer", n_in=2, n_out=2),), rank=1)
    small = Adapter(layout=layout, alpha=1.0, values=torch.ones(layout.n_values))
    cache = AdapterCache(tmp_path)
    cache.put(KEYS[0], small, REPORT)
    largest = max(path.stat().st_size for path in (tmp_path / KEYS[0]).iterdir())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    where = set()
    for limit in range(0, largest, 50):  # weights, configuration or record do not fit
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))  # Python ignores SIGXFSZ
        try:
            with pytest.warns(AdapterCacheWarning, match="could not be written") as caught:
                assert cache.put(KEYS[1], small, REPORT)  # it is in memory
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        where.add(str(caught[0].message).rpartition(": ")[0])
        assert names_in(tmp_path) == [KEYS[0]]
        assert cache.get(KEYS[1]).report.source == "memory"
    assert len(where) > 1
    assert AdapterCache(tmp_path).get(KEYS[0]).report.source == "disk"
    assert cache.put(KEYS[1], small, REPORT)
    assert AdapterCache(tmp_path).get(KEYS[1]).report.source == "disk"


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = AdapterCache(tmp_path / "file" / "cache")
    assert cache.get(KEYS[0]) is None
    with pytest.warns(AdapterCacheWarning, match="could not be written"):
        assert cache.put(KEYS[0], an_adapter(), REPORT)
    assert cache.get(KEYS[0]).report.source == "memory"
    assert cache.n_disk_bytes == 0
    with pytest.warns(AdapterCacheWarning, match="could not be deleted"):
        cache.clear()
    without_memory = AdapterCache(tmp_path / "file", max_memory_bytes=0)
    with pytest.warns(AdapterCacheWarning, match="could not be written"):
        assert not without_memory.put(KEYS[0], an_adapter(), REPORT)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_a_read_only_folder_is_read_and_its_damage_reported(tmp_path):
    AdapterCache(tmp_path).put(KEYS[0], an_adapter(), REPORT)
    tmp_path.chmod(0o500)
    try:
        assert AdapterCache(tmp_path).get(KEYS[0]) is not None
        with pytest.warns(AdapterCacheWarning, match="could not be written"):
            assert AdapterCache(tmp_path).put(KEYS[1], an_adapter(), REPORT)
    finally:
        tmp_path.chmod(0o700)


def use_at_random(folder, seed, n_rounds, errors):
    cache = AdapterCache(folder, max_memory_bytes=2 * N_BYTES, max_disk_bytes=6 * N_BYTES)
    generator = torch.Generator().manual_seed(seed)
    try:
        for _ in range(n_rounds):
            number = int(torch.randint(10, (1,), generator=generator))
            found = cache.get(KEYS[number])
            if found is None:
                cache.put(KEYS[number], an_adapter(number), REPORT)
            else:
                assert_equal_weights(found.adapter, an_adapter(number))
                assert found.adapter.key == KEYS[number]
    except BaseException as error:
        errors.append(error)


def test_many_threads_and_processes_share_a_folder(tmp_path):
    program = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\nfrom test_adapter_cache import use_at_random\n"
        "errors = []\nuse_at_random(Path(sys.argv[1]), 99, 150, errors)\n"
        "sys.exit(repr(errors) if errors else 0)"
    )
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        program,
        str(tmp_path),
        os.path.dirname(__file__),
    ]
    other = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    errors = []
    threads = [
        threading.Thread(target=use_at_random, args=(tmp_path, seed, 60, errors))
        for seed in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    use_at_random(tmp_path, 5, 60, errors)
    _, said = other.communicate(timeout=120)
    assert not errors
    assert other.returncode == 0, said
    assert set(names_in(tmp_path)) <= set(KEYS)
    assert AdapterCache(tmp_path, max_disk_bytes=6 * N_BYTES).n_disk_bytes <= 6 * N_BYTES
    for number in range(10):
        found = AdapterCache(tmp_path).get(KEYS[number])
        assert found is None or torch.equal(
            found.adapter.tensors()["base_model.model.layer.lora_A.weight"],
            an_adapter(number).tensors()["base_model.model.layer.lora_A.weight"],
        )


def test_one_cache_is_shared_by_threads():
    cache, errors = AdapterCache(max_memory_bytes=3 * N_BYTES), []

    def use(seed):
        try:
            for number in torch.randint(
                6, (300,), generator=torch.Generator().manual_seed(seed)
            ).tolist():
                found = cache.get(KEYS[number])
                if found is None:
                    cache.put(KEYS[number], an_adapter(number), REPORT)
                else:
                    assert torch.equal(found.adapter.values, an_adapter(number).values)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    n_kept = sum(cache.get(key) is not None for key in KEYS)
    assert 1 <= n_kept <= 3
    assert cache.n_memory_bytes == n_kept * N_BYTES


def test_nothing_but_json_and_safetensors_is_written_for_the_owner_alone(tmp_path):
    cache = AdapterCache(tmp_path / "cache")
    cache.put(KEYS[0], an_adapter(), REPORT)
    folder = cache.folder_of(KEYS[0])
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}
    assert json.loads((folder / RECORD_NAME).read_text())["key"] == KEYS[0]
    if os.name == "posix":
        assert (tmp_path / "cache").stat().st_mode & 0o077 == 0
        assert folder.stat().st_mode & 0o077 == 0


def test_no_warning_where_there_is_nothing_to_say(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache = AdapterCache(tmp_path)
        cache.clear()
        cache.put(KEYS[0], an_adapter(), REPORT)
        cache.get(KEYS[0])
        AdapterCache(tmp_path / "missing").clear()
