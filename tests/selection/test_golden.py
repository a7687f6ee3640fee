import json
import runpy
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE / "golden.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def recorded_now(backend):
    return runpy.run_path(str(HERE / "regenerate_golden.py"))["record"](backend)


def test_every_recorded_selector_is_still_there(recorded_now):
    assert list(recorded_now) == list(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_selection_is_the_recorded_one(recorded_now, name):
    golden, now = GOLDEN[name], recorded_now[name]
    assert now["positions"] == golden["positions"]
    assert now["stop_reason"] == golden["stop_reason"]
    np.testing.assert_allclose(now["variances"], golden["variances"], rtol=0, atol=1e-10)
