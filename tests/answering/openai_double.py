"""A server of OpenAI's chat API whose every byte a test may choose; a real one over HTTP."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager

from tests.answering.http_double import Handler, serving_by

MODEL = "small"
EVENTS = "text/event-stream"


def event(**delta):
    """Return an event with a piece of a text; `finish_reason` and `usage` stand beside it."""
    about = {name: delta.pop(name, None) for name in ("finish_reason", "usage")}
    choice = {"index": 0, "delta": delta, "finish_reason": about["finish_reason"]}
    content = {"object": "chat.completion.chunk", "choices": [choice], "usage": about["usage"]}
    return f"data: {json.dumps(content)}\n\n".encode()


END = event(finish_reason="stop") + b"data: [DONE]\n\n"


class Api:
    """What the server was asked, and what it answers.

    `answers` has (status, headers, pieces of the body) for the next chats, before `said`, the
    words of all others. A piece may be a number: seconds to wait. `cards` is the list of models.
    """

    def __init__(self):
        self.said = ["Fold ", "the ", "sheet ", "[1]."]
        self.cards = [{"id": MODEL, "object": "model"}, {"id": "other"}]
        self.answers, self.bodies, self.headers, self.paths = [], [], [], []
        self.models_answer = None  # in place of the cards
        self.n_left = 0  # readers that went away
        self.base_url = ""

    def chat(self, body):
        """Return the answer to a chat."""
        self.bodies.append(body)
        if self.answers:
            return self.answers.pop(0)
        if body["model"] != MODEL:
            message = f"The model `{body['model']}` does not exist."
            return refused(404, message)
        most = body.get("max_tokens") or body["max_completion_tokens"]
        words = self.said[:most]
        reason = "length" if len(words) == most else "stop"
        usage = {"prompt_tokens": 40, "completion_tokens": len(words)}
        pieces = [*(event(content=word) for word in words), event(finish_reason=reason)]
        tail = json.dumps({"choices": [], "usage": usage})
        return (
            200,
            {"content-type": EVENTS},
            [*pieces, f"data: {tail}\n\ndata: [DONE]\n\n".encode()],
        )


def refused(status, message, headers=(), **more):
    """Return the answer of a server that refuses."""
    error = {"error": {"message": message, "type": "error", **more}}
    return status, dict(headers), [json.dumps(error).encode()]


def streamed(*pieces):
    """Return the answer of a stream of these bytes."""
    return 200, {"content-type": EVENTS}, pieces


class _Handler(Handler):
    api: Api

    def do_GET(self):
        self.api.paths.append(self.path)
        content = json.dumps({"object": "list", "data": self.api.cards}).encode()
        self.send(*(self.api.models_answer or (200, {}, [content])))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.api.paths.append(self.path)
        self.api.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.send(*self.api.chat(body))

    def send(self, status, headers, pieces):
        try:
            if status is None:  # hang up before a word
                self.connection.close()
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            for piece in pieces:
                if isinstance(piece, bytes):
                    self.wfile.write(piece)
                    self.wfile.flush()
                else:
                    self.wait(piece)
        except OSError:
            self.api.n_left += 1
        self.close_connection = True

    def wait(self, seconds):
        """Wait, but leave as soon as the reader has left."""
        end = time.monotonic() + seconds
        self.connection.settimeout(0.02)
        while time.monotonic() < end:
            try:
                if not self.connection.recv(1):
                    raise OSError("the reader has left")
            except TimeoutError:
                continue
        self.connection.settimeout(None)


@contextmanager
def serving_api(api):
    """Serve from another thread; `api.base_url` is the address."""
    with serving_by(type("ApiHandler", (_Handler,), {"api": api})) as address:
        api.base_url = f"{address}/v1"
        yield api
