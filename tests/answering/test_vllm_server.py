"""An adapter reaches a server that behaves as vLLM does, and leaves it again, whatever happens."""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from sift_core import InvalidInputError, SiftError
from sift_core.answering import FineTuningSettings, VllmServer, fine_tune
from sift_core.errors import AdapterServerError
from tests.answering.plain_peft import TEXTS, loaded_by_peft, logits_of, lora
from tests.answering.vllm_double import BASE, LINEAR, Vllm, entries, serving

KEY = "key-that-nobody-may-read"
LIMIT_S = 300  # of what a busy machine may delay; what takes longer hangs


@pytest.fixture(scope="module")
def adapter(llama):
    return fine_tune(llama, TEXTS, FineTuningSettings(lora=lora(4), learning_rate=5e-3)).adapter


@pytest.fixture
def make(vllm, tmp_path):
    """Return a function that makes a `VllmServer`, which is closed at the end."""
    made = []

    def make(**options):
        options = {"base_model": BASE, "folder": tmp_path / "adapters", **options}
        made.append(VllmServer(options.pop("url", vllm.url), **options))
        return made[-1]

    yield make
    for server in made:
        server.close()


def until(condition):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def refused(call, *words):
    with pytest.raises(AdapterServerError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    return caught.value


def test_the_folder_is_one_that_peft_reads_and_vllm_takes(make, llama, adapter, tmp_path):
    # vLLM: r, lora_alpha, target_modules; no bias, modules_to_save, DoRA; rank within the limit;
    # tensors named base_model.model.MODULE.lora_A.weight with MODULE a linear layer.
    with make().serving(adapter) as model:
        place = tmp_path / "adapters" / model
        config = json.loads((place / "adapter_config.json").read_text(encoding="utf-8"))
        assert (config["peft_type"], config["base_model_name_or_path"]) == ("LORA", BASE)
        assert (config["r"], config["lora_alpha"], config["bias"]) == (4, 16, "none")
        assert {name.rpartition(".")[2] for name in config["target_modules"]} == LINEAR
        assert not any(config.get(x) for x in ("modules_to_save", "use_dora", "use_rslora"))
        tensors = load_file(place / "adapter_model.safetensors")
        assert len(tensors) == 2 * len(config["target_modules"])
        assert all(t.dtype == torch.float32 for t in tensors.values())
        by_peft = logits_of(loaded_by_peft(llama.model, place), range(1, 20))
    with llama.adapted(adapter):
        here = logits_of(llama.model, range(1, 20))
    assert torch.allclose(by_peft, here, rtol=0, atol=1e-5)
    assert not torch.allclose(by_peft, logits_of(llama.model, range(1, 20)), rtol=0, atol=1e-3)


def test_another_user_can_read_what_is_written(make, adapter, tmp_path):
    before = os.umask(0o022)
    try:
        with make().serving(adapter) as model:
            place = tmp_path / "adapters" / model
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}
            assert stat.S_IMODE(place.stat().st_mode) == 0o755
            assert set(modes.values()) == {0o644}
    finally:
        os.umask(before)


def test_a_name_goes_by_the_content_alone(make, adapter):
    server = make()
    name = server.name(adapter)
    assert len(name) == 64
    assert server.name(replace(adapter, key="another", base_name="x")) == name
    changed = adapter.values.clone()
    changed[-1] += 1e-6
    others = [replace(adapter, values=changed), replace(adapter, alpha=adapter.alpha + 1)]
    assert len({name, *map(server.name, others), make(base_model="b").name(adapter)}) == 4


def test_the_server_is_told_its_own_path(make, vllm, adapter):
    server = make(folder_there="/mnt/adapters/")
    error = refused(
        lambda: server.load(adapter), "404", f"/mnt/adapters/{server.name(adapter)}", "folder_there"
    )
    assert error.status == 404


def test_what_somebody_else_loaded_is_used_and_left(make, vllm, adapter, tmp_path):
    server = make()
    name = server.name(adapter)
    vllm.loaded[name] = "/elsewhere"
    with server.serving(adapter) as model:
        assert model == name
        assert entries(tmp_path) == []
    assert vllm.loaded == {name: "/elsewhere"}
    assert vllm.routes() == ["models"]


def test_a_name_that_is_taken_meanwhile_counts_as_loaded(make, vllm, adapter):
    server = make()
    name = server.name(adapter)
    none_yet = {"data": [{"id": BASE}]}
    vllm.failures["models"] = [(200, none_yet)]
    vllm.loaded[name] = "/elsewhere"
    with server.serving(adapter) as model:
        assert model == name
    assert vllm.loaded == {name: "/elsewhere"}
    assert vllm.routes() == ["models", "load_lora_adapter", "models"]


def test_users_of_one_adapter_share_it_until_the_last_has_gone(make, vllm, adapter, tmp_path):
    server, barrier, gone = make(), threading.Barrier(8), threading.Event()

    def use(stays):
        barrier.wait(LIMIT_S)
        with server.serving(adapter) as model:
            barrier.wait(LIMIT_S)
            return (not stays or gone.wait(LIMIT_S)) and model in vllm.loaded

    with ThreadPoolExecutor(8) as threads:
        last, *others = [threads.submit(use, i == 0) for i in range(8)]
        try:
            assert all(other.result(LIMIT_S) for other in others)
            assert list(vllm.loaded) == [server.name(adapter)] == entries(tmp_path)
        finally:
            gone.set()
        assert last.result(LIMIT_S)
    assert vllm.loaded == {}
    routes = vllm.routes()
    assert routes.count("load_lora_adapter") == routes.count("unload_lora_adapter") == 1


def test_an_error_in_the_block_unloads_and_is_seen_though_unloading_fails(
    make, vllm, adapter, tmp_path, caplog
):
    vllm.failures["unload_lora_adapter"] = [(500, {"error": {"message": "engine dead"}})]
    with pytest.raises(KeyError, match="mine"), make().serving(adapter):
        raise KeyError("mine")
    assert "engine dead" in caplog.text
    assert caplog.records[0].levelno == logging.WARNING


def test_a_failed_unloading_is_told_and_tried_again(make, vllm, adapter, tmp_path):
    server = make()
    name = server.load(adapter)
    vllm.failures["unload_lora_adapter"] = [(500, {"error": {"message": "not now"}})]
    assert refused(lambda: server.unload(name), "500 not now").status == 500
    assert list(vllm.loaded) == entries(tmp_path) == [name]
    with server.serving(adapter):
        pass
    assert vllm.loaded == {}
    assert entries(tmp_path) == []
    assert vllm.routes().count("load_lora_adapter") == 1


def test_closing_unloads_what_is_left(make, vllm, adapter, tmp_path):
    with make() as server:
        server.load(adapter)
        server.load(replace(adapter, alpha=1.0))
    assert vllm.loaded == {}
    assert entries(tmp_path) == []
    refused(lambda: server.load(adapter), "closed")


def test_a_name_is_unloaded_once_for_each_load(make, adapter):
    server = make()
    name = server.load(adapter)
    server.unload(name)
    with pytest.raises(InvalidInputError, match="is loaded here"):
        server.unload(name)


def test_a_server_that_was_restarted_is_told_again(make, vllm, adapter):
    server = make()
    name = server.load(adapter)
    vllm.loaded.clear()
    assert server.load(adapter) == name
    assert list(vllm.loaded) == [name]
    vllm.loaded.clear()
    server.unload(name)
    server.unload(name)


def test_a_server_that_is_gone(make, adapter, tmp_path):
    with serving(Vllm()) as gone:
        server = make(url=gone.url)
        name = server.load(adapter)
    error = refused(lambda: server.load(replace(adapter, alpha=1.0)), gone.url, "is it running")
    assert error.status is None
    refused(lambda: server.unload(name), "is it running")
    assert entries(tmp_path) == [name]
    server.close()
    assert entries(tmp_path) == []


def test_a_server_that_is_late(make, vllm, adapter, tmp_path):
    # It has loaded the adapter when nobody waits for it any more: `close` unloads it.
    server = make(timeout_s=0.5)
    vllm_answer, loaded, given_up = vllm.answer, threading.Event(), threading.Event()

    def answer(route, body, key):
        told = vllm_answer(route, body, key)
        if route == "load_lora_adapter":
            loaded.set()
            assert given_up.wait(LIMIT_S)
        return told

    def load():
        while True:
            try:
                return server.load(adapter)
            except AdapterServerError as error:
                if "/v1/models" not in str(error):  # a busy double may be late there, too
                    raise

    vllm.answer = answer
    error = refused(load, "did not answer /v1/load_lora_adapter in 0.5 s")
    assert error.status is None
    assert loaded.wait(LIMIT_S)
    given_up.set()
    assert list(vllm.loaded) == entries(tmp_path)
    server.close()
    until(lambda: vllm.loaded == {})  # a late answer is a warning: nothing stays here
    assert entries(tmp_path) == []


def test_a_request_that_nobody_waited_for_may_be_carried_out_at_last(make, vllm, adapter, tmp_path):
    server = make()
    name = server.load(adapter)
    vllm.failures["unload_lora_adapter"] = [(500, b"")]
    refused(lambda: server.unload(name))  # so that it is still ours, as after a lost answer
    vllm.failures["models"] = [(200, {"data": [{"id": BASE}]})]
    with server.serving(adapter):
        assert vllm.routes()[-3:] == ["models", "load_lora_adapter", "models"]
    assert vllm.loaded == {}
    assert entries(tmp_path) == []


def test_those_used_last_stay_loaded_until_the_end(make, vllm, adapter, tmp_path):
    server = make(n_kept=1)
    names = []
    for one in (adapter, adapter, replace(adapter, alpha=2.0)):
        with server.serving(one) as name:
            names.append(name)
    assert vllm.routes().count("load_lora_adapter") == 2
    assert [*vllm.loaded] == entries(tmp_path) == [names[2]]
    vllm.loaded.clear()  # as after its restart
    with server.serving(replace(adapter, alpha=2.0)) as name:
        assert [*vllm.loaded] == [name] == [names[2]]
    server.close()
    assert (vllm.loaded, entries(tmp_path)) == ({}, [])


def test_a_rank_that_the_server_refuses(make, vllm, adapter, tmp_path):
    vllm.max_lora_rank = 2
    error = refused(lambda: make().load(adapter), "LoRA rank 4", "--max-lora-rank 8 or more")
    assert error.status == 500
    assert entries(tmp_path) == []


ENABLE = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora"
ANSWERS = {
    "no such route": (404, {"detail": "Not Found"}, ENABLE),
    "forbidden by a proxy": (403, b"<html>Forbidden</html>", ENABLE),
    "without --enable-lora": (500, {"error": {"message": "LoRA is not enabled."}}, "--enable-lora"),
    "an odd layer": (400, {"message": "expected target modules in {'q'}"}, "target_modules="),
    "no words": (503, b"", "without a word"),
    "JSON without end": (500, b"[" * 100_000, "its log says more"),
    "a control sequence": (500, {"message": "a\x1b[31m\nb"}, "500 a [31m b;"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_other_refusals(case, make, vllm, adapter, tmp_path):
    status, body, word = ANSWERS[case]
    vllm.failures["load_lora_adapter"] = [(status, body)]
    assert refused(lambda: make().load(adapter), word).status == status
    assert entries(tmp_path) == []


@pytest.mark.parametrize(
    "body", [b"hello", b"[]", b'{"data": 3}', b'{"data": [{}]}', {"data": None}, b"[" * 100_000]
)
def test_a_server_that_is_no_vllm(body, make, vllm, adapter):
    vllm.failures["models"] = [(200, body)]
    refused(lambda: make().load(adapter), "list its models")


def test_a_server_of_another_model(make, adapter, tmp_path):
    refused(lambda: make(base_model="other/model").load(adapter), BASE, "other/model", "base_model")
    assert entries(tmp_path) == []


def test_the_key_is_sent_and_never_told(make, vllm, adapter):
    vllm.key = KEY
    with make(api_key=KEY).serving(adapter) as model:
        assert list(vllm.loaded) == [model]
    error = refused(lambda: make(api_key="wrong-" + KEY).load(adapter), "401", "api_key")
    echo = {"error": {"message": f"bad key {KEY}"}}
    vllm.failures["load_lora_adapter"] = [(500, echo)]
    server = make(api_key=KEY)
    shown = refused(lambda: server.load(adapter), "bad key ***")
    assert KEY not in f"{error} {shown} {server!r}"


@pytest.mark.parametrize(
    "options",
    [
        {"url": f"http://user:{KEY}@host:8000"},
        {"url": f"http://host/?key={KEY}"},
        {"url": "127.0.0.1:8000"},
        {"url": "ftp://host"},
        {"url": None},
        {"base_model": " "},
        {"base_model": None},
        {"folder_there": "adapters"},
        {"api_key": KEY + "\n"},
        {"api_key": KEY + "\nx"},
        {"api_key": ""},
        {"timeout_s": 0},
    ],
)
def test_odd_arguments_are_refused(options, make):
    with pytest.raises(InvalidInputError) as caught:
        make(**options)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("what", [None, "adapter"])
def test_what_is_no_adapter_is_refused(what, make):
    with pytest.raises(InvalidInputError, match="takes a LoRA, got"):
        make().load(what)


def test_a_folder_that_cannot_be_written_to(make, adapter, tmp_path):
    (tmp_path / "file").write_text("")
    error = refused(lambda: make(folder=tmp_path / "file" / "in").load(adapter), "could not be")
    assert error.status is None
    assert isinstance(error, SiftError)


def test_a_folder_that_was_left_half_written_is_made_whole(make, vllm, adapter, tmp_path):
    server = make()
    place = tmp_path / "adapters" / server.name(adapter)
    place.mkdir(parents=True)
    (place / "adapter_config.json").write_text("{")
    with server.serving(adapter) as model:
        assert list(vllm.loaded) == entries(tmp_path) == [model]


def test_a_link_in_place_of_the_folder_is_not_written_through(make, adapter, tmp_path):
    server = make()
    (tmp_path / "adapters").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "adapters" / server.name(adapter)).symlink_to(tmp_path / "other")
    refused(lambda: server.load(adapter), "could not be written")
    assert list((tmp_path / "other").iterdir()) == []
    assert entries(tmp_path) == [server.name(adapter)]
