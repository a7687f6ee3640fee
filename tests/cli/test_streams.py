"""What reaches the terminal: nothing that steers it, and a sentence where it cannot be reached."""

import errno
import io
import os
import re
import subprocess
import sys
import warnings

import pytest

from sift_core.cli import run
from sift_core.cli.output import Terminal, Working
from sift_core.cli.streams import CleanStream, undecorated
from sift_core.errors import CandidateSourceError
from sift_core.progress import progress_bar
from sift_core.types import Document

# Clears the screen, a C1 control sequence, a link, a title, an overwritten line, turned text.
HOSTILE = "\x1b[2J\x9bK\x1b]8;;http://evil\x1b\\link\x1b]0;t\x07\rok\b\u202etxt\u2066\u200f"
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Screen(io.StringIO):
    """A terminal that keeps what was written."""

    def isatty(self):
        return True


class Broken(io.StringIO):
    """A stream that keeps the first write and refuses at the flush, as a full disk does."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def flush(self):
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize(
    "arguments",
    [
        ["search", f"--{HOSTILE}"],
        ["search", "cats", HOSTILE],
        ["search", "cats", "--kernel", HOSTILE],
        [f"a{HOSTILE}"],
        ["index", HOSTILE],
        ["search", "cats", "--store", f"faiss:{HOSTILE}"],
        ["--config", "hostile.toml", "search", "cats"],
        ["ask", "cats", "--mode", "base", "--model", f"./{HOSTILE}"],
    ],
)
def test_a_refusal_cannot_steer_the_terminal(arguments, sift, elsewhere):
    (elsewhere / "hostile.toml").write_text('"a\\u001b[2J" = "x"\n', encoding="utf-8")
    captured = sift(*arguments, code=2)
    assert captured.err.strip()
    assert not STEERING.search(captured.out + captured.err)


def test_names_in_a_folder_cannot_steer_the_terminal(sift, elsewhere, fill):
    name = HOSTILE.replace("/", "")
    (elsewhere / "docs").mkdir()
    (elsewhere / "docs" / f"{name}.md").write_text(f"# {HOSTILE}\n\ncats\n", encoding="utf-8")
    (elsewhere / "docs" / f"{name}.md2").write_bytes(b"\0")
    (elsewhere / os.fsdecode(b"docs/\xff.bin")).write_bytes(b"\0")
    document = Document(
        document_id=f"{HOSTILE}#0", text=f"cats {HOSTILE}", metadata={"source": HOSTILE}
    )
    fill("faiss:filled", [document])
    for arguments in (
        ["index", "docs"],
        ["index", "docs", "--json"],
        ["index", "docs", "--store", "faiss:filled"],
        ["search", "cats"],
        ["search", "cats", "--compare"],
        ["search", "cats", "--json", "--store", "faiss:filled"],
        ["search", "cats", "--store", "faiss:filled"],
        ["diagnose"],
        ["doctor", "--embedder", HOSTILE],
    ):
        code = 2 if "filled" in arguments[-1] and arguments[0] == "index" else 0
        code = 2 if arguments[0] == "doctor" else code
        captured = sift(*arguments, code=code)
        assert captured.out.strip() or code
        assert not STEERING.search(captured.out + captured.err), arguments


def test_what_libraries_write_is_cleaned_too(capsys):
    def command():
        sys.stdout.write(HOSTILE)
        sys.stderr.write(f"{HOSTILE}\n")
        sys.stderr.writelines([HOSTILE])
        warnings.simplefilter("default")
        warnings.warn(HOSTILE, UserWarning, stacklevel=1)
        raise CandidateSourceError(f"the server said {HOSTILE}")

    assert run(command) == 2
    captured = capsys.readouterr()
    assert "link" in captured.out
    assert "error: the server said" in captured.err
    assert not STEERING.search(captured.out + captured.err)


def test_a_status_line_takes_no_markup_and_no_escapes(monkeypatch):
    screen = Screen()
    monkeypatch.setattr("sys.stderr", CleanStream(screen, has_results=False))
    with Working(f"Read [/b] [link=http://evil]x[/link] {HOSTILE}") as status:
        status.update(f"Read docs/a[/b].md {HOSTILE} …")
        # Rich takes what others write meanwhile, and reads links out of it.
        sys.stderr.write("\x1b]8;;http://evil\x1b\\a note\x1b]8;;\x1b\\\n")
    shown = screen.getvalue()
    assert "Read docs/a[/b].md" in shown
    assert "a note" in shown
    assert "\x1b[?25l" in shown  # the line is drawn: the cursor is hidden meanwhile
    assert not re.search("\x1b\\[2J|\x1b\\]|[\x07\x08\x80-\x9f\u202e]", shown)


def test_our_own_colours_and_bars_reach_the_terminal(monkeypatch):
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stderr", CleanStream(screen, has_results=False))
    Terminal(stderr=True).print("bold", style="bold")
    with progress_bar(2, "a\x1b[2Jb", "steps") as advance:
        advance(2)
    assert undecorated(sys.stderr).write("x") == 1
    shown = screen.getvalue()
    assert "\x1b[1mbold" in shown
    assert "\ra[2Jb: 100%" in shown


@pytest.mark.parametrize(
    ("number", "code", "told"), [(errno.ENOSPC, 2, "error: stdout"), (errno.EPIPE, 141, "")]
)
def test_a_stdout_that_cannot_be_written_is_no_defect(number, code, told, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout", Broken(number))
    assert run(lambda: Terminal().print("text")) == code
    assert run(lambda: sys.stdout.write("text")) == code
    err = capsys.readouterr().err
    assert err.count("\n") == (2 if told else 0)
    assert err.startswith(told)


def test_a_stderr_that_cannot_be_written_ends_nothing(monkeypatch, capsys):
    def command():
        sys.stderr.write("a note\n")
        sys.stderr.flush()
        sys.stderr.write("a note\n")
        sys.stdout.write("result")

    monkeypatch.setattr("sys.stderr", Broken(errno.ENOSPC))
    assert run(command) == 0
    assert capsys.readouterr().out == "result"


@pytest.mark.parametrize("columns", ["0", "1", "²", "-5", "99999999999999"])
def test_no_width_of_the_terminal_hides_the_words(columns, monkeypatch, sift):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", columns)
    assert "search" in sift("--help").out
    assert "nothing that is" in " ".join(sift("doctor").out.split())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_without_sigma_ends_nothing(encoding, monkeypatch, tmp_path, sift, fill):
    fill("faiss:.sift", [Document(document_id="a.md", text="They purr: \ud7ff σ²")])
    with (tmp_path / "out").open("w", encoding=encoding) as out:
        monkeypatch.setattr("sys.stdout", out)
        sift("search", "cats")
    assert b"1 chunk" in (tmp_path / "out").read_bytes()


def test_what_the_system_refuses_is_told_in_a_line(refusal, monkeypatch, tmp_path):
    name = "x" * 300
    assert "too long" in refusal("search", "cats", "--store", f"faiss:{name}")
    assert "too long" in refusal("--config", name, "search", "cats")
    assert "no model folder" in refusal(
        "ask", "cats", "--mode", "base", "--model", "~nobody-has-this-name/m"
    )
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "current folder is no longer there" in refusal("doctor")


def test_bytes_on_stdin_that_are_no_text_are_read(monkeypatch, refusal):
    stdin = io.TextIOWrapper(io.BytesIO(b"\xff\xfe?"), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", stdin)
    assert "no index at" in refusal("search", "-")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "code", "told"),
    [
        ("{} --help > /dev/full", 2, "error: stdout cannot be written"),
        ("{} --version >&-", 2, "error: stdout cannot be written"),
        ("{} --version <&- >&- 2>&-", 2, ""),
        ("{} --version 2>&-", 0, ""),
        ("{} search cats 2> /dev/full", 2, ""),
        ("{} search - <&-", 2, "error: the question is empty"),
        ("{} --help | true; exit ${{PIPESTATUS[0]}}", 141, ""),
    ],
)
def test_streams_that_are_closed_or_full_end_in_a_sentence(shell, code, told, elsewhere):
    done = subprocess.run(
        ["bash", "-c", shell.format(f"{sys.executable} -m sift_core.cli")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(told)
    assert done.stderr.count("\n") == (1 if told else 0)
