"""`sift mcp` before it serves: what is refused, what is a setting, and a missing package."""

import subprocess
import sys

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

from sift_core import Document
from sift_core.cli.mcp import _as_client_starts
from sift_core.installing import install_command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--http", "--host", "0.0.0.0"], "put a key into SIFT_API_KEY"),
        ([], "no index at faiss:.sift; make one: sift index FOLDER"),
        (["--store", "faiss:notes", "--write", "--max-tokens", "50"], "from 300 to 20000, got 50"),
        (["--store", "qdrant:notes", "--write", "-n", "90"], "from 1 to 50, got 90"),
        (["--store", "qdrant:notes"], "no index at qdrant:notes; make one"),
        (["--half-life-days", "9"], "`half_life_days` needs `newest`"),
        (["--search-description", "x"], "set SIFT_MCP_SEARCH_DESCRIPTION in the environment"),
    ],
)
def test_what_cannot_be_served_is_one_line(arguments, message, refusal):
    assert message in refusal("mcp", *arguments)


def test_two_stores_of_one_name_are_refused(refusal, fill):
    for folder in ("a/notes", "b/notes"):
        fill(f"faiss:{folder}", [Document(document_id="a", text="Fold a boat.")])
    message = refusal("mcp", "--store", "faiss:a/notes", "--also-store", "faiss:b/notes")
    assert "two stores have one name" in message


def test_arguments_mean_the_same_in_any_folder(elsewhere):
    assert _as_client_starts(["--store=faiss:a=b"], "") == [f"--store=faiss:{elsewhere}/a=b"]
    given = ["mcp", "--store=faiss:a", "--also-store", "qdrant:b#c", "-n", "3", "--words", "0.5"]
    here = [f"--store=faiss:{elsewhere}/a", "--also-store", f"qdrant:{elsewhere}/b#c"]
    assert _as_client_starts(given, "faiss:a") == ["mcp", *here, *given[4:]]
    server = ["mcp", "--store", "qdrant:http://localhost:6333#docs"]
    assert _as_client_starts(server, server[-1]) == server
    assert _as_client_starts(["mcp"], ".sift") == ["mcp", "--store", ".sift"]
    default = ["mcp", "--store", f"faiss:{elsewhere}/.sift"]
    assert _as_client_starts(["mcp"], "faiss:.sift") == default


@pytest.mark.slow
def test_without_its_package_the_command_says_what_to_install():
    program = (
        "import sys; sys.modules['mcp'] = None; sys.argv = ['sift', 'mcp']\n"
        "from sift_core.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert install_command("mcp") in done.stderr
