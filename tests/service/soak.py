"""Ask a whole `sift serve` for minutes while a third of the clients vanish: does it stay as it was?

    python -m tests.service.soak --minutes 10 [--clients 24] [--seed 0] [--json FILE]

The service is a process of its own over an index of `sift index`, with MiniLM and a small random
language model. What is asked, and who vanishes when (in the headers, in the body, while it waits
or reads), is drawn at random. After two minutes, when caches are full, and at the end nobody asks
for a while: memory, threads and open files of these two rests are compared. Linux alone.
"""

import argparse
import base64
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx
import numpy as np

from tests.random_model import WORDS, save_random_model
from tests.service.servers import figures

MODEL, EMBEDDER = "tiny", "all-MiniLM-L6-v2"
WARM_S, SAMPLE_S, REST_S = 120.0, 5.0, 300.0
LEAST = 250  # requests before the first rest and after it: fewer have not seen all code
STEPS = 400  # more than any learning here has time for: what time cuts is not kept in a cache
PATIENCE_S = 300.0  # of a client that does not vanish
LEAVING = 0.45  # of all requests; some have their answer before, so that a third vanish
LONGEST_STAY_S = 3.0  # of a client that leaves, after it has sent all
# What the end may have more than the first rest. Ten minutes came to 16 MiB and nothing else.
MORE_MIB, MORE_THREADS, MORE_FILES = 64.0, 16, 8

_words = random.Random(0)
TEXTS = [" ".join(_words.choices(WORDS.split(), k=30)) for _ in range(200)]
QUESTIONS = [f"What does the reader say of a {word}?" for word in WORDS.split()]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What the service takes at a moment, and what it has in hand."""

    at_s: float
    rss_mib: float
    n_threads: int
    n_files: int
    n_queued: int
    n_steps: int


@dataclass(kw_only=True)
class Soak:
    """What became of the requests, and of the service; `warm` and `end` are samples at rest."""

    outcomes: Counter = field(default_factory=Counter)  # (kind, outcome) → number
    samples: list[Sample] = field(default_factory=list)
    warm: Sample | None = None
    end: Sample | None = None
    log: str = ""

    def faults(self):
        """Return what is not as it should be, in words."""
        told = [f"{n} × {kind}: {what}" for (kind, what), n in self.outcomes.items() if ":" in what]
        grown = self.end.rss_mib - self.warm.rss_mib
        limits = [
            (grown, MORE_MIB, "MiB of memory"),
            (self.end.n_threads - self.warm.n_threads, MORE_THREADS, "threads"),
            (self.end.n_files - self.warm.n_files, MORE_FILES, "open files"),
        ]
        told += [f"{more:.0f} more {what}" for more, limit, what in limits if more > limit]
        if self.end.n_queued:
            told.append(f"{self.end.n_queued} requests are in the queues, and nobody asks")
        if found := re.search(r"Traceback|never (retrieved|awaited)|destroyed", self.log):
            told.append(f"the log has {found.group()!r}")
        if not any(what == "vanished" for _, what in self.outcomes):
            told.append("no client vanished")
        return told

    def table(self):
        """Return kinds × outcomes, then the samples at rest and the highest of each."""
        names = sorted({what for _, what in self.outcomes})
        lines = [f"{'':<10}" + "".join(f"{name[:20]:>22}" for name in names)]
        for kind in sorted({kind for kind, _ in self.outcomes}):
            numbers = "".join(f"{self.outcomes[kind, name]:>22,}" for name in names)
            lines.append(f"{kind:<10}{numbers}")
        lines.append(f"{'':<10}{'s':>6}{'RSS MiB':>9}{'threads':>9}{'files':>7}{'queued':>8}")
        rests = {"warm": asdict(self.warm), "end": asdict(self.end)}
        highest = {key: max(getattr(one, key) for one in self.samples) for key in rests["end"]}
        for name, one in {**rests, "highest": highest}.items():
            lines.append(
                f"{name:<10}{one['at_s']:>6.0f}{one['rss_mib']:>9.1f}{one['n_threads']:>9}"
                f"{one['n_files']:>7}{one['n_queued']:>8}"
            )
        n = self.outcomes.total()
        n_vanished = sum(m for (_, what), m in self.outcomes.items() if what == "vanished")
        lines.append(
            f"{n:,} requests, {n_vanished:,} vanished; {self.end.n_steps:,} training steps"
        )
        return "\n".join(lines)


def soak(seconds, *, n_clients=24, seed=0):
    """Start a service, ask it for about so many seconds, stop it; return what was seen."""
    found = Soak()
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as (process, address):
        none_kept = httpx.Limits(max_keepalive_connections=0)  # the service drops idle ones
        with httpx.Client(base_url=address, timeout=PATIENCE_S, limits=none_kept) as client:
            began = time.monotonic()

            def sample():
                found.samples.append(taken(process.pid, client, time.monotonic() - began))
                return found.samples[-1]

            warm_s = min(WARM_S, 0.4 * seconds)
            for n, load_s in enumerate((warm_s, seconds - warm_s)):
                asking(found, address, load_s, n_clients, 1000 * n + seed, sample)
                found.end = at_rest(sample)
                found.warm = found.warm or found.end
            for path in ("/ready", "/metrics"):
                client.get(path).raise_for_status()
        found.log = (Path(folder) / "log").read_text(encoding="utf-8")
    return found


@contextmanager
def served(folder):
    """Index the texts and serve them; yield the process and its address."""
    (folder / "texts").mkdir()
    for i, text in enumerate(TEXTS[:60]):
        (folder / "texts" / f"{i}.txt").write_text(text, encoding="utf-8")
    save_random_model(folder / "model")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SIFT_")}
    environment |= {"XDG_CONFIG_HOME": str(folder), "PYTHONUNBUFFERED": "1"}
    sift = [sys.executable, "-m", "sift_core.cli"]
    with (folder / "log").open("w", encoding="utf-8") as log:
        shared = {"cwd": folder, "env": environment, "stdout": log, "stderr": log}
        store = ["--store", "faiss:store"]
        subprocess.run([*sift, "index", "texts", *store], check=True, **shared)
        options = f"--model model --model-name {MODEL} --port 0 --max-new-tokens 48"
        shared["env"] |= {"SIFT_SERVE_N_CONTEXT": "3", "SIFT_SERVE_STEPS": str(STEPS)}
        command = [*sift, "serve", *store, *options.split()]
        with subprocess.Popen(command, **shared) as process:
            try:
                yield process, _address(process, folder / "log")
            finally:
                process.send_signal(signal.SIGTERM)


def _address(process, log):
    while process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text(encoding="utf-8")):
            return found.group()
        time.sleep(0.1)
    raise RuntimeError(log.read_text(encoding="utf-8"))


def taken(pid, client, at_s):
    """Return a sample of the process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    rss_kib, n_threads = (
        int(re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE).group(1))
        for name in ("VmRSS", "Threads")
    )
    told = figures(client)
    return Sample(
        at_s=round(at_s, 1),
        rss_mib=round(rss_kib / 1024, 1),
        n_threads=n_threads,
        n_files=len(list(Path(f"/proc/{pid}/fd").iterdir())),
        n_queued=int(sum(n for name, n in told.items() if name.startswith("sift_queue"))),
        n_steps=int(told["sift_learning_steps_total"]),
    )


def at_rest(sample):
    """Return a sample when the queues are empty and idle connections dropped, or minutes later."""
    end = time.monotonic() + REST_S
    time.sleep(7)  # Uvicorn drops idle connections after 5 s
    while (seen := sample()).n_queued and time.monotonic() < end:
        time.sleep(1)
    return seen


def asking(found, address, seconds, n_clients, seed, sample):
    """Have clients ask for so long, at least `LEAST` times, and take samples meanwhile."""
    end = time.monotonic() + seconds
    least = found.outcomes.total() + LEAST
    mutex = threading.Lock()

    def goes_on():
        with mutex:
            return time.monotonic() < end or found.outcomes.total() < least

    def ask(number):
        rng = random.Random(1000 * seed + number)
        while goes_on():
            kind, path, body = drawn(rng)
            what = outcome(address, kind, path, body, rng)
            with mutex:
                found.outcomes[kind, what] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(n_clients)]
    for thread in threads:
        thread.start()
    while goes_on():
        sample()
        time.sleep(min(SAMPLE_S, seconds / 4))
    for thread in threads:
        thread.join()


def drawn(rng):
    """Return a request drawn at random: its kind, its path and its body."""
    question = rng.choice(QUESTIONS)
    kind = rng.choice(
        ["chat", "stream", "learn", "session", "rerank", "vectors", "search", "other", "bad"]
    )
    way = rng.choice(["context", "base"])
    if kind in ("learn", "session"):
        way = rng.choice(["fine_tune", "both"])
    chat = {
        "model": f"{MODEL}:{way}",
        "messages": [{"role": "user", "content": question}],
        "stream": kind == "stream" or rng.random() < 0.5,
        "sift": {"latency_s": rng.uniform(0.05, 1.0)},
    }
    if kind == "session":
        chat["sift"]["session"] = f"about {rng.randrange(40)}"
    texts = rng.sample(TEXTS, rng.randrange(1, 20))
    rerank = {"query": question, "documents": texts, "top_n": 3}
    if kind in ("chat", "stream", "learn", "session"):
        return kind, "/v1/chat/completions", json.dumps(chat).encode()
    if kind == "rerank":
        path, body = rng.choice(
            [
                ("/v1/rerank", rerank),
                ("/v2/rerank", rerank),
                ("/rerank", rerank),
                ("/rerank", {"query": question, "texts": texts, "return_text": True}),
            ]
        )
        return kind, path, json.dumps(body).encode()
    if kind == "vectors":
        rows = np.random.default_rng(rng.randrange(9)).normal(size=(200, 384)).astype("<f4")
        vectors = rows.tolist()
        if rng.random() < 0.5:
            vectors = [base64.b64encode(row).decode() for row in rows]
        given = {"query_embedding": vectors[0], "embeddings": vectors, "documents": TEXTS}
        return kind, "/v2/rerank", json.dumps({**rerank, **given}).encode()
    if kind == "search":
        body = {"query": question, "n_select": 5, "compare": rng.random() < 0.5}
        return kind, "/search", json.dumps(body).encode()
    if kind == "other":
        path, body = rng.choice(
            [
                ("/v1/embeddings", {"model": EMBEDDER, "input": texts}),
                ("/v1/completions", {"model": f"{MODEL}:base", "prompt": question}),
            ]
        )
        return kind, path, json.dumps(body).encode()
    path, content = rng.choice(
        [
            ("/v2/rerank", b'{"query": "a boat", "documents": ['),
            ("/v2/rerank", json.dumps({**rerank, "embeddings": [[0.0]]}).encode()),
            ("/v1/chat/completions", json.dumps({**chat, "model": "other"}).encode()),
            ("/v1/chat/completions", json.dumps({**chat, "max_tokens": 10**9}).encode()),
            ("/search", json.dumps({"query": "word " * 50_000, "n_select": 0}).encode()),
            ("/nothing", b"\xff\xfe"),
        ]
    )
    return kind, path, content


def outcome(address, kind, path, body, rng):
    """Ask, and perhaps leave before the end; return what became of it.

    "answered", "refused" and "vanished" are as they should be; what is not has a colon.
    """
    host, port = address.removeprefix("http://").split(":")
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    sent, stay_s = head.encode() + body, PATIENCE_S
    if is_leaving := rng.random() < LEAVING:
        stay_s = rng.uniform(0, LONGEST_STAY_S)
        if rng.random() < 0.4:  # before all is sent
            sent, stay_s = sent[: rng.randrange(len(sent))], stay_s / 10
    try:
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
            if is_leaving and rng.random() < 0.5:  # without a word: RST
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(sent)
            answer = _received(connection, stay_s)
    except TimeoutError:
        return "vanished" if is_leaving else f"no end: in {PATIENCE_S:g} s"
    except OSError as error:
        return f"cut: {type(error).__name__}"
    return _judged(kind, answer)


def _received(connection, seconds):
    """Return all until the server closes the connection; TimeoutError after so many seconds."""
    end, parts = time.monotonic() + seconds, []
    while True:
        connection.settimeout(max(end - time.monotonic(), 0.001))
        parts.append(connection.recv(1 << 16))
        if not parts[-1]:
            return b"".join(parts)


def _judged(kind, answer):
    head, _, rest = answer.partition(b"\r\n\r\n")
    status = int(head[9:12]) if head.startswith(b"HTTP/1.1 ") else 0
    if kind == "bad":
        return "refused" if 400 <= status < 500 else f"status: {status}"
    if status != 200:
        return f"status: {status}"
    if b"text/event-stream" in head:
        return "answered" if b"data: [DONE]" in rest else f"stream: {rest[-200:]!r}"
    try:
        return "answered" if json.loads(rest) else "empty: no answer"
    except ValueError:
        return f"no JSON: {rest[-200:]!r}"


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.service.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="a file for outcomes and samples")
    given = parser.parse_args()
    found = soak(60 * given.minutes, n_clients=given.clients, seed=given.seed)
    sys.stdout.write("\n".join([found.table(), *found.faults()]) + "\n")
    if given.json:
        record = {
            "outcomes": [[*key, n] for key, n in sorted(found.outcomes.items())],
            "samples": [asdict(sample) for sample in found.samples],
        }
        given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(bool(found.faults()))


if __name__ == "__main__":
    sys.exit(main())
