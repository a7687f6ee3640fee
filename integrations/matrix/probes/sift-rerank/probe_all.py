"""A small folder is indexed and searched by the packaged embedding model."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sift = Path(sys.executable).with_name("sift")
with TemporaryDirectory() as folder:
    Path(folder, "docs").mkdir()
    Path(folder, "docs/tea.md").write_text("# Tea\n\nTea must not boil.\n")
    Path(folder, "docs/boats.md").write_text("# Boats\n\nA boat floats.\n")
    for arguments in (["index", "docs"], ["search", "Must tea boil?", "-n", "1"]):
        command = [sift, *arguments, "--store", "qdrant:store"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder)
assert "Tea must not boil." in done.stdout, done.stdout
