"""Many who ask, of whom a third vanish: afterwards the service is as it was."""

import json
import os
import random
import socket
import struct
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.engines import changed
from tests.random_model import WORDS
from tests.service.servers import PATIENCE_S, TEXTS, figures, service, until

QUESTIONS = [f"What does the reader say of a {word}?" for word in WORDS.split()]
N_CLIENTS, N_REQUESTS = 12, 300
LEAVING = 0.45  # of all requests; some have their answer before, so that a third vanish
MORE_MIB, MORE_THREADS, MORE_FILES = 64.0, 16, 8  # than after as many requests before


def drawn(rng):
    """Return a path, a body, and whether it can be answered."""
    question = rng.choice(QUESTIONS)
    chat = {
        "model": f"tiny:{rng.choice(['context', 'base', 'fine_tune', 'both'])}",
        "messages": [{"role": "user", "content": question}],
        "stream": rng.random() < 0.5,
        "sift": {"latency_s": rng.uniform(0.05, 1.0)},
    }
    if rng.random() < 0.3:
        chat["sift"]["session"] = f"about {rng.randrange(40)}"
    texts = rng.choices(TEXTS, k=rng.randrange(1, 20))
    rerank = {"query": question, "documents": texts, "top_n": 3}
    return rng.choice(
        [
            *[("/v1/chat/completions", chat, True)] * 4,
            ("/v2/rerank", rerank, True),
            ("/rerank", {"query": question, "texts": texts, "return_text": True}, True),
            ("/search", {"query": question, "n_select": 5, "compare": True}, True),
            ("/v1/embeddings", {"model": "hashing-64", "input": texts}, True),
            ("/v1/completions", {"model": "tiny:base", "prompt": question}, True),
            ("/v2/rerank", {**rerank, "embeddings": [[0.0]]}, False),
            ("/v1/chat/completions", {**chat, "temperature": -1}, False),
            ("/nothing", {"query": "word " * 50_000}, False),
        ]
    )


def outcome(address, rng):
    """Ask, and perhaps leave before the end; return "vanished", "right", or what was wrong."""
    path, body, is_right = drawn(rng)
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    sent, stay_s = head.encode() + content, PATIENCE_S
    if is_leaving := rng.random() < LEAVING:
        stay_s = rng.uniform(0, 1.0)
        if rng.random() < 0.4:  # before all is sent
            sent = sent[: rng.randrange(len(sent))]
    answer, end = b"", time.monotonic() + stay_s
    try:
        with socket.create_connection(address) as connection:
            if is_leaving and rng.random() < 0.5:  # without a farewell: RST
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.sendall(sent)
            is_open = True
            while is_open:
                connection.settimeout(max(end - time.monotonic(), 0.001))
                part = connection.recv(65_536)
                answer, is_open = answer + part, bool(part)
    except OSError as error:
        return "vanished" if is_leaving else f"{path}: {error!r}"
    status = int(answer[9:12] or 0)
    if not is_right:
        return "right" if 400 <= status < 500 else f"{path}: {status}"
    is_whole = answer.endswith(b"[DONE]\n\n\r\n0\r\n\r\n") or b"text/event-stream" not in answer
    return "right" if status == 200 and is_whole else f"{path}: {answer[-200:]!r}"


def at_rest(client):
    """Return memory in MiB, threads and open files of this process, once nobody asks."""
    until(lambda: not sum(n for name, n in figures(client).items() if "sift_queue" in name))
    time.sleep(1)  # connections that were dropped are closed
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    n_files = len(list(Path("/proc/self/fd").iterdir()))
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, threading.active_count(), n_files


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_service_is_after_many_who_vanish_as_it_was(engine, caplog):
    seen, rests = Counter(), []
    with service(changed(engine, n_steps=400)) as client:
        address = (client.base_url.host, client.base_url.port)
        for half in range(2):  # caches are full after the first
            numbers = range(half * N_REQUESTS, (half + 1) * N_REQUESTS)
            with ThreadPoolExecutor(N_CLIENTS) as pool:
                seen.update(pool.map(lambda n: outcome(address, random.Random(n)), numbers))
            rests.append(at_rest(client))
        assert client.get("/ready").status_code == 200
    assert seen.keys() == {"right", "vanished"}, seen
    grown = [after - before for before, after in zip(*rests, strict=True)]
    assert grown[0] < MORE_MIB
    assert grown[1] < MORE_THREADS
    assert grown[2] < MORE_FILES
    assert not [one for one in caplog.records if one.exc_info]
