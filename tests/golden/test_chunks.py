"""Texts are cut where it was recorded (`chunks.py` says when they may not be)."""

import json

from tests.golden.chunks import RECORD, cuts


def test_the_chunks_are_the_recorded_ones():
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    now = cuts()
    compared = [key for key in now if key in recorded]
    assert len(compared) >= 12  # the texts of the tests; of the pages those that stayed
    assert [key for key in compared if now[key] != recorded[key]] == []
