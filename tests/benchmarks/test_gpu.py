"""The run on a GPU, tiny and on the CPU; how it keeps its time, and what it takes along."""

import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")

from benchmarks.fine_tuning_shapes import TINY
from benchmarks.gpu import carrying
from benchmarks.gpu.__main__ import LIMITS_S
from benchmarks.gpu.device import peak_tflops
from benchmarks.gpu.fine_tuning import RANK, flops_a_token
from benchmarks.gpu.running import Record, Section, run

ROOT = Path(__file__).parents[2]
WRITES = """
import json, sys, time
with open(sys.argv[1], "a") as file:
    print(json.dumps({"rows": {"case": "known"}}), file=file)
    print('{"rows": {"case": "half a l', file=file, end="")
"""


def sections(**codes):
    return [
        Section(name=name, limit_s=limit, command=[sys.executable, "-c", code])
        for name, (limit, code) in codes.items()
    ]


def run_all(path, made, *, seconds=60.0):
    record = Record(path=path, made_with={"commit": "abc"})
    is_good = run(made, record, until=time.monotonic() + seconds, environ=os.environ)
    return is_good, json.loads(path.read_text(encoding="utf-8"))


def test_a_section_that_fails_leaves_its_rows_and_its_error_and_the_rest_goes_on(tmp_path):
    fails = f"{WRITES}\nraise ValueError('no such kernel')"
    made = sections(first=(30, fails), second=(30, WRITES))
    is_good, record = run_all(tmp_path / "new" / "gpu.json", made)
    assert not is_good
    first, failed, second, done = record["rows"]
    assert first == {"section": "first", "case": "known"}
    assert (failed["status"], failed["section"]) == ("failed", "first")
    assert failed["error"] == "exit status 1: ValueError: no such kernel"
    assert (second["case"], done["status"]) == ("known", "done")
    assert record["commit"] == "abc"


@pytest.mark.slow
def test_a_section_ends_with_its_limit_and_all_that_it_started_with_it(tmp_path):
    child = f"import time; time.sleep(2); open({str(tmp_path / 'alive')!r}, 'w')"
    hangs = (
        f"{WRITES}\nimport subprocess\n"
        f"subprocess.run([sys.executable, '-c', {child!r}])\ntime.sleep(60)"
    )
    made = sections(first=(1.0, hangs), second=(30, WRITES))
    is_good, record = run_all(tmp_path / "gpu.json", made, seconds=1.0)
    assert not is_good
    statuses = [row.get("status") for row in record["rows"]]
    assert statuses == [None, "too late", "not begun"]
    time.sleep(2)
    assert not (tmp_path / "alive").exists()


def test_peaks_are_those_of_the_card_and_not_of_one_with_a_shorter_name():
    peaks = [peak_tflops(f"NVIDIA {name}") for name in ("H100 80GB HBM3", "H100 PCIe", "H200")]
    assert peaks == [989.4, 756.5, 989.4]
    assert (peak_tflops("NVIDIA H200 NVL"), peak_tflops("NVIDIA H20")) == (835.5, None)


def test_the_arithmetic_of_a_step_by_hand():
    # A layer: q, k, v, o of 64 × 64 and three of 64 × 128; the head 64 × 512.
    frozen = 2 * (4 * 64 * 64 + 3 * 64 * 128) + 64 * 512
    lora = RANK * 2 * (4 * (64 + 64) + 3 * (64 + 128))
    attention = 6 * 100 * 64 * 2  # 100 tokens, width 64, two layers
    assert flops_a_token(TINY.language_model(), 100) == 4 * frozen + 6 * lora + attention


def wheel(folder, name):
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", f"NAME = {name!r}\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return path


def test_what_does_not_fit_is_carried_in_pieces_and_one_that_lacks_a_piece_is_left_out(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(carrying, "LEAST_PIECE", 10)
    files = {"small": b"s" * 40, "large": bytes(range(256)), "half": b"h" * 300}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    parcels = tmp_path / "parcels"
    # 596 bytes in parcels of 200: small and 160 of large; 96 of large and 104 of half; 196 of half.
    assert carrying.pack([tmp_path / name for name in files], parcels, 200) == 3
    for number in ("1", "2", "3"):
        assert sum(file.stat().st_size for file in (parcels / number).iterdir()) <= 200
    assert carrying.unpack(parcels, tmp_path / "whole") == []
    for name, content in files.items():
        assert (tmp_path / "whole" / name).read_bytes() == content
    next((parcels / "3").iterdir()).unlink()
    assert carrying.unpack(parcels, tmp_path / "less") == ["half"]
    assert sorted(file.name for file in (tmp_path / "less").iterdir()) == ["large", "small"]


@pytest.mark.slow
def test_a_wheel_for_another_python_leaves_the_others_alone(tmp_path):
    parcels = tmp_path / "parcels"
    wheels = [wheel(tmp_path, "carried_here"), wheel(tmp_path, "of_another")]
    wheels[1] = wheels[1].rename(tmp_path / "of_another-1.0-cp20-cp20-any.whl")
    carrying.pack(wheels, parcels, 10**6)
    site, failures = carrying.install(parcels)
    assert [path.name for path in site.glob("*.py")] == ["carried_here.py"]
    (failure,) = failures
    assert failure.startswith("pip could not install of_another-1.0-cp20-cp20-any.whl: exit")


@pytest.mark.slow
def test_a_dry_run_takes_every_section_and_what_was_carried(tmp_path):
    parcels = tmp_path / "parcels"
    carrying.pack([wheel(tmp_path, "carried_here")], parcels, 10**6)
    (parcels / "1" / carrying.PREPARED).write_text('{"commit": "abc"}', encoding="utf-8")
    path = tmp_path / "gpu.json"
    command = [sys.executable, "-m", "benchmarks.gpu", "--dry-run", "--carried", str(parcels)]
    done = subprocess.run(
        [*command, "--json", str(path)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    statuses = {row["section"]: row["status"] for row in rows if "status" in row}
    assert statuses == dict.fromkeys(LIMITS_S, "done")
    of = {name: [row for row in rows if row["section"] == name] for name in statuses}
    assert of["device"][0]["device"] == "cpu"
    assert all(row["same_as_cpu"] == row["compared"] for row in of["selection"][:-1])
    assert all(row["tokens_a_second"] > 0 for row in of["fine_tuning"][:-1])
    assert all(row["p50_s"] > 0 for row in of["query"][:-1])
    assert (parcels / "site" / "carried_here.py").is_file()


@pytest.mark.slow
def test_without_a_gpu_it_says_what_to_do(tmp_path):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    command = [sys.executable, "-m", "benchmarks.gpu", "--json", str(tmp_path / "gpu.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no CUDA device here; --dry-run needs none" in done.stderr
    assert not (tmp_path / "gpu.json").exists()
