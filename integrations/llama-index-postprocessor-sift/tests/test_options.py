"""Every option of `sift_core.ChoiceOptions`, by its name, in reranker and retriever."""

from dataclasses import fields

import pytest
from llama_index.core.bridge.pydantic import ValidationError
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_index.postprocessor.sift import SIFTReranker, SIFTRetriever, reranker, retriever
from sift_core import ChoiceOptions, ContextSelector

NAMES = {"n_select": "top_n", "n_candidates": "candidates"}  # the framework's words
VALUES = {
    "int": 40,
    "float": 0.5,
    "bool": True,
    "str": "date",
    "Callable[[str], int]": len,
    "Selector": ContextSelector(noise_variance=0.5),
}
OPTIONS = {
    option.name: VALUES[str(option.type).removesuffix(" | None")]
    for option in fields(ChoiceOptions)
}
OPTIONS["hops"] = 0  # or 1


def given(name):
    """Return arguments that set an option, and what it needs beside it."""
    needed = {"newest": "date"} if name == "half_life_days" else {}
    return {**needed, NAMES.get(name, name): OPTIONS[name]}


@pytest.fixture
def obeyed(monkeypatch):
    """Return the list of the options that choices obey from now on."""
    seen = []

    def noted(original):
        def choosing(candidates, query, options):
            seen.append(options)
            return original(candidates, query, options)

        return choosing

    for module, names in [(reranker, ("choose", "achoose")), (retriever, ("search", "asearch"))]:
        for name in names:
            monkeypatch.setattr(module, name, noted(getattr(module, name)))
    return seen


ASKED = QueryBundle("bees", embedding=[1.0, 0.0])
ARRIVED = [
    NodeWithScore(
        node=TextNode(text=text, embedding=vector, metadata={"date": 2020 + i}), score=0.5
    )
    for i, (text, vector) in enumerate([("bees", [1.0, 0.0]), ("ants", [0.0, 1.0])])
]


@pytest.mark.parametrize("name", sorted(OPTIONS.keys() - {"n_candidates"}))
async def test_a_reranker_obeys_each_option_also_if_it_changes(name, obeyed):
    made_with, changed = SIFTReranker(**given(name)), SIFTReranker()
    for key, value in given(name).items():
        setattr(changed, key, value)
    for ours in (made_with, changed):
        ours.postprocess_nodes(ARRIVED, ASKED)
        await ours.apostprocess_nodes(ARRIVED, ASKED)
    assert [getattr(options, name) for options in obeyed] == [OPTIONS[name]] * 4


@pytest.mark.parametrize("name", sorted(OPTIONS))
async def test_a_retriever_obeys_each_option(name, obeyed, build_index, nodes, embed_model):
    for node in nodes:
        node.metadata["date"] = "2020-01-01"
    index = build_index("simple", nodes, embed_model)
    ours = SIFTRetriever(index, **given(name))
    ours.retrieve("bees")
    await ours.aretrieve("bees")
    assert [getattr(options, name) for options in obeyed] == [OPTIONS[name]] * 2


@pytest.mark.parametrize("name", ["n_select", "n_candidates", "max_token"])
def test_a_name_that_is_no_option_is_refused(name, build_index, nodes, embed_model):
    with pytest.raises(ValidationError, match=name):
        SIFTReranker(**{name: 5})
    index = build_index("simple", nodes, embed_model)
    with pytest.raises(TypeError, match=f"keyword argument '{name}'"):
        SIFTRetriever.from_index(index, **{name: 5})


def words(text):
    return len(text.split())


def test_a_function_that_counts_tokens_wins_over_one_that_splits(
    obeyed, build_index, nodes, embed_model
):
    settings = {"max_tokens": 5, "tokenizer": list}
    SIFTReranker(**settings).postprocess_nodes(ARRIVED, ASKED)
    SIFTReranker(**settings, count_tokens=words).postprocess_nodes(ARRIVED, ASKED)
    index = build_index("simple", nodes, embed_model)
    SIFTRetriever(index, **settings).retrieve("bees")
    SIFTRetriever(index, **settings, count_tokens=words).retrieve("bees")
    assert [options.count_tokens("bees dance") for options in obeyed] == [10, 2, 10, 2]
