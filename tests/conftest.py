"""The demo and the examples, run once for the tests of both."""

from __future__ import annotations

import pytest

from tests.example_runs import ExampleRuns

VERBS = ("zip", "unzip", "walk", "list", "copy", "move", "count", "pack", "hash", "drop")
MODULE = '"""Work with folders."""\n\n' + "\n".join(
    f"def {verb}_folder(folder, limit={n}):\n"
    f'    """{verb.title()} the files of a folder.\n\n    The folder is walked once, from top to '
    f"bottom, at most *limit* files are touched.\n    Return a list with one name a file; an empty "
    f"folder gives an empty list. Raise ValueError\n    where *limit* is negative, and OSError "
    f'where there is no such folder.\n    """\n'
    for n, verb in enumerate(VERBS)
)


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    """Folder of a small random language model, which answers at once, and nonsense."""
    pytest.importorskip("torch", reason="needs the extra fine-tune")
    from tests.random_model import save_random_model

    return save_random_model(tmp_path_factory.mktemp("random_model"))


@pytest.fixture(scope="session")
def example_runs(tmp_path_factory):
    """The demo over ten documented functions and then every example, started in the background."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "docs").mkdir()
    (folder / "docs/folders.py").write_text(MODULE, encoding="utf-8")
    (folder / "docs/broken.py").write_text("def f(:\n", encoding="utf-8")
    runs = ExampleRuns(folder)
    yield runs
    runs.stop()
