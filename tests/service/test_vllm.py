"""`sift serve --vllm`: chosen and learned here, written there; failures in the clients' words."""

import json
import os

import httpx
import pytest

pytest.importorskip("peft", reason="needs the extra vllm")
openai = pytest.importorskip("openai", reason="a client of the service")

from sift_core.answering import VllmServer  # noqa: E402
from sift_core.cli.serve import engine_of_server  # noqa: E402
from sift_core.service import create_app  # noqa: E402
from tests.answering.vllm_double import Vllm  # noqa: E402
from tests.answering.vllm_double import serving as as_vllm  # noqa: E402
from tests.engines import changed  # noqa: E402
from tests.service.servers import PATIENCE_S, SETTINGS, serving, until  # noqa: E402

QUESTION = "How do I fold a boat?"
CHAT = {"messages": [{"role": "user", "content": QUESTION}]}


@pytest.fixture
def vllm(random_model):
    with as_vllm(Vllm(base=str(random_model))) as double:
        yield double


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "adapters"


@pytest.fixture
def url(engine, vllm, folder):
    """A service whose answers a vLLM writes."""
    engine = changed(engine, cache=None)
    with VllmServer(vllm.url, base_model=vllm.base, folder=folder) as server:
        app = create_app(engine_of_server(engine, server, 16), settings=SETTINGS)
        with serving(app) as address:
            yield address


@pytest.fixture
def client(url):
    with openai.OpenAI(
        base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S
    ) as client:
        yield client


def left(vllm, folder):
    return [*vllm.loaded, *(os.listdir(folder) if folder.exists() else [])]


@pytest.mark.parametrize("mode", ["base", "context", "fine_tune", "both"])
def test_a_chat_is_written_there(client, vllm, folder, mode):
    answer = client.chat.completions.create(model=f"tiny:{mode}", **CHAT)
    routes = vllm.routes()
    body = vllm.calls[routes.index("completions")][1]
    text = answer.choices[0].message.content
    assert text == f"written by {body['model'][:8]}, after {answer.usage.prompt_tokens} tokens"
    learns = mode in ("fine_tune", "both")
    assert (body["model"] == vllm.base) is not learns
    assert ("load_lora_adapter" in routes) is learns
    assert answer.sift["mode"] == mode
    assert (len(answer.sift["sources"]) > 0) is (mode != "base")
    assert left(vllm, folder) == []


def test_a_stream_has_the_learning_and_then_the_pieces(client, vllm, folder):
    events, pieces = [], []
    for chunk in client.chat.completions.create(model="tiny:fine_tune", stream=True, **CHAT):
        events.append((chunk.model_extra or {}).get("sift", {}).get("event"))
        pieces += [choice.delta.content for choice in chunk.choices if choice.delta.content]
    assert [event for event in events if event] == ["chosen", *["learning"] * 4]
    assert "".join(pieces).startswith("written by")
    assert len(pieces) > 3
    assert left(vllm, folder) == []


def test_a_client_that_goes_away_ends_the_writing(url, vllm, folder):
    vllm.n_more, vllm.word_s = 10_000, 0.02  # minutes
    body = {"model": "tiny:fine_tune", "stream": True, **CHAT}
    with httpx.stream(
        "POST", f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S
    ) as answer:
        next(line for line in answer.iter_lines() if "written" in line)
    until(lambda: vllm.n_left and left(vllm, folder) == [])


@pytest.mark.parametrize(
    ("failures", "status"),
    [
        ({"load_lora_adapter": (400, {"error": {"message": "rank too large"}})}, 502),
        ({"load_lora_adapter": (404, {"error": {"message": "No adapter found"}})}, 502),
        ({"completions": (404, {"error": {"message": "does not exist"}})}, 502),
        ({"models": (200, b"no list")}, 502),
        ({"completions": (200, b"data: [1]\n\n")}, 503),
    ],
    ids=["refused", "not found", "unloaded", "no vLLM", "no text"],
)
def test_a_failure_is_told_without_its_details(url, vllm, folder, failures, status):
    vllm.failures.update({route: [answer] for route, answer in failures.items()})
    body = {"model": "tiny:fine_tune", **CHAT}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == (
        "server_error" if status == 502 else "service_unavailable_error",
        "generator_failed",
    )
    assert str(folder) not in json.dumps(error)
    assert vllm.url not in json.dumps(error)
    assert left(vllm, folder) == []
    assert (
        httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S).status_code == 200
    )


def test_a_server_that_is_gone_is_told_with_when_to_ask_again(engine, folder, random_model):
    with as_vllm(Vllm(base=str(random_model))) as gone:
        server = VllmServer(gone.url, base_model=gone.base, folder=folder)
    app = create_app(engine_of_server(engine, server, 16), settings=SETTINGS)
    with serving(app) as address, server:
        for mode in ("base", "fine_tune"):
            body = {"model": f"tiny:{mode}", **CHAT}
            answer = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=PATIENCE_S)
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "5"
            assert answer.json()["error"]["code"] == "generator_failed"
    assert not folder.exists()


def test_the_rank_learned_here_is_one_that_fits_there(engine):
    ranks = [engine_of_server(engine, None, limit).learning.settings.rank for limit in (8, 16, 512)]
    assert ranks == [8, 16, 64]
    assert engine_of_server(engine, None, 8).learning.settings.lora.lora_alpha == 16
