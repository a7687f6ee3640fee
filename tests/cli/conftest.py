"""The commands in this process, in an empty folder, without the settings of whoever tests."""

import json
import os
import signal

import pytest

from sift_core.cli import run
from sift_core.cli.models import load_embedder
from sift_core.cli.store_addresses import StoreAddress
from sift_core.cli.stores import open_for_writing
from sift_core.documents import index_documents


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """An empty current folder, a terminal of 120 columns, and no settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in os.environ:
        if name.startswith("SIFT_") or name in ("QDRANT_API_KEY", "FORCE_COLOR"):
            monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture(autouse=True)
def heard():
    """Ctrl-C is heard, also by processes begun here: in a script's background it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def minilm():
    return load_embedder("all-MiniLM-L6-v2")


@pytest.fixture
def sift(capsys):
    """Return a function that calls a command and returns what it wrote: `.out` and `.err`."""

    def call(*arguments, code=0):
        from sift_core.cli.application import app

        capsys.readouterr()
        returned = run(lambda: app([str(argument) for argument in arguments]))
        captured = capsys.readouterr()
        assert returned == code, captured.err
        return captured

    return call


@pytest.fixture
def record(sift):
    """Return a function that calls a command with --json and returns what it tells."""
    return lambda *arguments, code=0: json.loads(sift(*arguments, "--json", code=code).out)


@pytest.fixture
def refusal(sift):
    """Return a function that calls a command that cannot work, and returns its one line."""

    def call(*arguments):
        captured = sift(*arguments, code=2)
        assert captured.out == ""
        assert captured.err.startswith("error: ")
        assert captured.err.count("\n") == 1
        return captured.err

    return call


@pytest.fixture(scope="session")
def fill(minilm):
    """Return a function that makes a store of documents by MiniLM."""

    def call(address, documents):
        where = StoreAddress.parse(address)
        with open_for_writing(where, embedder_name=minilm.name, dimension=384) as opened:
            index_documents(opened.source, documents, minilm, progress=False)
        return address

    return call
