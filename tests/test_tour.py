"""The notebook runs from its first cell to its last, and says what its text says."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

pytestmark = pytest.mark.slow

TOUR = Path(__file__).parents[1] / "examples/tour.ipynb"
N_PICTURES = 4


@pytest.fixture(scope="module")
def outputs():
    """What the cells of a fresh run put out: texts by name of the stream, and pictures."""
    notebook = nbformat.read(TOUR, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(TOUR.parent)}}
    )
    client.execute()
    return collected(notebook)


def collected(notebook):
    found = {"stdout": "", "stderr": "", "pictures": 0}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                found[output.name] += output.text
            elif "image/png" in output.get("data", {}):
                found["pictures"] += 1
    return found


def test_it_draws_and_complains_of_nothing(outputs):
    assert outputs["stderr"] == ""
    assert outputs["pictures"] == N_PICTURES


def test_versions_crowd_the_nearest_neighbours_and_not_the_choice_of_sift(outputs):
    first, second = outputs["stdout"].split("nearest neighbours\n")[1].split("SIFT\n")[:2]
    nearest = [line.split("(")[0].split()[-1] for line in first.splitlines() if "(" in line]
    informative = [line.split("(")[0].split()[-1] for line in second.splitlines() if "(" in line]
    assert len(nearest) == len(informative) == 10
    assert len(set(informative)) >= len(set(nearest)) + 3


def test_the_base_model_is_as_it_was(outputs):
    assert "the base model says exactly what it said before" in outputs["stdout"]


def test_the_committed_notebook_has_its_pictures_and_no_path_of_a_machine():
    notebook = nbformat.read(TOUR, as_version=4)
    assert collected(notebook)["pictures"] == N_PICTURES
    assert collected(notebook)["stderr"] == ""
    for home in ("root", "home", "Users"):
        assert f"/{home}/" not in TOUR.read_text(encoding="utf-8")
