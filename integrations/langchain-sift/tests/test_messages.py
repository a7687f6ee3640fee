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

from langchain_sift.messages import as_core_messages
from sift_core import InvalidInputError
from sift_core.answering import AnswerRequest

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
    assert as_core_messages([message]) == [{"role": role, "content": "hi"}]


def test_neighbours_of_one_role_become_one_message():
    messages = [HumanMessage("a"), HumanMessage("b"), AIMessage("c"), HumanMessage("d")]
    assert [m["content"] for m in as_core_messages(messages)] == ["a\nb", "c", "d"]


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([HumanMessage([IMAGE])], "text alone, got one of the type 'human'"),
        ([HumanMessage([{"type": "text", "text": None}])], "text alone"),
        ([AIMessage("", tool_calls=[CALL])], "text alone, got one of the type 'ai'"),
        ([ToolMessage("3", tool_call_id="1")], "role .* got 'tool'"),
        ([RemoveMessage(id="1")], "role .* got 'remove'"),
        ([ChatMessage("hi", role="judge")], "role .* got 'judge'"),
        ("hi", "must be a list of messages, got str"),
        (HumanMessage("hi"), "got HumanMessage; put a single message into a list"),
        ({"role": "user", "content": "hi"}, "got dict"),
        ([7], "must be a list of messages"),
        ([("judge", "hi")], "must be a list of messages"),
    ],
)
def test_what_cannot_be_read_is_refused(messages, complaint):
    with pytest.raises(InvalidInputError, match=complaint):
        AnswerRequest(question="why", history=as_core_messages(messages))
