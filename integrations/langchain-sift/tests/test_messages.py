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

from langchain_sift.messages import client_messages
from sift_core import InvalidInputError
from sift_core.answering.chats import as_turns

CALL = {"name": "add", "args": {"a": 1}, "id": "1", "type": "tool_call"}
IMAGE = {"type": "image", "url": "https://example.org/a.png"}


@pytest.mark.parametrize(
    ("message", "role"),
    [
        (SystemMessage("hi"), "system"),
        (HumanMessage("hi"), "user"),
        (AIMessage("hi"), "assistant"),
        (AIMessageChunk("hi"), "assistant"),
        (ChatMessage("hi", role="assistant"), "assistant"),
        (ChatMessage("hi", role="human"), "user"),
        (("human", "hi"), "user"),
        ({"role": "user", "content": "hi"}, "user"),
        ("hi", "user"),
        (HumanMessage(["h", {"type": "text", "text": "i"}]), "user"),
    ],
)
def test_whatever_langchain_makes_messages_of_is_taken(message, role):
    assert as_turns(client_messages([message])) == [{"role": role, "content": "hi"}]


def test_neighbours_of_one_role_become_one_message():
    messages = [HumanMessage("a"), HumanMessage("b"), AIMessage("c"), HumanMessage("d")]
    assert [m["content"] for m in as_turns(client_messages(messages))] == ["a\nb", "c", "d"]


def test_calls_of_tools_are_left_out():
    messages = [
        HumanMessage("a"),
        AIMessage("", tool_calls=[CALL]),
        ToolMessage("3", tool_call_id="1"),
        AIMessage([{"type": "reasoning", "reasoning": "x"}, {"type": "text", "text": "b"}]),
    ]
    assert [m["content"] for m in as_turns(client_messages(messages))] == ["a", "b"]


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([HumanMessage([IMAGE])], "part of type 'image'"),
        ([HumanMessage([{"type": "text", "text": None}])], "part of type 'text'"),
        ([RemoveMessage(id="1")], "role.* got 'remove'"),
        ([ChatMessage("hi", role="judge")], "role.* got 'judge'"),
        ("hi", "must be a list of messages, got str"),
        (HumanMessage("hi"), "got HumanMessage; put a single message into a list"),
        ({"role": "user", "content": "hi"}, "got dict"),
        ([7], "must be a list of messages"),
        ([("judge", "hi")], "must be a list of messages"),
    ],
)
def test_what_cannot_be_read_is_refused(messages, complaint):
    with pytest.raises(InvalidInputError, match=complaint):
        as_turns(client_messages(messages))
