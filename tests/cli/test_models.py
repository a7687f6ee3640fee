"""Where a model is: in a folder, or on a hub that knows it, hides it, fails or is out of reach."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub.hf_api
import pytest

from sift_core.cli.models import model_place
from sift_core.errors import InvalidInputError

ANSWERS = {  # of the hub: status, and the header by which it says what is meant
    "someone/here": (200, None),
    "someone/missing": (404, "RepoNotFound"),
    "someone/gated": (403, "GatedRepo"),
    "someone/private": (401, "RepoNotFound"),
    "someone/failing": (503, None),
}


class Hub(BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.removeprefix("/api/models/").split("?")[0]
        status, code = ANSWERS[name]
        body = b'{"id": "%b"}' % name.encode()
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch):
    """The real client talks to a server of ours."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setattr(huggingface_hub.hf_api.api, "endpoint", url)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    yield
    server.shutdown()
    server.server_close()


def test_a_folder_is_its_own_place(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "models/own").mkdir(parents=True)
    assert model_place(str(tmp_path / "models/own"), "transformers") == str(tmp_path / "models/own")
    assert model_place("~/models/own", "transformers") == str(tmp_path / "models/own")


@pytest.mark.parametrize("name", ["./gone", "/gone", "~/gone", "a/b/c"])
def test_what_can_only_be_a_folder_is_not_looked_for_on_the_hub(name):
    with pytest.raises(InvalidInputError, match="there is no model folder"):
        model_place(name, "transformers")


def test_the_hub_has_it(hub):
    assert model_place("someone/here", "transformers") == "someone/here"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("someone/missing", "the hub has no such model"),
        ("someone/private", "the hub has no such model"),
        ("someone/gated", "only to those who accepted its terms and set HF_TOKEN"),
        ("someone/failing", r"the hub cannot be asked for it \(.*503"),
        ("a model?", "'a model\\?' is no folder"),
    ],
)
def test_why_the_hub_does_not_give_it(hub, name, message):
    with pytest.raises(InvalidInputError, match=message):
        model_place(name, "transformers")
