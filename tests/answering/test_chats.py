# ruff: noqa: RUF001
"""What clients send as a chat, as a question and the turns before it."""

import json
from pathlib import Path

import pytest

from sift_core import InvalidInputError
from sift_core.answering import AnswerEngine, AnswerRequest, LanguageModel
from sift_core.answering.chats import (
    as_turns,
    chat_request,
    is_about_a_chat,
    with_fitting_length,
)

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


CHAT = "USER: How do I open it?\nASSISTANT: Turn it left."
HISTORY = f"### Chat History:\n<chat_history>\n{CHAT}\n</chat_history>"
# As the clients send them, shortened in the middle.
TASKS = [
    # Open WebUI
    "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n"
    + HISTORY,
    "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history.\n"
    + HISTORY,
    "### Task:\nSuggest 3-5 relevant follow-up questions or prompts that the user might ask next "
    "in this conversation, based on the chat history.\n" + HISTORY,
    # before the first answer
    "### Task:\nAnalyze the chat history to determine the necessity of generating search queries.\n"
    "<chat_history>\nUSER: How do I open it?\n</chat_history>",
    "### Task:\nYou are an autocompletion system.\n<chat_history>\n\n</chat_history>\n<text>How",
    # LibreChat
    "Provide a concise, 5-word-or-less title for the conversation, using title case conventions. "
    "Only return the title itself.\n\nConversation:\nUser: hi\nAI: hello",
    "Analyze this conversation and provide:\n1. The detected language of the conversation\n"
    "2. A concise title in the detected language (5 words or less)\n\nUser: hi\nAI: hello",
    # LobeChat
    "<task>\nGenerate a concise title that captures the essence of the conversation.\n</task>\n\n"
    "<conversation>\n<user>\nhi\n</user>\n<assistant>\nhello\n</assistant>\n</conversation>",
    "user: hi\nassistant: hello\n\nPlease summarize the above conversation into a title within 10 "
    "characters, no punctuation marks needed, output language: en-US",
    # Chatbox
    "Based on the chat history, give this conversation a name.\nUse English.\n\nHere's the "
    "conversation:\n\n```\nhi\n\n---------\n\nhello\n```\n\nThe name is:",
    "Here is a chat.\n**Human**: hi\n**Assistant**: hello\nSuggest three follow-ups for the chat.",
]
_ZH = "USER: 怎么打开？\nASSISTANT: 向左转。"
# Templates that an operator translated: what is asked for, and the key that Open WebUI reads.
TASKS += [
    f'### {task}\nJSON: {{ "{key}": {value} }}\n<chat_history>\n{_ZH}\n</chat_history>'
    for task, key, value in [
        ("任务：\n为对话生成一个简短的标题。", "title", '"…"'),
        ("任务：\n为对话生成标签。", "tags", '["…"]'),
        ("任务：\n建议三个后续问题。", "follow_ups", '["…"]'),
        ("Aufgabe:\nErzeuge einen Titel für das Gespräch.", "title", '"…"'),
        ("タスク:\n会話のタグを作成してください。", "tags", '["…"]'),
        ("Tarea:\nSugiere tres preguntas de seguimiento.", "follow_ups", '["…"]'),
    ]
]
# LobeChat names the language by its code at the end.
TASKS += [
    f"user: hi\nassistant: hello\n\n{task}"
    for task in [
        "请总结上述对话为10个字以内的标题，不需要包含标点符号，输出语言语种为：zh-CN",
        "Fasse das Gespräch als Titel zusammen, Sprache: de-DE",
        "会話をタイトルに要約してください。言語：ja-JP",
        "Resume la conversación en un título, idioma: es-ES",
    ]
]
QUESTIONS = [
    # a chat of another language without such a mark, and such a mark without a chat
    "USER: 怎么打开？\nASSISTANT: 向左转。\n手册是这样写的吗？",
    "<chat_history>\nUSER: 怎么打开？\n</chat_history>\n手册的标题是什么？",
    'Welches Feld fehlt in { "title": "Ventil", "tags": [] }?',
    "Welche Einstellung hat die Sprache: de-DE",
    'user: hi\nassistant: hello\nWas bedeutet { "tags": [] } im Handbuch?',
    "What is the title of the harbour master's handbook?",
    "Which user: admin or guest, may open the valve?",
    "User: admin\nPassword: x\nHow do I change the name of this account?",
    f"{CHAT}\nIs the assistant right?",
    f"{CHAT}\nWhat is the name of the valve that he means?",
    f"{CHAT}\nWhich topics does the guide have on it? Summarize them.",
    f"Give the title of the book that they discuss in the chat log:\n{CHAT}",
    f"Conversation:\n{CHAT}\nIs that what the manual says? Give the headline of the page.",
    f"Create a ticket with the subject from our style guide for this chat:\n{CHAT}",
    "user: deploy\nmodel: small\ntags: [a]\nWhich topics can the user subscribe to?",
    "services:\n  web:\n    user: root\n    ai: on\nHow do I change the name of the service?",
    "Generate the tags table for the chat service:\nuser: admin\nai: gpt",
    "2026-01-01\nuser: logged in\nai: inference failed\nSummarize the error by the runbook's tags.",
    "How do I generate a title for the conversation in Open WebUI?",
    # Open WebUI's question with documents of its own
    f"### Task:\nRespond to the user query using the provided context.\n<context>\n{CHAT}\n"
    "</context>\n<user_query>\nWhat is the title of the chat?\n</user_query>",
]


@pytest.mark.parametrize("question", TASKS + QUESTIONS)
def test_a_clients_own_question_about_a_chat_is_answered_by_the_base_model(question):
    request = chat_request([turn("user", question)], mode="fine_tune")
    assert is_about_a_chat(question) == (question in TASKS)
    assert request.mode == ("base" if question in TASKS else "fine_tune")


def test_a_title_is_asked_for_by_a_system_text_or_of_the_turns_before():
    task = "You summarize. Generate a concise title that captures the essence of the conversation."
    said = [turn("user", "hi"), turn("assistant", "hello")]
    lobe_chat = [turn("system", task), turn("user", "user: hi\nassistant: hello")]
    next_chat = [*said, turn("user", "Please generate a title summarizing our conversation.")]
    assert chat_request(lobe_chat).mode == chat_request(next_chat).mode == "base"
    page = turn("user", "Generate a title page for the annual report.")
    for messages in (next_chat[2:], [*said, page], [turn("system", task), page]):
        assert chat_request(messages).mode == "auto"


def test_a_length_leaves_half_of_the_window_to_documents(random_model):
    """The window has 1,024 tokens, of which the question "hi" takes a few."""
    model = LanguageModel.from_pretrained(random_model, device="cpu", dtype="float32")
    lengths = {}
    for default in (12, 100_000):
        engine = AnswerEngine(language_model=model, generation={"max_new_tokens": default})
        for mode in ("base", "context"):
            for asked in (None, 7, 900, 32_000):
                request = AnswerRequest.of("hi", {"mode": mode, "max_new_tokens": asked})
                fitting = with_fitting_length(engine, request).max_new_tokens
                lengths.setdefault((mode, asked), []).append(fitting)
    room = lengths["base", 32_000][0]
    assert 1000 < room < 1024
    for mode, most in {"base": room, "context": room // 2}.items():
        assert lengths[mode, None] == [12, most]
        assert lengths[mode, 7] == [7, 7]
        assert lengths[mode, 900] == [900, 900]  # what fits stays
        assert lengths[mode, 32_000] == [most, most]


def test_megabytes_are_read_at_once():
    """Both took a minute, on the event loop of the service."""
    (merged,) = as_turns([turn("user", "a" * 15_000)] * 2000)
    assert len(merged["content"]) == 2000 * 15_001 - 1  # a line each
    assert not is_about_a_chat("\n" * 30_000_000)


@pytest.mark.skipif(not CASES.exists(), reason="needs ../shared")
def test_the_cases():
    for case in map(json.loads, CASES.read_text().splitlines()):
        request = chat_request(case["messages"])
        assert request.question
        assert (request.mode == "base") == ("title" in case["why"])
