"""`sift serve`: what it refuses before it listens, and a whole one in a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from sift_core import Document
from sift_core.cli.serve import _key, _settings


def settings(host="127.0.0.1", key=None, *, no_auth=False):
    return _settings(host, key, no_auth=no_auth, model_name=None, timeout=60.0, origins=[])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_an_address_that_others_reach_needs_a_key_or_a_word(refusal, host):
    assert "SIFT_API_KEY" in refusal("serve", "--host", host)
    assert settings(host, key="secret").api_key == "secret"
    assert settings(host, no_auth=True).api_key is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_the_loopback_needs_no_key_but_a_name_of_its_own(host):
    assert settings(host).api_key is None
    assert "localhost" in settings(host).allowed_hosts
    assert settings(host, key="secret").allowed_hosts == ()


def test_a_key_comes_from_the_environment_and_is_never_repeated(monkeypatch, refusal):
    assert _key(None) is None
    monkeypatch.setenv("SIFT_API_KEY", "first")
    monkeypatch.setenv("OTHER", "second")
    assert _key(None) == "first"
    assert _key("OTHER") == "second"
    assert "sk-real-key" not in refusal("serve", "--api-key", "sk-real-key")
    assert "first" not in refusal("serve", "--no-auth")
    assert "first" not in repr(settings(key="first"))


def test_a_settings_file_of_the_folder_opens_nothing_to_others(refusal, elsewhere):
    for line in ('host = "0.0.0.0"', "no-auth = true", 'allow-origin = "*"', 'api-key = "HOME"'):
        (elsewhere / "sift.toml").write_text(f"[serve]\n{line}\n")
        assert "sift.toml" in refusal("serve")


def test_there_must_be_an_index(refusal):
    assert "sift index" in refusal("serve")


@pytest.mark.slow
def test_a_whole_service_starts_from_an_index_and_ends_on_ctrl_c(fill, elsewhere, random_model):
    fill(
        "faiss:.sift",
        [
            Document(document_id="a", text="Fold a boat."),
            Document(document_id="b", text="Boil the water."),
        ],
    )
    environment = {**os.environ, "SIFT_API_KEY": "secret"}
    command = [
        sys.executable,
        "-m",
        "sift_core.cli",
        "serve",
        "--port",
        "0",
        "--model",
        random_model,
    ]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, cwd=elsewhere
    ) as process:
        try:
            told = ""
            while "Serving" not in told:
                told = process.stderr.readline()
                assert told, process.wait()
            address = re.search(r"http://127\.0\.0\.1:\d+", told).group()
            body = json.dumps({"query": "boat", "documents": ["tea", "a boat"]}).encode()
            headers = {"content-type": "application/json"}
            request = urllib.request.Request(f"{address}/rerank", body, headers)
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(request, timeout=60)
            request.add_header("authorization", "Bearer secret")
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert json.load(answer)["results"][0]["index"] == 1
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
        assert process.wait(timeout=60) == 130
        assert "Traceback" not in rest
