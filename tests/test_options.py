"""What a choice obeys: checked once, and the same wherever it is given."""

import inspect
from dataclasses import fields

import pytest

from sift_core import ChoiceOptions, ContextSelector, InvalidInputError, MMRSelector, SIFTSelector
from sift_core.options import help_of

NAMES = [one.name for one in fields(ChoiceOptions)]


@pytest.mark.parametrize("name", NAMES)
def test_every_option_has_one_help_with_its_default(name):
    text = help_of(name)
    assert text.startswith(tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    assert "Default: " in text
    assert text.endswith(".")
    assert " ".join((inspect.getdoc(ChoiceOptions) or "").split()).count(text) == 1


def test_there_is_no_help_of_what_is_no_option():
    assert help_of("n_selected") == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_select": 0},
        {"n_candidates": 1.0},
        {"max_tokens": 0},
        {"max_per_document": 1.5},
        {"newest": 3},
        {"newest": "\ud800"},
        {"half_life_days": 0, "newest": "date"},
        {"merge_neighbors": "yes"},
        {"document_key": b"source"},
        {"count_tokens": 4},
        {"selector": "mmr"},
    ],
    ids=str,
)
def test_what_is_out_of_range_is_refused_by_its_name(wrong):
    with pytest.raises(InvalidInputError, match=f"`{next(iter(wrong))}`"):
        ChoiceOptions(**wrong)


def test_options_that_do_not_go_together_are_refused():
    ChoiceOptions(selector=MMRSelector())
    ChoiceOptions(max_tokens=1, newest="on")
    ChoiceOptions(max_tokens=1, newest="on", selector=ContextSelector())
    with pytest.raises(InvalidInputError, match="`half_life_days` needs `newest`"):
        ChoiceOptions(half_life_days=3)
    with pytest.raises(InvalidInputError, match=r"a limit on tokens.*got MMRSelector"):
        ChoiceOptions(max_tokens=1, selector=MMRSelector())
    with pytest.raises(InvalidInputError, match="takes `preferences`, as ContextSelector's"):
        ChoiceOptions(newest="on", selector=SIFTSelector())


def test_the_rules_in_force_are_those_that_differ_from_their_default():
    assert ChoiceOptions(n_select=3, n_candidates=9, document_key="url").rules == ()
    assert ChoiceOptions(max_tokens=3, merge_neighbors=True).rules == (
        "max_tokens",
        "merge_neighbors",
    )


def test_the_models_of_requests_and_plugins_have_every_option():
    pytest.importorskip("pydantic", reason="needs the extra serve")
    from sift_core.option_fields import ChoiceFields

    made = ChoiceFields.model_fields
    assert list(made) == [name for name in NAMES if name not in ("n_select", "n_candidates")]
    for name in made:
        assert made[name].description == help_of(name)
        assert made[name].default == getattr(ChoiceOptions(), name)
    assert ChoiceFields(max_tokens=3).choice_options(n_select=4) == ChoiceOptions(
        n_select=4, max_tokens=3
    )
    schema = ChoiceFields.model_json_schema()["properties"]
    assert schema["max_tokens"]["anyOf"][0] == {"minimum": 1, "type": "integer"}
    for wrong in ({"max_tokens": 0}, {"half_life_days": 0}, {"half_life_days": float("inf")}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ChoiceFields(**wrong)


def test_what_editors_see_of_the_options_is_what_there_is():
    """The lists for type checkers are read from the source: they exist for these alone."""
    import ast
    from pathlib import Path

    import sift_core

    lists = {"options.py": "ChoiceKeywords", "option_fields.py": "ChoiceFields"}
    hints = {one.name: one.type for one in fields(ChoiceOptions)}
    del hints["n_select"], hints["n_candidates"]
    for file, name in lists.items():
        tree = ast.parse((Path(sift_core.__file__).parent / file).read_text(encoding="utf-8"))
        classes = [one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)]
        pairs = [
            {
                one.target.id: ast.unparse(one.annotation)
                for one in found.body
                if isinstance(one, ast.AnnAssign)
            }
            for found in classes
            if found.name == name
        ]
        assert hints in pairs, file
