"""Chunks of a folder."""

from pathlib import Path
from tempfile import TemporaryDirectory

from sift_core.documents import Chunker, read_files

with TemporaryDirectory() as folder:
    Path(folder, "tea.md").write_text("# Tea\n\nTea must not boil.\n")
    Path(folder, "tea.py").write_text('def boil():\n    """Boil water."""\n')
    reading = read_files([folder], chunker=Chunker())
assert len(reading.documents) == 2, reading
assert not reading.skipped, reading
