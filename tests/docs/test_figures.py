"""The figures of docs/how-it-works.md show what the page says of them."""

import re
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("sentence_transformers")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-it-works.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def figures():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs/scripts")
        return import_module("draw_figures")


@pytest.fixture(scope="module")
def chosen(figures):
    return figures.choose()


def alternative_text(name):
    return re.search(rf"!\[([^\]]+)\]\(images/{name}\)", PAGE)[1]


def two_digits(number):
    return f"{number:.2f}".lstrip("0")


def test_nearest_neighbours_take_one_passage_in_six_versions(figures, chosen):
    assert (chosen.positions["NN"][:6] < figures.N_VERSIONS).all()


def test_the_default_takes_it_once(figures, chosen):
    assert (chosen.positions["sift"][:6] < figures.N_VERSIONS).sum() == 1


def test_the_words_under_the_first_figure_are_its_dots(figures, chosen):
    text = alternative_text("repeats.png")
    shown = {name: rows[: figures.N_SHOWN] for name, rows in chosen.positions.items()}
    for row in shown["sift"]:
        assert figures.title(row).split(",")[0] in text
    for name in ("NN", "sift"):
        relevances = chosen.relevances[shown[name]]
        repeats = figures.redundancies(chosen, name)[: figures.N_SHOWN - 1]
        for values in (relevances, repeats):
            assert f"{two_digits(min(values))} to {two_digits(max(values))}" in text


def test_the_words_under_the_second_figure_are_its_curves(chosen):
    text = alternative_text("variance.png")
    for name, n in (("NN", 1), ("NN", 6), ("NN", 8), ("sift", 5), ("sift_paper", 2)):
        assert two_digits(chosen.variances[name][n]) in text
    assert two_digits(chosen.variances["sift_paper"][8]) in text
    assert two_digits(chosen.floor) in text


def test_both_figures_can_be_drawn(figures, chosen, tmp_path):
    with figures.drawing():
        for name, draw in (("a", figures.draw_repeats), ("b", figures.draw_variances)):
            assert figures.save(draw(chosen), tmp_path / f"{name}.png").stat().st_size > 10_000
