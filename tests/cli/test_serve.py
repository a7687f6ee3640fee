"""`sift serve`: what it refuses before it listens, and a whole one in a process of its own."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import PurePath

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from sift_core import Document
from sift_core.cli.serve import _settings


def settings(host="127.0.0.1", key=None, *, no_auth=False, max_new_tokens=256):
    return _settings(
        host,
        key,
        no_auth=no_auth,
        model_name=None,
        timeout=60.0,
        max_new_tokens=max_new_tokens,
        origins=[],
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_an_address_that_others_reach_needs_a_key_or_a_word(refusal, host):
    assert "SIFT_API_KEY" in refusal("serve", "--host", host)
    assert settings(host, key="secret").api_key == "secret"
    assert settings(host, no_auth=True).api_key is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_the_loopback_needs_no_key_but_a_name_of_its_own(host):
    assert settings(host).api_key is None
    assert {"localhost", "host.docker.internal"} < set(settings(host).allowed_hosts)
    assert settings(host, key="secret").allowed_hosts == ()
    assert settings().max_new_tokens == 4096
    assert settings(max_new_tokens=8192).max_new_tokens == 8192  # as long as the operator names


def test_a_key_comes_from_the_environment_and_is_never_repeated(monkeypatch, refusal):
    monkeypatch.setenv("SIFT_API_KEY", "first")
    assert "first" not in refusal("serve", "--no-auth")
    assert "first" not in repr(settings(key="first"))


def test_the_variable_that_named_a_variable_of_the_key_is_refused(monkeypatch, refusal):
    monkeypatch.setenv("SIFT_SERVE_API_KEY", "MY_KEY")
    assert "put the key itself into SIFT_API_KEY" in refusal("serve", "--port", "0")


@pytest.mark.parametrize("flag", ["--n-context=3", "-n3", "--cite", "--vllm-model", "--dtype"])
def test_a_setting_that_is_typed_as_a_flag_is_told_where_it_belongs(refusal, sift, flag):
    key = "n-context" if flag == "-n3" else flag[2:].partition("=")[0]
    told = refusal("serve", flag, "3")
    assert f"set SIFT_SERVE_{key.replace('-', '_').upper()} in the environment, or {key} in" in told
    assert key in sift("serve", "--help").out.partition("Settings without a flag")[2]


def test_a_port_that_is_taken_is_told_before_anything_is_loaded(refusal):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "is the port taken?" in refusal("serve", "--port", str(taken.getsockname()[1]))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--vllm-folder"),
        (["--vllm-folder", "adapters", "--no-model"], "--no-model"),
        (["--vllm-folder", "adapters"], "is it running"),
    ],
    ids=["no folder", "no model", "no server"],
)
def test_what_vllm_needs_is_said_before_a_model_is_loaded(refusal, elsewhere, arguments, told):
    assert told in refusal("serve", "--port", "0", "--vllm", "http://127.0.0.1:1", *arguments)
    assert not (elsewhere / "adapters").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--no-model"], "--no-model rules out"),
        (["--vllm", "http://127.0.0.1:1", "--vllm-folder", "adapters"], "--vllm rules out"),
        ([], "is it running there?"),
    ],
    ids=["no model", "vLLM", "no server"],
)
def test_what_a_generator_needs_is_said(refusal, filled, arguments, told):
    pytest.importorskip("openai", reason="needs the extra openai")
    there = ["--generator", "http://127.0.0.1:1", "--generator-model", "small"]
    assert told in refusal("serve", "--port", "0", *there, *arguments)


def test_there_are_few_flags():
    from sift_core.cli.application import _UnloadedCommand

    command = _UnloadedCommand(name="serve", help="").load()
    flags = [one for one in command.params if not one.hidden]
    assert len(flags) <= 19


@contextmanager
def a_whole_service(folder, *arguments, stop=signal.SIGINT, **environment):
    """Run one over the folder's index in a process of its own; yield its address."""
    command = [sys.executable, "-m", "sift_core.cli", "serve", "--port", "0", *arguments]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        cwd=folder,
    ) as process:
        try:
            told = ""
            while "Serving" not in told:
                told = process.stderr.readline()
                assert told, process.wait()
            yield re.search(r"http://127\.0\.0\.1:\d+", told).group()
        finally:
            process.send_signal(stop)
            rest = process.stderr.read()
        assert process.wait(timeout=300) == 128 + stop
        assert "Traceback" not in rest


def request_to(url, body):
    headers = {"content-type": "application/json"}
    return urllib.request.Request(url, json.dumps(body).encode(), headers)


@pytest.fixture
def filled(fill, elsewhere):
    """A folder with an index of two documents."""
    texts = {"a": "Fold a boat.", "b": "Boil the water."}
    fill("faiss:.sift", [Document(document_id=key, text=text) for key, text in texts.items()])
    return elsewhere


@pytest.mark.slow
def test_a_whole_service_starts_from_an_index_and_ends_on_ctrl_c(filled, random_model):
    (filled / "sift.toml").write_text("[serve]\nmax-tokens = 1\ncite = true\n", encoding="utf-8")
    options = {"SIFT_API_KEY": "secret", "SIFT_CONFIG": "sift.toml", "SIFT_SERVE_STEPS": "2"}
    with a_whole_service(filled, "--model", random_model, **options) as address:
        body = {"query": "boat", "documents": ["tea", "a boat"]}
        request = request_to(f"{address}/rerank", body)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request, timeout=300)
        request.add_header("authorization", "Bearer secret")
        with urllib.request.urlopen(request, timeout=300) as answer:
            assert json.load(answer)["results"][0]["index"] == 1
        name = PurePath(random_model).name
        asked = {"messages": [{"role": "user", "content": "How do I fold a boat?"}]}
        for limits, n_sources in (({}, 0), ({"max_context_tokens": 500}, 2)):
            body = {"model": f"{name}:context", "max_tokens": 2, "sift": limits, **asked}
            request = request_to(f"{address}/v1/chat/completions", body)
            request.add_header("authorization", "Bearer secret")
            with urllib.request.urlopen(request, timeout=300) as answer:
                assert len(json.load(answer)["sift"]["sources"]) == n_sources


@pytest.mark.slow
def test_further_stores_are_collections_named_by_their_folders(filled, fill):
    fill("faiss:my notes", [Document(document_id="c", text="Paint a boat.")])
    with a_whole_service(filled, "--no-model", "--also-store", "faiss:my notes") as address:
        with urllib.request.urlopen(f"{address}/collections", timeout=300) as answer:
            listed = json.load(answer)["data"]
        assert [one["name"] for one in listed] == [filled.name, "my-notes"]
        texts = []
        for one in listed:
            request = request_to(f"{address}/{one['path']}search", {"query": "boat"})
            with urllib.request.urlopen(request, timeout=300) as answer:
                chunks = json.load(answer)["columns"]["sift"]["chunks"]
            texts.append({chunk["text"] for chunk in chunks})
        assert texts == [{"Fold a boat.", "Boil the water."}, {"Paint a boat."}]


def test_two_stores_of_one_name_are_refused(filled, fill, refusal):
    other = fill(f"faiss:{filled.name}/.sift", [Document(document_id="c", text="Paint a boat.")])
    message = refusal("serve", "--port", "0", "--no-model", "--also-store", other)
    assert f"two stores are called {filled.name!r}: faiss:.sift and {other}; rename" in message


@pytest.mark.slow
def test_a_whole_service_has_another_server_write(filled):
    pytest.importorskip("openai", reason="needs the extra openai")
    from tests.answering.openai_double import Api, serving_api

    with serving_api(Api()) as api:
        there = ["--generator", api.base_url, "--generator-model", "small"]
        with a_whole_service(filled, *there, SIFT_GENERATOR_API_KEY="theirs") as address:
            with urllib.request.urlopen(f"{address}/v1/models", timeout=300) as answer:
                names = [one["id"] for one in json.load(answer)["data"]]
            chat = {"messages": [{"role": "user", "content": "How do I fold a boat?"}]}
            request = request_to(
                f"{address}/v1/chat/completions", {"model": "small:context", **chat}
            )
            with urllib.request.urlopen(request, timeout=300) as answer:
                text = json.load(answer)["choices"][0]["message"]["content"]
    assert names[:3] == ["small", "small:context", "small:base"]
    assert text == "Fold the sheet [1]."
    assert api.headers[0]["authorization"] == "Bearer theirs"


@pytest.mark.slow
def test_a_whole_service_has_a_vllm_write(filled, random_model):
    pytest.importorskip("peft", reason="needs the extra vllm")
    from tests.answering.vllm_double import Vllm
    from tests.answering.vllm_double import serving as as_vllm

    with as_vllm(Vllm(base="org/served", key="theirs")) as vllm:
        there = ["--vllm", vllm.url, "--vllm-folder", "adapters"]
        more = ["--model", random_model, "--model-name", "tiny"]
        options = {"SIFT_SERVE_VLLM_MODEL": "org/served", "SIFT_SERVE_STEPS": "2"}
        with a_whole_service(filled, *there, *more, VLLM_API_KEY="theirs", **options) as address:
            chat = {"messages": [{"role": "user", "content": "How do I fold a boat?"}]}
            for mode in ("context", "fine_tune"):
                body = {"model": f"tiny:{mode}", **chat}
                request = request_to(f"{address}/v1/chat/completions", body)
                with urllib.request.urlopen(request, timeout=300) as answer:
                    text = json.load(answer)["choices"][0]["message"]["content"]
                assert text.startswith("written by")
        written_by = [body["model"] for route, body in vllm.calls if route == "completions"]
    assert written_by[0] == "org/served"
    assert len(written_by[1]) == 64
    assert (vllm.loaded, list((filled / "adapters").iterdir())) == ({}, [])


@pytest.mark.slow
def test_ctrl_c_amid_a_request_ends_in_form(filled):
    """Uvicorn wrote a traceback for each request that it cancelled, or that a second one met."""
    body = b"POST /search HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
    with a_whole_service(filled, "--no-model") as address:
        place = ("127.0.0.1", int(address.rpartition(":")[2]))
        connection = socket.create_connection(place, timeout=300)
        connection.sendall(body + b"content-length: 100\r\n\r\n{")
        assert connection.recv(100).startswith(b"HTTP/1.1 100")  # it waits for the rest
    with connection:
        rest = b"".join(iter(lambda: connection.recv(1000), b""))
    assert b" 503 " in rest
    assert b"is being stopped" in rest
