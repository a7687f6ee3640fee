import pytest

from sift_core import InvalidInputError
from sift_core.evaluation.retrieval_tables import retrieval_tables


def row(name, condition, method, value, **more):
    found = {"set": name, "condition": condition, "method": method, "recall@10": value}
    return found | {"n_queries": 50, "values": "fractions"} | more


ROWS = [
    row("squad", "as is", "nn", 0.8, ci={"recall@10": [0.75, 0.86]}),
    row(
        "squad",
        "as is",
        "sift",
        0.9,
        ci={"recall@10": [0.85, 0.95]},
        differences={"nn": {"recall@10": {"mean": 0.1, "ci": [0.05, 0.15]}}},
    ),
    row("musique", "as is", "nn", 0.6),
    row("musique", "as is", "sift", 0.5, differences={"mmr .7": {"recall@10": {"mean": -0.1}}}),
    row("squad", "duplicates 4", "nn", 0.4),
]


def texts(table):
    return [[cell.text for cell in line] for line in table.rows]


def test_one_table_a_condition_and_one_of_differences():
    plain, duplicates, differences = retrieval_tables(ROWS)
    assert plain.heads == ("method", "squad", "musique", "mean")
    assert texts(plain) == [
        ["nn", "80.0 [75.0, 86.0]", "60.0 [–]", "70.0"],
        ["sift", "90.0 [85.0, 95.0]", "50.0 [–]", "70.0"],
    ]
    assert [cell.is_bold for cell in plain.rows[0]] == [False, False, True, False]
    assert "squad 50, musique 50" in plain.note
    assert duplicates.heads == ("method", "squad")
    assert texts(duplicates) == [["nn", "40.0 [–]"]]
    assert differences.heads == ("set, condition", "nn", "mmr .7")
    assert texts(differences) == [
        ["squad, as is", "+10.0 [+5.0, +15.0]", "–"],
        ["musique, as is", "–", "-10.0 [–]"],
    ]


def test_a_method_that_was_not_measured_everywhere_has_no_mean():
    (table,) = retrieval_tables([ROWS[0], row("musique", "as is", "us", 0.3)])
    assert texts(table) == [["nn", "80.0 [75.0, 86.0]", "–", "–"], ["us", "–", "30.0 [–]", "–"]]


@pytest.mark.parametrize(("rows", "metric"), [([], "recall@10"), (ROWS, "ndcg@10")])
def test_nothing_to_show_is_refused(rows, metric):
    with pytest.raises(InvalidInputError, match=r"rows|lacks"):
        retrieval_tables(rows, metric)
