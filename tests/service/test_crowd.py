"""Many clients at once: each has its own answer, the one that it would have alone."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.engines import changed
from tests.service.servers import TEXTS, figures, service

QUESTIONS = ["How to fold a boat?", "Which tea is black?", "What has cold water?", "Do trees grow?"]
MODES = ["context", "fine_tune", "both", "base"]


def call(client, number):
    """Make one of a hundred different calls; return what must be the same whoever else calls."""
    question = QUESTIONS[number % 4]
    kind = number // 4 % 5
    if kind == 0:
        body = {"query": question, "documents": TEXTS, "top_n": 1 + number % 7}
        return client.post("/v2/rerank", json=body).raise_for_status().json()["results"]
    if kind == 1:
        body = {"query": question, "n_select": 1 + number % 7}
        found = client.post("/search", json=body).raise_for_status().json()
        return found["columns"]
    body = {
        "model": f"tiny:{MODES[number // 20 % 4]}",
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 4 + number % 5,
        "stream": kind == 2,
    }
    if kind == 3:
        body |= {"temperature": 1.5, "seed": number}
    with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        text = answer.raise_for_status().read().decode()
    if kind == 2:
        return [
            line.partition('"choices":')[2] for line in text.splitlines() if '"content"' in line
        ]
    answer = httpx.Response(200, text=text).json()
    return answer["choices"][0]["message"]["content"], answer["usage"], answer["sift"]["mode"]


@pytest.mark.slow
def test_two_hundred_mixed_calls_equal_those_made_one_after_another(engine):
    with service(engine, n_answers=8) as client:
        alone = [call(client, number) for number in range(100)]
        with ThreadPoolExecutor(max_workers=50) as pool:
            crowded = list(pool.map(lambda number: call(client, number % 100), range(200)))
        assert crowded == [*alone, *alone]
        found = figures(client)
        for queue in ("answers", "rankings"):
            for kind in ("running", "waiting"):
                assert found[f'sift_queue_{kind}{{queue="{queue}"}}'] == 0


def test_who_asks_for_one_new_session_at_once_learns_once(engine):
    body = {
        "model": "tiny:fine_tune",
        "messages": [{"role": "user", "content": "Do trees grow in the wind?"}],
        "sift": {"session": "trees", "filter": {"topic": "boats"}},
    }
    with service(changed(engine, cache=None)) as client:
        with ThreadPoolExecutor(max_workers=4) as pool:
            answers = list(
                pool.map(lambda _: client.post("/v1/chat/completions", json=body).json(), range(4))
            )
        assert len({answer["choices"][0]["message"]["content"] for answer in answers}) == 1
        assert figures(client)["sift_learning_steps_total"] == 4  # of one fine-tuning


def test_figures_tell_stages_tokens_steps_and_caches(engine):
    body = {
        "model": "tiny:fine_tune",
        "messages": [{"role": "user", "content": "What floats on cold water?"}],
        "sift": {"filter": {"topic": "boats"}},
    }
    with service(engine) as client:
        usage = client.post("/v1/chat/completions", json=body).raise_for_status().json()["usage"]
        client.post("/v1/chat/completions", json=body).raise_for_status()
        found = figures(client)
    assert found['sift_tokens_total{kind="prompt"}'] == 2 * usage["prompt_tokens"]
    assert found['sift_tokens_total{kind="completion"}'] == 2 * usage["completion_tokens"]
    assert found['sift_cache_total{cache="adapters",result="hit"}'] >= 1
    for stage in ("embed", "fetch", "select", "fine_tune", "generate"):
        assert found[f'sift_stage_seconds_count{{stage="{stage}"}}'] == 2
    route = 'route="/v1/chat/completions",status="200"'
    assert found[f"sift_requests_total{{{route}}}"] == 2
