import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_sift.questions import as_core_messages
from sift_core import InvalidInputError

CALL = {"name": "add", "args": {"a": 1}, "id": "1", "type": "tool_call"}


def test_roles_are_the_cores():
    messages = [SystemMessage("be brief"), HumanMessage("hi"), AIMessage("hello")]
    assert as_core_messages(messages) == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
    ]


@pytest.mark.parametrize(
    ("message", "role"),
    [
        (("human", "hi"), "user"),
        ({"role": "user", "content": "hi"}, "user"),
        (ChatMessage("hi", role="assistant"), "assistant"),
        (ChatMessage("hi", role="human"), "user"),
        (AIMessageChunk("hi"), "assistant"),
        ("hi", "user"),
    ],
    ids=["pair", "mapping", "core role", "LangChain role", "chunk", "text"],
)
def test_whatever_langchain_makes_messages_of_is_taken(message, role):
    assert as_core_messages([message]) == [{"role": role, "content": "hi"}]


def test_blocks_of_text_are_joined():
    blocks = ["plants ", {"type": "text", "text": "make "}, {"type": "text", "text": "sugar"}]
    (message,) = as_core_messages([HumanMessage(blocks)])
    assert message["content"] == "plants make sugar"


def test_neighbours_of_one_role_become_one_message():
    messages = [HumanMessage("a"), HumanMessage("b"), AIMessage("c"), HumanMessage("d")]
    assert [m["content"] for m in as_core_messages(messages)] == ["a\nb", "c", "d"]


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        (
            [HumanMessage([{"type": "image", "url": "https://example.org/a.png"}])],
            "a block of the type 'image' in a message of the type 'human'",
        ),
        ([HumanMessage([{"type": "text", "text": None}])], "block of the type 'text'"),
        ([ToolMessage("3", tool_call_id="1")], "one of the type 'tool'"),
        ([RemoveMessage(id="1")], "one of the type 'remove'"),
        ([ChatMessage("hi", role="judge")], "one of the type 'chat'"),
        ([AIMessage("", tool_calls=[CALL])], "holds calls of tools"),
        ("hi", "must be a list of messages, got str"),
        (HumanMessage("hi"), "got HumanMessage; put a single message into a list"),
        ({"role": "user", "content": "hi"}, "got dict"),
        ([7], "must be a list of messages"),
        ([("judge", "hi")], "must be a list of messages"),
    ],
)
def test_what_cannot_be_read_is_refused(messages, complaint):
    with pytest.raises(InvalidInputError, match=complaint):
        as_core_messages(messages)
