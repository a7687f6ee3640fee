"""Record a newcomer's first minutes with `sift`, and write them to docs/transcript.md.

    python docs/scripts/record_transcript.py [DATA] [--keep FOLDER]

In a fresh temporary folder: a clone of this repository, an environment of its own, some pages of
FastAPI's documentation as Markdown files (from DATA, ../shared/data if left out), and then every
command of `SECTIONS`, with what it truly printed, its exit code and its time. Nothing is fetched
but hatchling, which pip wants for the build; the other packages are those of the environment that
runs this.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "transcript.md"
DATA = ROOT.parent / "shared" / "data"
COLUMNS = 100
REPOSITORY = "REPOSITORY"  # how the page writes where the clone comes from
LEFT_OUT = "[… {} more lines]"

# The releases next to one another repeat one another, and the four pages on models for
# parameters are near-copies: what a folder of versioned documentation looks like.
RELEASES = re.compile(r"release-notes/0\.11\d\.")
TUTORIAL = {
    f"tutorial/{name}"
    for name in (
        "background-tasks body body-updates cookie-param-models cookie-params cors "
        "dependencies/dependencies-with-yield handling-errors header-param-models header-params "
        "middleware path-params query-param-models query-params request-files request-form-models "
        "request-forms request-forms-and-files response-status-code static-files testing"
    ).split()
}

QUESTION = (
    "I want Pydantic models for query parameters, headers, cookies and forms, "
    "and to forbid extra fields; how?"
)
TINY = "../sift-rerank/examples/tiny_lm"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command.

    Args:
        command: As it is typed.
        folder: Where, below the newcomer's home.
        head: Lines of output that are shown from its beginning; all if None.
        tail: Lines that are shown from its end where the middle is left out.
        exit_code: What it has to end with.
    """

    command: str
    folder: str = "handbook"
    head: int | None = None
    tail: int = 0
    exit_code: int = 0


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, what to know before, and commands."""

    title: str
    text: str
    steps: tuple[Step, ...]


SECTIONS = (
    Section(
        title="Get it",
        text=(
            "The packages of an earlier installation were at hand here, so that pip had to build "
            "this library only. The first time it downloads them: see "
            "[the README](../README.md#what-was-measured) for their size."
        ),
        steps=(
            Step(command=f"git clone --quiet {REPOSITORY} sift-rerank", folder="."),
            Step(command="python3 -m venv .venv", folder="sift-rerank"),
            Step(command=". .venv/bin/activate", folder="sift-rerank"),
            Step(
                command="pip install --quiet '.[cli,demo,faiss,files]'",
                folder="sift-rerank",
            ),
        ),
    ),
    Section(
        title="Is everything there?",
        text="The middle of the list of parts is left out.",
        steps=(Step(command="sift doctor", head=19, tail=9),),
    ),
    Section(
        title="Two mistakes",
        text="Asking before there is an index, and a folder with a typo.",
        steps=(
            Step(command='sift search "How do I upload a file?"', exit_code=2),
            Step(command="sift index dosc", exit_code=2),
        ),
    ),
    Section(
        title="Index the folder",
        text="A second call embeds what has changed: nothing.",
        steps=(Step(command="sift index docs"), Step(command="sift index docs")),
    ),
    Section(
        title="Search",
        text=(
            "The first search also compiles the selection, where Numba is installed (extra `fast`; "
            "it was among the packages at hand). The second call compares."
        ),
        steps=(
            Step(command=f'sift search "{QUESTION}" -n 5'),
            Step(command=f'sift search "{QUESTION}" --compare'),
        ),
    ),
    Section(
        title="Is it worth it for this folder?",
        text="The figure that it draws is shown [here](start/command-line.md).",
        steps=(Step(command="sift diagnose --plot diagnosis.png"),),
    ),
    Section(
        title="Ask",
        text=(
            "The tiny model of the repository writes nonsense; it shows that all parts run "
            "without a network. With a real model, `--model` names that."
        ),
        steps=(
            Step(
                command=f'sift ask "{QUESTION}" --model {TINY} --mode context --max-new-tokens 40'
            ),
            Step(
                command=f'sift ask "{QUESTION}" --model {TINY} --mode fine_tune --max-new-tokens 40'
            ),
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a command did: its output (stdout and stderr as they came), its end, its seconds."""

    output: str
    exit_code: int
    seconds: float


def write_pages(data: Path, folder: Path) -> int:
    """Write the chosen pages of FastAPI's documentation as .md files; return how many.

    Raises:
        SystemExit: If the data is not there.
    """
    source = data / "demo" / "pages.jsonl.gz"
    if not source.is_file():
        sys.exit(f"there is no {source}: pass the folder that has demo/pages.jsonl.gz")
    with gzip.open(source, "rt", encoding="utf-8") as lines:
        pages = [json.loads(line) for line in lines]
    chosen = [page for page in pages if page["id"] in TUTORIAL or RELEASES.match(page["id"])]
    for page in chosen:
        path = folder / f"{page['id']}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page["text"], encoding="utf-8")
    return len(chosen)


def run(step: Step, home: Path, environment: Mapping[str, str]) -> Outcome:
    """Return what a command does.

    Raises:
        SystemExit: If it ends with another exit code than it should.
    """
    command = step.command.replace(REPOSITORY, shlex.quote(str(ROOT)))
    start = time.perf_counter()
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=home / step.folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    seconds = time.perf_counter() - start
    sys.stdout.write(f"$ {step.command}\n{done.stdout}[{done.returncode}, {seconds:.1f} s]\n")
    sys.stdout.flush()
    if done.returncode != step.exit_code:
        sys.exit(f"exit code {done.returncode}, and {step.exit_code} was expected")
    return Outcome(output=done.stdout, exit_code=done.returncode, seconds=seconds)


def environment_of(home: Path) -> dict[str, str]:
    """Return the environment of the commands: a newcomer's, who has set nothing."""
    kept = {name: os.environ[name] for name in ("LANG", "OMP_NUM_THREADS") if name in os.environ}
    return {
        **kept,
        "COLUMNS": str(COLUMNS),
        "HOME": str(home),
        "PATH": f"{home / 'sift-rerank' / '.venv' / 'bin'}:{os.environ['PATH']}",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONUTF8": "1",
    }


def lend_packages(home: Path) -> None:
    """Let the new environment see the packages of the one that runs this."""
    library = next((home / "sift-rerank" / ".venv" / "lib").glob("python3.*/site-packages"))
    (library / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")


def record(home: Path, data: Path) -> tuple[list[list[Outcome]], int]:
    """Return the outcomes of each section's commands, and how many pages were written."""
    n_pages = write_pages(data, home / "handbook" / "docs")
    environment = environment_of(home)
    outcomes: list[list[Outcome]] = []
    for section in SECTIONS:
        outcomes.append([])
        for step in section.steps:
            outcomes[-1].append(run(step, home, environment))
            if "-m venv" in step.command:
                lend_packages(home)
    return outcomes, n_pages


def cleaned(output: str, home: Path) -> list[str]:
    """Return the lines of an output without trailing blanks and paths of this machine."""
    for path in (str(home.resolve()), str(home)):
        output = output.replace(path, "~")
    lines = [line.rstrip() for line in output.replace(str(ROOT), REPOSITORY).splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def shortened(lines: list[str], step: Step) -> list[str]:
    """Return the lines that the page shows."""
    if step.head is None or len(lines) <= step.head + step.tail + 1:
        return lines
    n_left_out = len(lines) - step.head - step.tail
    return [
        *lines[: step.head],
        LEFT_OUT.format(n_left_out),
        *lines[len(lines) - step.tail :],
    ]


def page_lines(
    outcomes: list[list[Outcome]], home: Path, n_pages: int, loads: tuple[float, float]
) -> Iterator[str]:
    """Yield the lines of the page."""
    total = sum(outcome.seconds for section in outcomes for outcome in section)
    yield from (
        "# A newcomer's first minutes",
        "",
        "From `git clone` to an answer over a folder of one's own, as "
        "`docs/scripts/record_transcript.py`",
        f"recorded it on {date.today().isoformat()}. The folder, `handbook/docs`, has "
        f"{n_pages} pages of FastAPI's documentation (MIT),",
        f"many of them release notes. All {sum(map(len, outcomes))} commands took "
        f"{total / 60:.0f} minutes together, on {os.cpu_count()} cores that other work kept busy",
        f"(load {loads[0]:.1f} at the start, {loads[1]:.1f} at the end): take the times as upper "
        "bounds.",
        f"The output is what a pipe gets, {COLUMNS} columns wide: a terminal shows "
        "colours and progress bars besides. Below each",
        "command are its exit code and its time; the home folder is written `~`, and "
        f"`{REPOSITORY}` is where you clone from.",
        "",
    )
    folder = "."
    for section, results in zip(SECTIONS, outcomes, strict=True):
        yield from (f"## {section.title}", "")
        if section.text:
            yield from (section.text, "")
        for step, outcome in zip(section.steps, results, strict=True):
            yield "```console"
            if step.folder != folder:
                yield f"$ cd ~/{step.folder}"
                folder = step.folder
            yield f"$ {step.command}"
            yield from shortened(cleaned(outcome.output, home), step)
            yield from ("```", "")
            yield from (f"Exit code {outcome.exit_code}, {outcome.seconds:.1f} s.", "")
    yield "[The command line in five minutes](start/command-line.md) explains what is seen here."


def main() -> None:
    """Record, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", type=Path, default=DATA, help="../shared/data")
    parser.add_argument("--keep", type=Path, help="move handbook/ there, for take_screenshots.py")
    arguments = parser.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        outcomes, n_pages = record(home, arguments.data)
        loads = (before, os.getloadavg()[0])
        text = "\n".join(page_lines(outcomes, home, n_pages, loads)) + "\n"
        if arguments.keep is not None:
            shutil.move(home / "handbook", arguments.keep)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
