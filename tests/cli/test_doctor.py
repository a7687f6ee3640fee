"""`sift doctor` tells what is there, what does not fit, which settings hold, and the store."""

import json
import platform
import sys

import pytest

from sift_core.answering.model.loading import cpu_number_type
from sift_core.cli.store_addresses import StoreAddress
from sift_core.cli.stores import open_for_writing


def installed(folder, name, version, requires=(), *, origin=None, extras=()):
    """Put the description of a distribution where imports look.

    `origin` is what pip writes down of a distribution that came from no index.
    """
    distribution = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    distribution.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {one}" for one in requires]
    lines += [f"Provides-Extra: {one}" for one in extras]
    if origin is not None:
        (distribution / "direct_url.json").write_text(json.dumps(origin), encoding="utf-8")
    (distribution / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def ours(monkeypatch, tmp_path):
    """Return a function that lets this library be one with the extras `brief` and `brief-gpu`."""

    def describe(origin=None):
        requires = [
            'no-such-one; extra == "brief"',
            'no-such-two; extra == "brief-gpu"',
            'sift-rerank[brief]; extra == "all"',
            'never; python_version < "3"',
        ]
        site = tmp_path / "site"
        extras = ["all", "brief", "brief-gpu"]
        installed(site, "sift-rerank", "0.1.0", requires, origin=origin, extras=extras)
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # without nvidia-smi

    return describe


def test_one_screen_tells_versions_settings_and_store(sift, record):
    told = sift("doctor").out
    assert platform.python_version() in told
    assert "faiss:.sift (default)" in told
    assert "no index at faiss:.sift; make one" in told
    assert "nothing that is installed is at fault" in told
    assert "HuggingFaceTB/SmolLM2-135M-Instruct (default)" in told
    assert "\x1b" not in told
    assert len(told.splitlines()) <= 40
    parts = ["versions", "devices", "computing", "missing", "settings", "secrets", "store"]
    assert list(record("doctor")) == [*parts, "faults"]


def test_it_tells_what_is_computed_in_and_why(record, monkeypatch):
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    told = record("doctor")["computing"]
    chosen = cpu_number_type()
    assert told["threads"] == "3 (set by OMP_NUM_THREADS)"
    assert told["model on the CPU"] == f"{chosen.name}, because {chosen.reason}"
    assert told["sift index embeds in"].startswith("int8")
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert record("doctor")["computing"]["threads"].endswith("(the CPUs it may use)")


def test_what_is_missing_is_told_with_the_pip_line_and_is_no_fault(sift, record, ours, tmp_path):
    ours()
    install = "pip install --upgrade 'sift-rerank[brief]'"
    told = record("doctor")
    assert told["missing"]["brief"] == {"packages": ["no-such-one"], "install": install}
    assert "brief-gpu" not in told["missing"]
    assert install in sift("doctor").out
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/nvidia-smi"
    program.touch()
    program.chmod(0o755)
    assert "brief-gpu" in record("doctor")["missing"]


@pytest.mark.parametrize(
    ("directory", "option"), [({"editable": True}, "-e "), ({}, "")], ids=["editable", "copied"]
)
def test_what_came_from_a_folder_is_completed_from_there(sift, ours, tmp_path, directory, option):
    clone = tmp_path / "a clone"
    clone.mkdir()
    ours({"url": clone.as_uri(), "dir_info": directory})
    assert f"pip install {option}'{clone}[brief]'\n" in sift("doctor").out
    clone.rmdir()
    assert "pip install --upgrade 'sift-rerank[brief]'\n" in sift("doctor").out


def test_what_does_not_fit_or_is_broken_is_a_fault(monkeypatch, tmp_path, record):
    installed(tmp_path, "qdrant-client", "1.2.0")
    text = "raise ImportError('libopenblas.so.0: no such file')\n"
    (tmp_path / "faiss.py").write_text(text, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "faiss", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    broken, old = record("doctor", code=2)["faults"]
    assert old.startswith("qdrant-client 1.2.0 does not fit qdrant, which needs >=1.16; pip")
    assert "faiss is installed but does not import: libopenblas.so.0: no such file" in broken


def test_settings_are_told_with_their_origin(record, monkeypatch, tmp_path):
    text = 'store = "faiss:filed"\nembedder = "of-file"\nmodel = "of-file"\n'
    (tmp_path / "sift.toml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("SIFT_EMBEDDER", "of-variable")
    assert record("--config", "sift.toml", "doctor", "--model", "of-flag")["settings"] == {
        "file": "sift.toml",
        "store": {"value": "faiss:filed", "from": "file", "name": "sift.toml"},
        "embedder": {"value": "of-variable", "from": "environment", "name": "SIFT_EMBEDDER"},
        "model": {"value": "of-flag", "from": "flag", "name": "--model"},
    }


def test_whether_a_secret_is_set_is_told_and_never_which(sift, record, monkeypatch):
    monkeypatch.setenv("QDRANT_API_KEY", "s3cret")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert record("doctor")["secrets"] == {
        "QDRANT_API_KEY": "set",
        "SIFT_GENERATOR_API_KEY": "not set",
        "HF_TOKEN": "not set",
    }
    monkeypatch.setenv("SIFT_STORE", "qdrant:https://:s3cret@example.org")
    for options in ([], ["--json"]):
        captured = sift("doctor", *options, code=2)
        assert "s3cret" not in captured.out + captured.err
        assert "must hold no user, password or key" in captured.out


def test_an_embedder_that_the_store_was_not_made_with_is_a_fault(record):
    address = StoreAddress.parse("faiss:filled")
    with open_for_writing(address, embedder_name="one", dimension=4):
        pass
    store = ["--store", "faiss:filled"]
    assert record("doctor", *store)["store"] == {"n_chunks": 0, "embedder": "one"}
    (fault,) = record("doctor", *store, "--embedder", "other", code=2)["faults"]
    assert "was made with the embedder 'one', not 'other'" in fault
