import pytest

from benchmarks.retrieval_bars import bars_of


def rows(name, condition, **values):
    return [
        {
            "set": name,
            "condition": condition,
            "method": method.replace("_", " "),
            "recall@10": value,
            "all_gold@10": value,
        }
        for method, value in values.items()
    ]


def judged(found):
    return {record["name"]: (record["value"], record["bar"], record["pass"]) for record in found}


def test_as_is_each_set_may_lose_a_point_but_not_the_mean():
    found = bars_of(
        rows("squad", "as is", nn=0.9, sift=0.891) + rows("musique", "as is", nn=0.6, sift=0.589)
    )
    assert judged(found)["squad, as is: recall@10 in points against nn"] == (89.1, 89.0, True)
    assert judged(found)["musique, as is: recall@10 in points against nn"] == (58.9, 59.0, False)
    mean = judged(found)["mean of 2 sets, as is: all_gold@10 in points against nn"]
    assert mean == (pytest.approx(74.0), pytest.approx(75.0), False)


def test_redundant_is_held_against_the_best_mmr_or_dpp_and_not_against_the_others():
    values = {"nn": 0.5, "sift": 0.58, "mmr_.7": 0.55, "dpp_a=8": 0.585, "ssd_.3": 0.7}
    found = judged(bars_of(rows("musique", "duplicates 4", **values)))
    case = "musique, duplicates 4: recall@10 in points against"
    assert found[f"{case} dpp a=8"] == (58.0, 58.0, True)
    assert found[f"{case} nn"] == (58.0, 58.0, True)
    assert len(found) == 3  # all_gold@10 is not held against nn
