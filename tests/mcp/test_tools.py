"""What the tools answer: passages with source, place and reason, in a bounded number of tokens."""

import json

import pytest

from sift_core import ChoiceOptions, Document
from sift_core.errors import InvalidInputError
from sift_core.mcp.tools import MAX_METADATA, NOTICE
from sift_core.token_estimate import estimated_tokens
from tests.mcp.asking import GUIDE, asking, documents, opened, tools_over

# Guides have no date beside notes that have one; the command does not warn of it.
pytestmark = [
    pytest.mark.filterwarnings("ignore::sift_core.errors.UndatedWarning"),
    pytest.mark.filterwarnings("ignore::sift_core.errors.MissingKeyWarning"),
]

BOAT = "How do I fold a paper boat?"


async def test_a_passage_has_source_place_and_reason(filled):
    async with asking(filled) as asked:
        found = await asked("search", question=BOAT, n=2)
    first = found["passages"][0]
    assert (first["id"], first["source"], first["text"]) == ("guide.md#0", "guide.md", GUIDE[0])
    assert first["place"] == "guide.md > Boats"
    assert first["why"].startswith("similarity 0.")
    assert "shares: " in first["why"]
    assert first["metadata"] == {"topic": "boats"}  # "source" and "place" say the rest
    assert len(found["passages"]) == 2
    assert found["notice"] == NOTICE


async def test_a_search_takes_several_questions_and_a_filter(filled):
    async with asking(filled) as asked:
        both = await asked("search", question=BOAT, more_questions=["May green tea boil?"], n=2)
        assert {"guide.md#0", "tea"} == {one["id"] for one in both["passages"]}
        tea = await asked("search", question=BOAT, filter={"topic": "tea"})
        assert [one["id"] for one in tea["passages"]] == ["tea"]
        nothing = await asked("search", question=BOAT, filter={"topic": "cars"})
        assert nothing["passages"] == []
        assert "No passage fits `filter`" in nothing["hint"]


async def test_an_answer_names_what_no_passage_has(filled):
    async with asking(filled, options=ChoiceOptions()) as asked:
        found = await asked("search", question="Who is Kunigunde?", newest="day")
        assert found["not_found"] == "kunigunde"
        assert "No passage has the key 'day'" in found["hint"]


@pytest.mark.filterwarnings("ignore::sift_core.errors.NothingFitsWarning")
async def test_an_answer_has_as_many_tokens_as_it_may_and_says_what_was_cut(tmp_path):
    # 40 passages of 120 words, each of some 2 tokens by the estimate: 20,000 hold them, 4,000 not.
    texts = [" ".join(f"boat{i} word{j}" for j in range(60)) for i in range(40)]
    long = [Document(document_id=f"long#{i}", text=text) for i, text in enumerate(texts)]
    with opened(f"faiss:{tmp_path}", long) as collection:
        async with asking(collection, options=ChoiceOptions()) as asked:
            for most in (300, 800, 2000, 4000, 20_000):
                answer = await asked("search", question="boat1 word7", n=40, max_tokens=most)
                assert estimated_tokens(json.dumps(answer, ensure_ascii=False)) <= most
                n = len(answer["passages"])
                message = f"{n} of 40 passages fit into max_tokens = {most}; the nearest alone has"
                assert (message in answer.get("cut", "")) == (n < 40) == (most < 20_000)
            few = await asked("search", question="boat1 word7", n=3)
            assert len(few["passages"]) == 3
            assert "cut" not in few


async def test_a_limit_for_each_document_is_not_called_one_of_tokens(filled):
    async with asking(filled, options=ChoiceOptions(max_per_document=1)) as asked:
        answer = await asked("search", question=BOAT)
        assert [one["id"] for one in answer["passages"]] == ["guide.md#0"]  # of four that fit
        assert "cut" not in answer


@pytest.mark.parametrize("tool", ["search", "read"])
async def test_long_metadata_takes_no_room_of_texts(tool, tmp_path):
    metadata = {f"key{i}": "a b c d " * 50 for i in range(20)}
    one = Document(document_id="one", text="A boat of paper.", metadata=metadata)
    with opened(f"faiss:{tmp_path}", [one]) as collection:
        async with asking(collection, options=ChoiceOptions()) as asked:
            question = {"question": "boat"} if tool == "search" else {"id": "one"}
            (found,) = (await asked(tool, max_tokens=300, **question))["passages"]
            assert found["metadata"] == {"cut": "20 keys are too long to be shown"}
            assert found["text"] == "A boat of paper."
            listed = await asked("collections")
            assert estimated_tokens(json.dumps(listed)) < 2000


async def test_a_passage_is_read_with_its_neighbours_in_reading_order(filled):
    async with asking(filled) as asked:
        near = await asked("read", id="guide.md#2", around=1)
        assert [one["text"] for one in near["passages"]] == GUIDE[1:4]
        assert [one["number"] for one in near["passages"]] == [2, 3, 4]
        assert near["n_passages"] == 4
        whole = await asked("read", id="guide.md")
        assert [one["text"] for one in whole["passages"]] == GUIDE
        alone = await asked("read", id="tea")  # of no document
        assert [one["id"] for one in alone["passages"]] == ["tea"]
        assert "has 0 passages" in await asked.refusal("read", id="nowhere.md")
        assert "none from number 9 on" in await asked.refusal("read", id="guide.md", first=9)


async def test_a_long_document_is_read_in_pieces_until_its_end(tmp_path):
    texts = [f"part {i} " + "of the boat " * 40 for i in range(12)]
    parts = [
        Document(document_id=f"b#{i}", text=text, metadata={"source": "b", "start": 1000 * i})
        for i, text in enumerate(texts)
    ]
    with opened(f"faiss:{tmp_path}", parts) as collection:
        async with asking(collection) as asked:
            read, first = [], 1
            while len(read) < len(texts):
                answer = await asked("read", id="b", first=first, max_tokens=1000)
                assert estimated_tokens(json.dumps(answer)) <= 1000
                read += [one["text"] for one in answer["passages"]]
                first = len(read) + 1
                assert (f"read 'b' with first = {first}" in answer.get("cut", "")) == (first <= 12)
            assert read == texts
            short = await asked("read", id="b#3", around=0, max_tokens=300)
            assert texts[3].startswith(short["passages"][0]["text"])
            assert f"of {len(texts[3])} characters fit into max_tokens = 300" in short["cut"]


async def test_collections_say_what_can_be_searched(filled):
    async with asking(filled, may_write=True) as asked:
        (listed,) = (await asked("collections"))["collections"]
    assert (listed["n_passages"], listed["takes_notes"]) == (5, True)
    assert listed["examples_of_metadata"]["topic"] in ("'boats'", "'tea'")


async def test_with_several_stores_an_agent_says_where(tmp_path):
    tea = [Document(document_id="tea", text="Green tea must not boil.")]
    with (
        opened(f"faiss:{tmp_path / 'a'}", documents()) as a,
        opened(f"qdrant:{tmp_path}#b", tea) as b,
    ):
        a.name = "a"
        async with asking(a, b, may_write=True) as asked:
            names = [one["name"] for one in (await asked("collections"))["collections"]]
            assert names == ["a", "b"]
            found = await asked("search", question=BOAT, collection="b")
            assert [one["id"] for one in found["passages"]] == ["tea"]
            assert "`collection`: Field required" in await asked.refusal("search", question=BOAT)
            assert "'a' or 'b'" in await asked.refusal("read", id="tea", collection="c")
            await asked("remember", text="Ann folds boats.")  # into the first, without being asked
            assert (await asked("search", question="Ann", collection="a"))["passages"]
        b.name = "a"
        with pytest.raises(InvalidInputError, match="two stores have one name"):
            tools_over(a, b)


async def test_what_the_operator_fixes_is_no_argument(filled):
    options = ChoiceOptions(n_select=1, max_tokens=900, newest="date")
    fixed = frozenset({"n", "max_tokens", "newest"})
    async with asking(filled, options=options, fixed=fixed) as asked:
        listed = (await asked.client.list_tools()).tools
        assert [one.name for one in listed] == ["search", "read", "collections"]
        schemas = {one.name: one.input_schema for one in listed}
        assert list(schemas["search"]["properties"]) == ["question", "more_questions", "filter"]
        assert list(schemas["read"]["properties"]) == ["id", "around", "first"]
        assert len((await asked("search", question=BOAT))["passages"]) == 1
        refused = await asked.refusal("search", question=BOAT, n=5)
        assert (
            refused == "there is no argument 'n'; `search` takes question, more_questions, filter."
        )
        assert "there is no tool 'remember'" in await asked.refusal("remember", text="I am here.")


def test_limits_that_no_answer_can_keep_are_refused(filled):
    with pytest.raises(InvalidInputError, match=r"max_tokens.*from 300 to 20000, got 10"):
        tools_over(filled, options=ChoiceOptions(max_tokens=10))
    with pytest.raises(InvalidInputError, match=r"n_select.*from 1 to 50, got 51"):
        tools_over(filled, options=ChoiceOptions(n_select=51))


async def test_a_note_is_found_and_forgotten(empty):
    async with asking(empty, may_write=True) as asked:
        assert "Nothing is stored yet" in (await asked("search", question="Where is Ann?"))["hint"]
        text, about = "Ann works in Bonn.", {"who": "Ann", "tags": ["work", 3, True]}
        first = await asked("remember", text=text, metadata=about, date="2026-05-01")
        again = await asked("remember", text=text, metadata=about, date="2026-05-01")
        assert first["id"] == again["id"]  # the same note once more
        await asked("remember", text="Bob plays chess.")
        (found,) = (await asked("search", question="Where is Ann?", n=1))["passages"]
        assert (found["id"], found["text"]) == (first["id"], text)
        assert found["metadata"] == {**about, "date": "2026-05-01"}
        assert (await asked("search", question="Ann", filter={"tags": 3}))["passages"]
        assert (await asked("read", id=first["id"]))["passages"][0]["text"] == text
        await asked("forget", id=first["id"])
        left = (await asked("search", question="Where is Ann?"))["passages"]
        assert [one["text"] for one in left] == ["Bob plays chess."]
        assert "there is no note" in await asked.refusal("forget", id=first["id"])


async def test_of_versions_of_a_fact_the_newest_is_returned(empty):
    async with asking(empty, may_write=True) as asked:
        for month in (1, 3, 2):
            text = f"The deploy key of the shop lies in vault {month}."
            await asked("remember", text=text, date=f"2026-{month:02}-01")
        for other in ("Ann works in Bonn.", "Tea must not boil.", "Lunch is at noon on Mondays."):
            await asked("remember", text=other)
        found = (await asked("search", question="Where is the deploy key?", n=1))["passages"]
        assert [one["text"] for one in found] == ["The deploy key of the shop lies in vault 3."]


async def test_no_tool_deletes_what_is_no_note(filled):
    async with asking(filled, may_write=True) as asked:
        for name in ("tea", "guide.md", "guide.md#0"):
            assert "nothing else can be forgotten" in await asked.refusal("forget", id=name)
        assert (await asked("collections"))["collections"][0]["n_passages"] == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": " \x00 "}, "a note must have 1 to 1000 tokens"),
        ({"text": "one two " * 2000}, "store one fact a note"),
        ({"text": "It is."}, None),
        ({"text": "It is.", "date": "last Tuesday"}, "as 2026-05-01, got 'last Tuesday'"),
        ({"text": "It is.", "metadata": {"date": "2026"}}, "the date is an argument"),
        ({"text": "It is.", "metadata": {"text": "x"}}, "none of the keys text"),
        ({"text": "It is.", "metadata": {"a": "b c d e " * 100}}, f"most {MAX_METADATA} tokens"),
        ({"text": "It is.", "metadata": {"a": {"b": "c"}}}, "`metadata.a"),
        ({"text": "It is.", "metadata": {str(i): i for i in range(21)}}, "at most 20 items"),
        ({"text": "!!!"}, "must have at least one word"),
    ],
)
async def test_a_note_that_cannot_be_kept_is_refused(arguments, message, empty):
    async with asking(empty, may_write=True) as asked:
        if message is None:
            await asked("remember", **arguments)
        else:
            assert message in await asked.refusal("remember", **arguments)


async def test_what_another_process_writes_is_seen_and_kept(tmp_path):
    address = f"faiss:{tmp_path}"
    with opened(address) as one, opened(address) as other:
        async with asking(one, may_write=True) as first, asking(other, may_write=True) as second:
            for i in range(3):
                await first("remember", text=f"Ann has boat {i}.")
                await second("remember", text=f"Bob has boat {i}.")
            for asked in (first, second):
                assert (await asked("collections"))["collections"][0]["n_passages"] == 6
