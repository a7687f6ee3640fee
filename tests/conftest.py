"""The demo and the examples, run once for the tests of both."""

from __future__ import annotations

import pytest

from tests.example_runs import ExampleRuns

VERBS = ("zip", "unzip", "walk", "list", "copy", "move", "count", "pack", "hash", "drop")
PAGE = """# {title} a folder

{title} the files of a folder, with `{verb}_folder(folder, limit)`.

The folder is walked once, from top to bottom, at most *limit* files are touched. The call returns
a list with one name a file; an empty folder gives an empty list. It raises ValueError where
*limit* is negative, and OSError where there is no such folder.
"""


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    """Folder of a small random language model, which answers at once, and nonsense."""
    pytest.importorskip("torch", reason="needs the extra fine-tune")
    from tests.random_model import save_random_model

    return save_random_model(tmp_path_factory.mktemp("random_model"))


@pytest.fixture(scope="session")
def example_runs(tmp_path_factory):
    """The demo over ten pages and then every example, started in the background."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "docs").mkdir()
    for verb in VERBS:
        page = PAGE.format(title=verb.title(), verb=verb)
        (folder / f"docs/{verb}_folder.md").write_text(page, encoding="utf-8")
    runs = ExampleRuns(folder)
    yield runs
    runs.stop()
