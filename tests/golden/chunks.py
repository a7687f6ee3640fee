"""Cut this repository's pages and some texts, and record where: `python -m tests.golden.chunks`.

The recorded places may change only with the reason in the changelog, under Numerics. A page that
was rewritten has another hash and is not compared until it is recorded again.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from sift_core.documents import Chunker
from tests.documents.texts import GUIDE_MD, GUIDE_RST, MODULE

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("chunks.json")
SIZES = (400, 1000)


def texts():
    """Yield format and text; those of the tests, which stay, first."""
    yield from (("markdown", GUIDE_MD), ("rst", GUIDE_RST), ("python", MODULE), ("text", GUIDE_MD))
    for path in sorted((ROOT / "docs").rglob("*.md")):
        yield "markdown", path.read_text(encoding="utf-8")


def cuts():
    """Return start and end of each chunk by hash, format and size."""
    found = {}
    for number, (format, text) in enumerate(texts()):
        for size in SIZES if number > 3 else (60, 120, 140):
            key = f"{sha256(text.encode()).hexdigest()[:16]} {format} {size}"
            chunks = Chunker(size).split(text, format=format, document_id="x")
            found[key] = [[chunk.metadata["start"], chunk.metadata["end"]] for chunk in chunks]
    return found


if __name__ == "__main__":
    lines = (f"{json.dumps(key)}: {json.dumps(places)}" for key, places in cuts().items())
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
