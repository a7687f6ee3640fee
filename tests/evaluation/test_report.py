from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser

import pytest

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.rows import Results
from sift_core.evaluation.analysis.tables import main_table
from sift_core.evaluation.language_modeling.arms import learning, reading
from sift_core.evaluation.report.summary import interval, language_modeling_summary, verdict
from sift_core.evaluation.report.write import write_report
from sift_core.evaluation.statistics import Estimate
from tests.evaluation.synthetic import prompt, results_of_percents, rows_of_percents

EVIL = "<script>alert('x')</script>"
SIFT, NN, READ = learning("SIFT", 0.1), learning("NN"), reading("SIFT", 0.1)
PROMPTS = [prompt("a1", EVIL), prompt("a2", EVIL), prompt("b1", "books"), prompt("b2", "books")]
COLUMNS = {SIFT: [80, 81, 90, 91], NN: [84, 86, 95, 96], READ: [97, 98, 99, 96]}
VOID = {"meta", "img", "br", "link", "hr", "input"}
RETRIEVAL = [
    {
        "set": "squad",
        "condition": EVIL,
        "method": method,
        "recall@10": value,
        "ci": {"recall@10": [value - 0.05, value + 0.05]},
        "n_queries": 40,
    }
    for method, value in (("nn", 0.512), ("sift", 0.634))
]


class Page(HTMLParser):
    """The elements of a document; fails where one is not closed in its place."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.headings, self.texts = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if self.open and re.fullmatch("h[1-6]", self.open[-1]):
            self.headings.append((int(self.open[-1][1]), data))

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def experiment_row():
    return {
        "kind": "experiment",
        "experiment": "e1",
        "configuration": {"base_model": {"name": f"a {EVIL} model"}, "chunk_tokens": 256},
        "versions": {"torch": "2.13.0"},
        "machine": {"cores": 2},
        "commit": "9a90399adf",
    }


@pytest.fixture(scope="module")
def results():
    return Results.from_rows([experiment_row(), *rows_of_percents(PROMPTS, COLUMNS)])


@pytest.fixture(scope="module")
def text(results, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "new" / "report.html"
    written = write_report(results, path, RETRIEVAL, retrieval_configuration={"commit": "abc1234"})
    assert written == path
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text):
    page = Page(text)
    assert page.open == []
    return page


def test_it_is_one_document_in_a_language_with_headings_in_order(text, page):
    assert text.startswith("<!DOCTYPE html>")
    assert page.all("html") == [{"lang": "en"}]
    levels = [level for level, _ in page.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_identifiers_are_unique_and_the_contents_lead_to_them(page):
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert [attributes["href"] for attributes in page.all("a")] == [f"#{one}" for one in ids]
    assert ids[:1] == ["main"]
    assert ids[-3:] == ["retrieval", "not-measured", "configuration"]


def test_it_loads_and_runs_nothing(text, page):
    assert not page.all("script")
    assert not page.all("link")
    assert "http:" not in text
    assert "https:" not in text
    assert all(image["src"].startswith("data:image/") for image in page.all("img"))
    assert "url(" not in text
    assert "@import" not in text
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)


def test_texts_are_escaped(text, page):
    assert "<script" not in text
    assert "".join(page.texts).count(EVIL) >= 3


def test_figures_have_an_alternative_text_and_a_caption(page):
    assert len(page.all("img")) == len(page.all("figcaption")) == len(page.all("figure"))
    assert len(page.all("img")) >= 4
    assert all(len(image["alt"]) > 40 for image in page.all("img"))


def test_tables_have_captions_and_scopes(page):
    assert len(page.all("caption")) == len(page.all("table"))
    assert {head.get("scope") for head in page.all("th")} == {"col", "row"}


def test_the_numbers_of_the_tables_are_there(results, page):
    texts = set(page.texts)
    for row in main_table(results).rows:
        assert {cell.text for cell in row} <= texts
    assert "63.4 [58.4, 68.4]" in texts


def test_the_summary_is_of_the_rows(page):
    told = " ".join(page.texts).replace("\N{NO-BREAK SPACE}", " ")
    assert "4 prompts of 2 domains: the base model needs 2.000 bits per byte" in told
    # Means of the columns above: 85.5 and 90.25.
    assert re.search(r"SIFT\(0\.1\) chose, bits per byte are 85\.5 % \(90 % interval", told)
    assert "The strongest baseline, NN, reaches 90.2 %" in told
    assert "difference is -4.8 points" in told
    assert "SIFT(0.1) is better than NN" in told
    assert "sift 63.4 %, the best other method (nn) 51.2 %" in told


def test_what_was_not_measured_has_the_command_that_measures_it(page):
    commands = {text for text in page.texts if text.startswith("sift eval")}
    parts = ("noise_variance", "candidates", "learning_rate", "scope", "order,batch,normalized")
    assert {f"sift eval language-modeling --parts {part}" for part in parts} <= commands
    assert "sift eval retrieval" not in commands


def test_the_configuration_is_there(page):
    texts = set(page.texts)
    assert {"e1", "256", "2.13.0", "9a90399adf", "abc1234", f"a {EVIL} model"} <= texts
    assert {"configuration.chunk_tokens", "versions.torch", "retrieval.commit"} <= texts


def test_the_same_rows_give_the_same_bytes(results, tmp_path, text):
    again = write_report(results, tmp_path / "b.html", RETRIEVAL,
                         retrieval_configuration={"commit": "abc1234"})  # fmt: skip
    assert again.read_text(encoding="utf-8") == text


def test_retrieval_alone_makes_a_report(tmp_path):
    page = Page(write_report(None, tmp_path / "r.html", RETRIEVAL).read_text(encoding="utf-8"))
    assert "sift eval language-modeling --parts main" in page.texts
    assert len(page.all("img")) == 1


def test_a_base_model_alone_makes_a_report(tmp_path):
    base = results_of_percents([prompt("p")], {})
    page = Page(write_report(base, tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "Nothing was fine-tuned" in " ".join(page.texts)
    assert "sift eval retrieval" in page.texts
    assert not page.all("img")


def test_one_prompt_makes_a_report_without_intervals(tmp_path):
    one = results_of_percents([prompt("p")], {SIFT: [80], NN: [90]})
    page = Page(write_report(one, tmp_path / "r.html").read_text(encoding="utf-8"))
    told = " ".join(page.texts).replace("\N{NO-BREAK SPACE}", " ")
    assert "bits per byte are 80.0 % of the base model's, as a mean over 1 prompt." in told
    assert "SIFT(0.1) and NN cannot be told apart" in told
    assert "nan" not in told.lower().split()


def test_nothing_makes_no_report(tmp_path):
    with pytest.raises(InvalidInputError, match="needs rows"):
        write_report(None, tmp_path / "r.html", [])


@pytest.mark.parametrize(
    ("low", "high", "n", "said"),
    [
        (-2, -1, 9, "A is better than B"),
        (1, 2, 9, "A is worse than B"),
        (-1, 1, 9, "A and B cannot be told apart"),
        (float("nan"), float("nan"), 1, "A and B cannot be told apart"),
    ],
)
def test_a_verdict_needs_an_interval_without_zero(low, high, n, said):
    value = -1.5 if low < 0 else 1.5
    gap = Estimate(value=value, standard_error=0.1, low=low, high=high, n=n)
    assert verdict(gap, "A", "B") == said


def test_an_interval_is_told_where_there_is_one():
    many = Estimate(value=86.44, standard_error=0.5, low=85.3, high=87.5, n=120)
    assert interval(many) == "86.4 % (90 % interval 85.3 to 87.5)"


def test_the_context_is_told_of_the_prompts_that_were_learned():
    rows = rows_of_percents(PROMPTS, {SIFT: [80, None, None, None], READ: [97, 10, 10, 10]})
    (told,) = language_modeling_summary(Results.from_rows(rows))
    assert "in the context instead give 97.0 %, as a mean over 1 prompt of these." in told
