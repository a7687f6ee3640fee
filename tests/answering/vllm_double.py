"""A stand-in for vLLM: its routes about adapters, and its rules for the folder of one.

Written by vLLM's sources: entrypoints/openai/models/serving.py, lora/peft_helper.py
and lora/lora_model.py.
"""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import contextmanager
from pathlib import Path

from safetensors import safe_open

from tests.answering.http_double import Handler, serving_by

BASE = "org/base-model"
NAMES = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<half>[AB])\.weight")
LINEAR = {
    *("q_proj", "k_proj", "v_proj", "o_proj"),
    *("gate_proj", "up_proj", "down_proj"),
}


def entries(tmp_path):
    """Return the names of the adapters' folders."""
    folder = tmp_path / "adapters"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


class RefusedError(Exception):
    """What vLLM answers with an error."""

    def __init__(self, status, kind, message):
        super().__init__(message)
        self.status, self.kind = status, kind


class Vllm:
    """What one server knows, and in which ways it fails.

    `failures` has answers, (status, body), to be given before any other, by route; `calls` has
    (route, body) in order; `word_s` is waited after each word of a text.
    """

    def __init__(self, base=BASE, max_lora_rank=16, key=None):
        self.base, self.max_lora_rank, self.key = base, max_lora_rank, key
        self.loaded, self.calls, self.failures = {}, [], {}
        self.word_s = 0.0
        self.n_more = 0  # words that a text goes on for, whatever was asked for
        self.breaks_after = None  # the word after which a text breaks off
        self.n_left = 0  # texts whose readers went away
        self.lock = threading.Lock()
        self.url = ""

    def routes(self):
        return [route for route, _ in self.calls]

    def answer(self, route, body, key):
        """Return a status and what goes into the body."""
        with self.lock:
            self.calls.append((route, body))
            if self.failures.get(route):
                return self.failures[route].pop(0)
            if self.key is not None and key != f"Bearer {self.key}":
                return 401, {"error": "Unauthorized"}
            served = {
                "models": self.models,
                "completions": self.streamed,
                "load_lora_adapter": self.load,
                "unload_lora_adapter": self.unload,
            }
            try:
                return 200, served[route](body)
            except RefusedError as error:
                about = {"message": str(error), "type": error.kind, "code": error.status}
                return error.status, {"error": about}

    def models(self, _):
        cards = [{"id": self.base, "object": "model", "root": self.base}]
        cards += [
            {"id": name, "object": "model", "root": path, "parent": self.base}
            for name, path in self.loaded.items()
        ]
        return {"object": "list", "data": cards}

    def load(self, body):
        name, path = body["lora_name"], body["lora_path"]
        assert body["load_inplace"] is False
        if name in self.loaded:
            told = f"The lora adapter '{name}' has already been loaded."
            raise RefusedError(400, "InvalidUserInput", told)
        self.read(path)
        self.loaded[name] = path
        return f"Success: LoRA adapter '{name}' added successfully."

    def unload(self, body):
        name = body["lora_name"]
        if name not in self.loaded:
            told = f"The lora adapter '{name}' cannot be found."
            raise RefusedError(404, "NotFoundError", told)
        del self.loaded[name]
        return f"Success: LoRA adapter '{name}' removed successfully."

    def streamed(self, body):
        """Return the events of a text, one a word."""
        assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
        assert all(type(token) is int for token in body["prompt"])
        name = body["model"]
        if name != self.base and name not in self.loaded:
            raise RefusedError(404, "NotFoundError", f"The model `{name}` does not exist.")
        self.read(self.loaded[name]) if name != self.base else None  # evicted: read again
        said = f"written by {name[:8]}, after {len(body['prompt'])} tokens"
        words = said.split(" ")[: body["max_tokens"]]
        reason = "length" if len(words) == body["max_tokens"] else "stop"
        return self.events([*words, *["more"] * self.n_more], reason)

    def events(self, words, reason):
        for i, word in enumerate(words):
            last = reason if i == len(words) - 1 else None
            choice = {"index": 0, "text": " " * (i > 0) + word, "finish_reason": last}
            yield {"object": "text_completion", "choices": [choice], "usage": None}
            time.sleep(self.word_s)
            if i == self.breaks_after:
                yield {"error": {"message": "engine dead", "code": 500}}
                break
        usage = {"prompt_tokens": 0, "completion_tokens": len(words)}
        yield {"object": "text_completion", "choices": [], "usage": usage}

    def read(self, path):
        """Refuse a folder that vLLM would refuse."""
        place = Path(path)
        if not place.is_absolute() or not (place / "adapter_config.json").is_file():
            raise RefusedError(404, "NotFoundError", f"No adapter found for {path}")
        config = json.loads((place / "adapter_config.json").read_text())
        wrong = [name for name in ("r", "lora_alpha", "target_modules") if not config.get(name)]
        wrong += [name for name in ("modules_to_save", "use_dora") if config.get(name)]
        wrong += ["bias"] if config.get("bias", "none") != "none" else []
        if wrong:
            raise RefusedError(500, "InternalServerError", f"not supported: {wrong}")
        if config["r"] > self.max_lora_rank:
            told = f"LoRA rank {config['r']} is greater than max_lora_rank {self.max_lora_rank}."
            raise RefusedError(500, "InternalServerError", told)
        with safe_open(place / "adapter_model.safetensors", framework="pt") as file:
            for name in file.keys():  # no mapping
                found = NAMES.fullmatch(name)
                if found is None or found["module"].rpartition(".")[2] not in LINEAR:
                    told = f"While loading {path}, expected target modules in {LINEAR}"
                    raise RefusedError(500, "InternalServerError", told)
                shape = file.get_slice(name).get_shape()
                assert shape[found["half"] == "B"] == config["r"]


@contextmanager
def serving(vllm):
    """Serve from another thread; `vllm.url` is the address."""

    class VllmHandler(Handler):
        def do_GET(self):
            self.do_POST()

        def do_POST(self):
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
            route = self.path.removeprefix("/v1/")
            body = json.loads(content) if content else None
            status, told = vllm.answer(route, body, self.headers.get("authorization"))
            if hasattr(told, "send"):
                self.stream(told)
                return
            sent = json.dumps(told).encode() if not isinstance(told, bytes) else told
            try:
                self.send_response(status)
                self.send_header("content-length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)
            except OSError:  # nobody waits any more
                self.close_connection = True

        def stream(self, events):
            try:
                self.send_response(200)
                self.end_headers()
                for event in events:
                    self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                self.wfile.write(b"data: [DONE]\n\n")
            except OSError:
                vllm.n_left += 1
            self.close_connection = True

    with serving_by(VllmHandler) as address:
        vllm.url = address
        yield vllm
