"""What clients send as a chat, as a question and the turns before it."""

import json
from pathlib import Path

import pytest

from sift_core import InvalidInputError
from sift_core.answering.chats import as_turns, chat_request, is_about_a_chat

CASES = Path(__file__).parents[3] / "shared" / "cases" / "chats.jsonl"
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}


def turn(role, content):
    return {"role": role, "content": content}


@pytest.mark.parametrize(
    ("messages", "right"),
    [
        ([turn("developer", "a"), turn("user", "b")], [("system", "a"), ("user", "b")]),
        ([turn("Human", "a"), turn("AI", "b")], [("user", "a"), ("assistant", "b")]),
        # neighbours are merged, and a system text in the middle goes to the front
        (
            [turn("user", "a"), turn("system", "b"), turn("user", "c"), turn("system", "d")],
            [("system", "b\nd"), ("user", "a\nc")],
        ),
        # of what a model wrote, only the text is read
        (
            [turn("assistant", [{"type": kind, kind: "x"}]) for kind in ("reasoning", "refusal")],
            [],
        ),
        (
            [turn("assistant", ["4", {"type": "output_text", "text": "2"}, IMAGE])],
            [("assistant", "42")],
        ),
        # tools, wherever they stand
        (
            [
                turn("user", "a"),
                {**turn("assistant", None), "tool_calls": [{"id": "1"}]},
                turn("tool", "3"),
                turn("function", [{"type": "text", "text": "3"}]),
                turn("user", [{"type": "tool_result", "content": "3"}]),
                turn("user", "b"),
            ],
            [("user", "a\nb")],
        ),
        ([turn("user", ""), turn("user", " "), turn("user", "a")], [("user", "a")]),
    ],
)
def test_turns(messages, right):
    assert [(one["role"], one["content"]) for one in as_turns(messages)] == right


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "must be the user's, got 'none'"),
        ([turn("user", "a"), turn("assistant", "b")], "must be the user's, got 'assistant'"),
        ([turn("judge", "a")], r"messages.0.role. must be system.*got 'judge'"),
        ([turn("user", "a"), turn("user", ["b", IMAGE])], r"messages.1.content.*'image_url'"),
        ([turn("user", [{"type": "text", "text": None}])], "part of type 'text'"),
        ([turn("user", {"text": "a"})], "must be text or blocks"),
        ([turn("user", " ")], "the question is empty"),
        ([turn("user", "a"), turn("assistant", "b"), turn("human", "")], "the question is empty"),
        ([turn("user", [{"type": "tool_result", "content": "3"}])], "the question is empty"),
    ],
)
def test_what_cannot_be_read_is_refused(messages, why):
    with pytest.raises(InvalidInputError, match=why):
        chat_request(messages)


@pytest.mark.parametrize("length", [0, -1])
def test_a_length_below_one_stands_for_the_engines(length):
    assert chat_request([turn("user", "a")], max_new_tokens=length).max_new_tokens is None


TASKS = [
    "### Task:\nGenerate 1-3 broad tags categorizing the chat.\n<chat_history>\nUSER: hi\n"
    "ASSISTANT: hello\n</chat_history>",
    "Provide a concise title for the conversation.\n\nConversation:\nUser: hi\nAI: hello",
    "Here is a chat.\n**Human**: hi\n**Assistant**: hello\nSuggest three follow-up questions.",
]
QUESTIONS = [
    "What is the title of the harbour master's handbook?",
    "Which user: admin or guest, may open the valve?",
    "User: admin\nPassword: x\nHow do I change the name of this account?",
    # a chat about which nothing of the kind is asked
    "USER: How do I open it?\nASSISTANT: Turn it left.\nIs the assistant right?",
]


@pytest.mark.parametrize("question", TASKS + QUESTIONS)
def test_a_clients_own_question_about_a_chat_is_answered_by_the_base_model(question):
    request = chat_request([turn("user", question)], mode="fine_tune")
    assert is_about_a_chat(question) == (question in TASKS)
    assert request.mode == ("base" if question in TASKS else "fine_tune")


@pytest.mark.skipif(not CASES.exists(), reason="needs ../shared")
def test_the_cases():
    for case in map(json.loads, CASES.read_text().splitlines()):
        request = chat_request(case["messages"])
        assert request.question
        assert (request.mode == "base") == ("title" in case["why"])
