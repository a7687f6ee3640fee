"""Ray Serve: two replicas behind its proxy, started by `serve run` as the guide says."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

pytest.importorskip("ray.serve", reason="needs the extra ray")

import psutil
import yaml
from pydantic import ValidationError

from sift_core.service import ServiceSettings
from sift_core.service.ray_app import RayArguments
from tests.service.servers import PATIENCE_S, figures, opened_tiny, serving, until
from tests.service.test_crowd import call
from tests.service.test_limits import CHAT, DIALECTS

ROOT = Path(__file__).parents[2]
SHOWN = ROOT / "examples/serve/ray.yaml"
HELD = "x-session-id"
KEY = {"authorization": "Bearer secret"}
LONG = {**CHAT, "model": "tiny:base", "max_tokens": 900, "stream": True}
RUNNING = 'sift_queue_running{queue="answers"}'


def test_the_config_of_the_guide_fits_what_it_names():
    shown = yaml.safe_load(SHOWN.read_text("utf-8"))["applications"][0]["args"]
    assert RayArguments.model_validate(shown).options == {"store": "faiss:.sift"}
    options = {"n_context": 4, "candidates": 50, "max_tokens": 300}  # named as the flags are
    given = {**shown, "options": options, "settings": {"allowed_hosts": ["a"]}}
    made = RayArguments.model_validate(given)
    assert made.options == options
    assert made.service_settings().allowed_hosts == ("a",)


@pytest.mark.parametrize(
    "wrong",
    [
        {"settings": {"n_anwsers": 3}},
        {"settings": {"n_answers": 0}},
        {"settings": {"api_key": "sk-real-key"}},
        {"options": {"shop": "faiss:.sift"}},
        {"open_app": "sift_core.cli.serve:nothing"},
        {"noauth": True},
    ],
)
def test_what_cannot_work_is_refused_before_a_replica_starts(wrong):
    right = {"open_app": "sift_core.cli.serve:opened_app"}
    with pytest.raises(ValidationError) as refused:
        RayArguments.model_validate({**right, **wrong})
    assert "sk-real-key" not in str(refused.value)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def cluster(random_model):
    """The address of two replicas of the tiny service, on a cluster of this test's own."""
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # short: sockets lie in it
    port = free_port()
    config = yaml.safe_load(SHOWN.read_text("utf-8"))
    config["http_options"]["port"] = port
    (application,) = config["applications"]
    application["args"] = {
        "open_app": "tests.service.servers:opened_tiny",
        "options": {"model": str(random_model)},
    }
    (deployment,) = application["deployments"]
    deployment["ray_actor_options"]["num_cpus"] = 0.1
    deployment["autoscaling_config"] |= {"min_replicas": 2, "max_replicas": 2}
    (folder / "ray.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "RAY_ADDRESS": "local",  # none that others have started here
        "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": str(100 << 20),
        "RAY_TMPDIR": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0",
        "SIFT_API_KEY": "secret",
    }
    command = [sys.executable, "-m", "ray.serve.scripts", "run", str(folder / "ray.yaml")]
    log = folder / "log"
    with log.open("wb") as told:
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=told,
            stderr=told,
            start_new_session=True,
            # What a shell starts in the background ignores Ctrl-C, and so would this.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: is_up(url) or process.poll() is not None, seconds=400)
        assert process.poll() is None, log.read_text("utf-8")
        yield url
    finally:
        left = stop(process)
        shutil.rmtree(folder, ignore_errors=True)
    assert not left


def stop(process):
    """Stop `serve run` as Ctrl-C does; return what of its cluster had to be killed."""
    if process.poll() is not None:
        return []
    main = psutil.Process(process.pid)
    cluster = [*main.children(recursive=True), main]
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
        process.wait(timeout=PATIENCE_S)
        until(lambda: not any(map(is_alive, cluster)))
    left = [one for one in cluster if is_alive(one)]
    for one in left:
        one.kill()
    process.wait(timeout=PATIENCE_S)
    return left


def is_alive(process):
    """Return whether a process runs: one that ended may wait for a container's first to notice."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_up(url):
    """Return whether both replicas answer."""
    try:
        pids = {held_by(url, f"anyone {i}") for i in range(20)}
    except (httpx.HTTPError, ValueError):
        return False
    return len(pids) == 2


def held_by(url, name):
    """Return the process that requests of a name go to."""
    answer = httpx.get(f"{url}/pid", headers={**KEY, HELD: name}, timeout=PATIENCE_S)
    return answer.raise_for_status().json()


@pytest.fixture
def client(cluster):
    with httpx.Client(base_url=cluster, timeout=PATIENCE_S, headers=KEY) as client:
        yield client


@pytest.mark.slow
def test_a_session_stays_where_it_has_learned(client):
    body = {**CHAT, "model": "tiny:fine_tune", "sift": {"session": "boats"}}
    client.headers[HELD] = "boats"
    before = figures(client)
    with ThreadPoolExecutor(max_workers=3) as pool:  # also the first ones, at once
        asked = pool.map(lambda _: client.post("/v1/chat/completions", json=body), range(6))
        answers = [one.raise_for_status().json()["choices"][0] for one in asked]
    assert answers == [answers[0]] * 6
    found = figures(client)
    looked_up = 'sift_cache_total{{cache="sessions",result="{}"}}'
    assert found[looked_up.format("miss")] == 1
    assert found[looked_up.format("hit")] == 5
    steps = "sift_learning_steps_total"
    assert found[steps] - before[steps] == 4  # of one fine-tuning


@pytest.mark.slow
def test_errors_and_names_are_those_of_the_service(cluster, client):
    for path, message in DIALECTS.items():
        method = "GET" if path in ("/v1/models", "/metrics") else "POST"
        refused = httpx.request(method, cluster + path, timeout=PATIENCE_S)
        assert refused.status_code == 401
        assert message(refused.json())
    assert httpx.get(f"{cluster}/ready", timeout=PATIENCE_S).json()["status"] == "ready"
    assert client.post("/v2/rerank", json={"query": "a"}).json()["message"]
    named = client.get("/v1/models/none", headers={"x-request-id": "mine-1"})
    assert named.status_code == 404
    assert named.headers.get_list("x-request-id") == ["mine-1"]


@pytest.mark.slow
def test_a_client_that_goes_away_stops_its_answer(client):
    client.headers[HELD] = "vanishing"
    gone = "sift_clients_gone_total"
    before = figures(client)[gone]
    with client.stream("POST", "/v1/chat/completions", json=LONG):
        until(lambda: figures(client).get(RUNNING) == 1)
    until(lambda: figures(client)[RUNNING] == 0)
    assert figures(client)[gone] == before + 1


@pytest.mark.slow
def test_no_answer_is_wrong_while_a_replica_is_killed(cluster, client, random_model):
    numbers = range(100)
    with (
        opened_tiny(ServiceSettings(), model=random_model) as app,
        serving(app) as url,
        httpx.Client(base_url=url, timeout=PATIENCE_S) as alone,
    ):
        expected = [call(alone, number) for number in numbers]
        text = whole(alone, {})

    doomed, there = held_by(cluster, "doomed"), {HELD: "doomed"}
    with ThreadPoolExecutor(max_workers=8) as pool:
        answers = [pool.submit(retried, call, client, number) for number in numbers]
        with client.stream("POST", "/v1/chat/completions", json=LONG, headers=there) as stream:
            lines = stream.iter_lines()
            next(line for line in lines if '"content"' in line)
            os.kill(doomed, signal.SIGKILL)
            with pytest.raises(httpx.TransportError):  # cut, and not as if it had ended
                list(lines)
        assert retried(whole, client, there) == text
        assert [answer.result() for answer in answers] == expected

    assert held_by(cluster, "doomed") != doomed
    until(lambda: is_up(cluster), seconds=400)  # with another in its place


@pytest.mark.slow
def test_an_answer_that_is_lost_is_an_error_that_clients_repeat(cluster, client):
    client.headers[HELD] = "lost"
    doomed = held_by(cluster, "lost")
    with ThreadPoolExecutor() as pool:
        lost = pool.submit(client.post, "/v1/chat/completions", json={**LONG, "stream": False})
        until(lambda: figures(client).get(RUNNING) == 1)
        os.kill(doomed, signal.SIGKILL)
        answer = lost.result()
    assert answer.status_code == 500
    assert "Traceback" not in answer.text
    assert str(ROOT) not in answer.text
    assert retried(whole, client, client.headers)


def whole(client, headers):
    """Return an answer that is not streamed."""
    body = {**LONG, "stream": False, "max_tokens": 100}
    answer = client.post("/v1/chat/completions", json=body, headers=headers)
    return answer.raise_for_status().json()["choices"][0]["message"]["content"]


def retried(ask, client, *arguments):
    """Return what a call returns, made again where the replica that had it died."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            return ask(client, *arguments)
        except httpx.HTTPStatusError as error:
            if error.response.status_code < 500:
                raise
        except httpx.TransportError:
            pass  # a stream that was cut
        time.sleep(0.5)
    raise AssertionError("no replica answered")
