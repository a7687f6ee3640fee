"""Who may call, how much at once, and what becomes of those who go away."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import httpx
import pytest

from sift_core import CandidateSourceError, InMemorySource, InvalidInputError
from sift_core.service import ServiceSettings, create_app, guard, openai_answers, state
from tests.engines import changed
from tests.service.servers import (
    CHAT,
    LONG,
    PATIENCE_S,
    RERANK,
    TEXTS,
    BrokenEmbedder,
    asked,
    connection_to,
    figures,
    service,
    serving,
    until,
)

DIALECTS = {
    "/v1/chat/completions": lambda told: told["error"]["message"],
    "/v1/models": lambda told: told["error"]["message"],
    "/v1/rerank": lambda told: told["message"],
    "/v2/rerank": lambda told: told["message"],
    "/rerank": lambda told: told["error"] and told["error_type"] and told["detail"],
    "/metrics": lambda told: told["detail"],
    "/search": lambda told: told["detail"],
}


@pytest.fixture
def slow_engine(engine):
    """An engine that learns for minutes if nobody stops it, and keeps nothing of it."""
    return changed(engine, n_steps=10_000, cache=None)


def test_a_wrong_key_is_refused_in_the_dialect(source, embedder):
    with service(source=source, embedder=embedder, api_key="secret") as client:
        for path, message in DIALECTS.items():
            for header in (None, "Bearer wrong", "Bearer", "Basic secret", "secret"):
                headers = {} if header is None else {"authorization": header}
                method = "GET" if path in ("/v1/models", "/metrics") else "POST"
                answer = client.request(method, path, headers=headers)
                assert answer.status_code == 401
                assert message(answer.json())
                assert answer.headers["www-authenticate"] == "Bearer"


def test_the_right_key_opens_all_and_health_needs_none(source, embedder):
    with service(source=source, embedder=embedder, api_key="secret") as client:
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/ready").json() == {"status": "ready", "reasons": []}
        assert client.head("/ready").status_code == client.head("/health").status_code == 200
        headers = {"authorization": "bearer secret"}
        assert client.post("/rerank", json=RERANK, headers=headers).status_code == 200
        assert client.get("/metrics", headers=headers).status_code == 200
        assert client.get("/openapi.json").status_code == 401


@pytest.mark.parametrize(
    "wrong",
    [
        {"api_key": ""},
        {"api_key": " secret"},  # a header's value comes without the spaces around it
        {"api_key": "schlüssel"},
        {"allowed_origins": "https://page.example"},  # would be as many pages as letters
        {"allowed_origins": ("https://page.example/",)},  # no browser sends that slash
        {"allowed_origins": ("page.example",)},
        {"allowed_hosts": "localhost"},
        {"model_name": "a:b"},
        {"timeout_s": 0},
        {"n_answers": 0},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(InvalidInputError, match=f"`{next(iter(wrong))}`"):
        ServiceSettings(**wrong)


def test_a_large_body_is_refused(source, embedder):
    body = json.dumps({**RERANK, "query": "x" * 20_000}).encode()
    with service(source=source, embedder=embedder, max_body_bytes=10_000) as client:
        for path in ("/rerank", "/v2/rerank", "/v1/chat/completions", "/search"):
            for content in (iter([body[:9_000], body[9_000:]]), body):  # in chunks, and whole
                kind = {"content-type": "application/json"}
                answer = client.post(path, content=content, headers=kind)
                assert answer.status_code == 413
                assert DIALECTS[path](answer.json())


def test_a_body_that_does_not_arrive_is_not_waited_for(source, embedder, monkeypatch):
    monkeypatch.setattr(guard, "BODY_S", 0.2)
    with service(source=source, embedder=embedder) as client:
        with connection_to(client) as connection:
            connection.sendall(
                b"POST /rerank HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                b"content-length: 100\r\n\r\n{"
            )
            received = b"".join(iter(lambda: connection.recv(1000), b""))  # until it is closed
            assert b" 408 " in received.split(b"\r\n")[0]


def test_a_name_that_points_here_is_refused_where_no_key_is_asked(source, embedder):
    with service(source=source, embedder=embedder, allowed_hosts=("127.0.0.1",)) as client:
        assert client.get("/health").status_code == 200
        answer = client.post("/rerank", json=RERANK, headers={"host": "evil.example:8123"})
        assert answer.status_code == 421


def test_pages_of_others_may_call_where_they_are_named(source, embedder):
    asks = {"origin": "https://page.example", "access-control-request-method": "POST"}
    allow = "access-control-allow-origin"
    with service(source=source, embedder=embedder, api_key="k") as client:
        assert allow not in client.options("/rerank", headers=asks).headers
        assert allow not in client.post("/rerank", json=RERANK, headers=asks).headers
    origins = ("https://page.example",)
    with service(source=source, embedder=embedder, api_key="k", allowed_origins=origins) as client:
        assert client.options("/rerank", headers=asks).headers[allow] == origins[0]
        assert client.post("/rerank", json=RERANK, headers=asks).headers[allow] == origins[0]
        asks["origin"] = "https://other.example"
        assert allow not in client.post("/rerank", json=RERANK, headers=asks).headers


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_client_that_goes_away_stops_its_learning(slow_engine, is_streamed):
    with service(slow_engine) as client:
        with asked(client, "/v1/chat/completions", {**LONG, "stream": is_streamed}):
            until(lambda: figures(client)["sift_learning_steps_total"] > 2)
            assert figures(client)['sift_queue_running{queue="answers"}'] == 1
            assert client.post("/v1/chat/completions", json=CHAT).status_code == 200
            assert _n_unfinished(client) == 1  # still learning
        until(lambda: figures(client)["sift_clients_gone_total"] == 1)
        until(lambda: figures(client)['sift_queue_running{queue="answers"}'] == 0)
        steps = figures(client)["sift_learning_steps_total"]
        # The model is free for others, who took turns on it with whoever still learned.
        assert client.post("/v1/chat/completions", json=CHAT).status_code == 200
        assert figures(client)["sift_learning_steps_total"] <= steps + 1  # was being taken


def test_a_full_queue_says_when_to_come_back(slow_engine, monkeypatch):
    monkeypatch.setattr(state, "WAITING_ANSWERS", 1)
    with service(slow_engine, n_answers=1) as client, ExitStack() as others:
        for n in (1, 2):
            others.enter_context(asked(client, "/v1/chat/completions", LONG))
            until(lambda n=n: _n_unfinished(client) == n)
        assert client.get("/ready").status_code == 503
        for is_streamed in (False, True):
            body = {**CHAT, "stream": is_streamed}
            answer = client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json()["error"]["code"] == "overloaded"
        assert client.post("/rerank", json=RERANK).status_code == 200  # waits for no model
        others.close()
        until(lambda: _n_unfinished(client) == 0)
        assert client.get("/ready").status_code == 200


def _n_unfinished(client):
    found = figures(client)
    kinds = ("running", "waiting")
    return sum(found.get(f'sift_queue_{kind}{{queue="answers"}}', 0) for kind in kinds)


@pytest.mark.slow
def test_an_answer_ends_with_what_there_is_when_its_time_is_over(slow_engine):
    with service(slow_engine, timeout_s=1.5) as client:
        answer = client.post("/v1/chat/completions", json=LONG).raise_for_status().json()
        assert answer["sift"]["fine_tuning"]["stop_reason"] == "time"
        assert any("time was over" in reason for reason in answer["sift"]["reasons"])
        body = {**CHAT, "max_tokens": 900, "model": "tiny:base"}
        # Else a text that goes in circles would end before its time is over.
        generation = {"eos_token_id": None, "repetition_penalty": 1.0}
        endless = replace(slow_engine, generation=generation)
    with service(endless, timeout_s=0.1) as client:
        answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
        assert answer["sift"]["timed_out"]
        assert answer["choices"][0]["finish_reason"] == "length"
        assert 0 < answer["usage"]["completion_tokens"] < 900
        assert "0.1 s" in answer["sift"]["reasons"][-1]


def test_a_service_that_is_stopped_ends_its_answers(slow_engine):
    app = create_app(slow_engine, settings=ServiceSettings(model_name="tiny"))
    endless = {**CHAT, "model": "tiny:base", "max_tokens": 900}
    with serving(app) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        kinds = {True: 200, False: 503}  # a stream has begun already
        for is_streamed, status in kinds.items():
            app.state.service.stopping.clear()
            before = figures(client)["sift_learning_steps_total"]
            with ThreadPoolExecutor() as pool:
                body = {**LONG, "stream": is_streamed}
                answer = pool.submit(client.post, "/v1/chat/completions", json=body)
                until(lambda n=before: figures(client)["sift_learning_steps_total"] > n)
                app.state.service.stopping.set()
                assert answer.result(timeout=PATIENCE_S).status_code == status
                assert "is being stopped" in answer.result().text
        assert client.post("/v1/chat/completions", json=endless).status_code == 503


def test_a_service_that_is_stopped_waits_for_no_long_step(slow_engine):
    app = create_app(slow_engine, settings=ServiceSettings(model_name="tiny"))
    with serving(app) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        body = {**LONG, "stream": True}
        with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(line for line in lines if '"learning"' in line)
            with slow_engine.language_model.lock.held():  # as by a step that takes for ever
                app.state.service.stopping.set()
                rest = [line for line in lines if line.startswith("data:")]
        assert json.loads(rest[-1][5:])["error"]["message"] == "the service is being stopped"


def test_a_quiet_stream_says_that_it_lives(slow_engine, monkeypatch):
    monkeypatch.setattr(openai_answers, "KEEP_ALIVE_S", 0.05)
    with service(slow_engine, n_answers=1) as client, ExitStack() as others:
        others.enter_context(asked(client, "/v1/chat/completions", LONG))
        until(lambda: _n_unfinished(client) == 1)
        body = {**CHAT, "stream": True}
        with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            text = ""
            for part in answer.iter_text():
                text += part
                if ": keep-alive\n\n" in text:
                    others.close()  # and it is this one's turn
        assert ": keep-alive\n\n" in text
        assert text.endswith("data: [DONE]\n\n")


class _BrokenSource(InMemorySource):
    def fetch_batch(self, *_, **__):
        raise CandidateSourceError("cannot open /home/somebody/secret", retry_after_s=7)

    look_up = fetch_batch


def test_errors_tell_no_place_and_no_code(engine, embedder, caplog):
    broken = _BrokenSource(embedder.embed_documents(TEXTS), TEXTS)
    with service(replace(engine, source=broken)) as client:
        answer = client.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "7"
        assert "secret" not in answer.text
        streamed = client.post("/v1/chat/completions", json={**CHAT, "stream": True}).text
        assert '"error"' in streamed
        assert "secret" not in streamed
        assert "[DONE]" not in streamed
        caplog.clear()
        unready = client.get("/ready")
        assert (unready.status_code, unready.json()["status"]) == (503, "not ready")
        assert "secret" not in unready.text
        assert "cannot open /home/somebody/secret" in caplog.text  # for the operator alone
    with service(embedder=BrokenEmbedder()) as client:
        for path, status in (("/rerank", 424), ("/v2/rerank", 500)):
            answer = client.post(path, json=RERANK)
            assert answer.status_code == status
            assert "secret" not in answer.text
            assert "Traceback" not in answer.text
            assert f"request {answer.headers['x-request-id']} failed" in caplog.text


def test_what_is_not_there_is_told_in_json(source, embedder):
    with service(source=source, embedder=embedder) as client:
        for path in ("/nothing", "/v1/nothing", "/v1/chat/completions/x"):
            answer = client.get(path)
            assert answer.status_code == 404
            assert answer.json()
        of_ollama = client.post("/api/chat", json={})
        assert "OpenAI's API at /v1" in of_ollama.json()["detail"]
        wrong_method = client.get("/rerank")
        assert (wrong_method.status_code, wrong_method.headers["allow"]) == (405, "POST")
        assert not any("nothing" in name for name in figures(client))


def test_a_slash_behind_a_path_is_no_other_path(source, embedder):
    with service(source=source, embedder=embedder, api_key="k") as client:
        assert client.get("/health/").json() == {"status": "ok"}
        assert client.get("/v1/models/").status_code == 401
        client.headers["authorization"] = "Bearer k"
        assert client.get("/v1/models/").json() == client.get("/v1/models").json()
        assert client.post("/v2/rerank/", json=RERANK).json()["results"]
        assert client.get("//").headers["content-type"].startswith("text/html")


def test_a_request_keeps_its_name(source, embedder):
    with service(source=source, embedder=embedder) as client:
        named = client.get("/health", headers={"x-request-id": "mine-1"})
        assert named.headers["x-request-id"] == "mine-1"
        odd = client.get("/health", headers={"x-request-id": "a b\tc"})
        assert odd.headers["x-request-id"] != "a b\tc"


def test_without_a_model_there_is_none(source, embedder):
    with service(source=source, embedder=embedder) as client:
        assert [m["id"] for m in client.get("/v1/models").json()["data"]] == [embedder.name]
        assert client.post("/v1/chat/completions", json=CHAT).status_code == 404
