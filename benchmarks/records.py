"""The JSON that every benchmark writes: rows, bars, versions, machine, commit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sift_core.evaluation.environment import environment


def write_record(
    path: Path, *, rows: list[dict[str, Any]], bars: list[dict[str, Any]], packages: list[str]
) -> None:
    """Write a benchmark's record; `packages` are those whose versions matter."""
    record = {
        "rows": rows,
        "bars": bars,
        **environment(packages, folder=Path(__file__).parent),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
