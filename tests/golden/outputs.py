"""Twenty outputs of the command line over a small folder, for `outputs.json`.

Each in a process of its own, with the embedder in float32. Times stand as "…"; numbers of JSON have
four digits, since processors round otherwise.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from sift_core.cli.models import load_embedder
from tests.golden.responses import stable
from tests.random_model import save_random_model

PAGES = {
    "boats.md": "# Boats\n\nFold the sheet in half to make a paper boat.\n\n## Wax\n\n"
    "Paint it with wax, and it stays dry for an hour.\n",
    "boats-2.md": "# Boats\n\nFold the sheet in half to make a paper boat!\n",
    "tea.txt": "Water for green tea must not boil. Black tea takes four minutes.\n",
    "old/tea.txt": "Black tea takes three minutes in boiling water.\n",
    "harbour.rst": "Harbour\n=======\n\nSeven cranes stand in the harbour. Two are old.\n",
    "logo.png": "no text at all",
}
QUESTION = "How do I fold a paper boat?"
ASK = ["ask", QUESTION, "--model", "model", "--max-new-tokens", "6", "--dtype", "float32"]
COMMANDS = {
    "index": ["index", "docs", "--float32"],
    "index, again": ["index", "docs", "--float32", "--json"],
    "search": ["search", QUESTION, "-n", "3"],
    "search, json": ["search", QUESTION, "-n", "2", "--json"],
    "search, compared": ["search", QUESTION, "-n", "3", "--compare"],
    "search, compared, json": ["search", QUESTION, "-n", "2", "--compare", "--json"],
    "search, tokens": ["search", QUESTION, "-n", "3", "--max-tokens", "25"],
    "search, one a document": ["search", QUESTION, "-n", "3", "--max-per-document", "1"],
    "search, neighbors": ["search", QUESTION, "-n", "3", "--merge-neighbors", "--json"],
    "search, two questions": ["search", QUESTION, "--query", "boat", "--query", "tea", "-n", "2"],
    "search, nothing": ["search", " "],
    "search, no such store": ["search", QUESTION, "--store", "faiss:nowhere"],
    "diagnose": ["diagnose"],
    "ask, base": [*ASK, "--mode", "base"],
    "ask, context": [*ASK, "--mode", "context", "--n-context", "2"],
    "ask, context, json": [*ASK, "--mode", "context", "--n-context", "2", "--json"],
    "ask, fine_tune": [*ASK, "--mode", "fine_tune", "--steps", "2"],
    "ask, auto, json": [*ASK, "--json"],
    "ask, cited": [*ASK, "--mode", "context", "--cite", "--max-tokens", "30"],
    "ask, no such mode": [*ASK, "--mode", "guess"],
}
CHANGES = [
    (re.compile(r"^(timings|speed) .*", re.MULTILINE), r"\1 …"),
    (re.compile(r"\bin \d+(\.\d+)? (min|s)\b"), r"in … \2"),
]


def record():
    """Return all lines of `outputs.json`: exit code, stdout and stderr of each command."""
    load_embedder("all-MiniLM-L6-v2")  # what is exported once is said once
    with TemporaryDirectory() as folder:
        place = Path(folder)
        save_random_model(place / "model", window=1024)
        for name, text in PAGES.items():
            (place / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
            (place / "docs" / name).write_text(text, encoding="utf-8")
            os.utime(place / "docs" / name, (0, 0))  # the date that the index writes
        return {name: _output(place, words) for name, words in COMMANDS.items()}


def _output(folder, words):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SIFT_")}
    variables = {"COLUMNS": "160", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    finished = subprocess.run(
        [sys.executable, "-m", "sift_core.cli", *words],
        cwd=folder,
        env={**kept, **variables, "XDG_CONFIG_HOME": str(folder / "config")},
        capture_output=True,
        text=True,
        check=False,
    )
    return [finished.returncode, _stable(finished.stdout), _stable(finished.stderr)]


def _stable(text):
    """Return JSON, or lines of words, without what changes from call to call."""
    try:
        return stable(json.loads(text), digits=4)
    except ValueError:
        for pattern, instead in CHANGES:
            text = pattern.sub(instead, text)
        return [line.rstrip() for line in text.splitlines()]
