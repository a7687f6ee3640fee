"""Installs each extra of the four distributions from wheels into each Python, and runs it.

The Pythons are those of a distribution's classifiers that are found on this machine. For each of
them uv installs each extra by itself into an empty environment, and runs its file in `probes/`.
pip installs all extras of a distribution together. Run `make test-pythons`, or

    python integrations/matrix/pythons.py --dist dist [--pythons 3.12 /opt/python3.14] [--only NAME]

Only wheels are installed, the newest that the index has; torch alone has the version of
`constraints.txt`. PIP_FIND_LINKS and UV_FIND_LINKS name folders with more wheels, such as a CPU
build of torch. What would bring CUDA's gigabytes is resolved and not installed, but for --cuda.
The exit status is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROBES = HERE / "probes"
FOLDERS = {
    "sift-rerank": ROOT,
    "langchain-sift": ROOT / "integrations/langchain-sift",
    "llama-index-postprocessor-sift": ROOT / "integrations/llama-index-postprocessor-sift",
    "sift-haystack": ROOT / "integrations/sift-haystack",
}
CLASSIFIER = "Programming Language :: Python :: 3."
CUDA = "nvidia-"  # begins the names of CUDA's packages
RUNS, RESOLVES, UNSUPPORTED, ABSENT = "runs", "resolves", "–", "no such Python"
NO_WHEELS, FAILED, NOT_ASKED = "no wheels", "FAILED", "not asked"


@dataclass(frozen=True, kw_only=True)
class Round:
    """Settings that all cells share.

    Attributes:
        dist: The folder of the four wheels.
        uv: The program.
        constraints: A file that pins torch and the four distributions.
        cuda: Whether CUDA's packages are installed too.
        pip: Whether pip installs the extras of a distribution together.
        said: Why cells are not what they should be, in order.
    """

    dist: Path
    uv: str
    constraints: Path
    cuda: bool
    pip: bool
    said: list[str] = field(default_factory=list)


def main() -> int:
    """Fill the table and print it; return 1 if anything failed."""
    arguments = _arguments()
    chosen = {name: _project(name) for name in arguments.only or FOLDERS}
    versions = arguments.pythons or sorted(
        {version for project in chosen.values() for version in _supported(project)},
        key=lambda version: int(version.partition(".")[2]),
    )
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text("\n".join(_pins()), encoding="utf-8")
        this = Round(
            dist=arguments.dist.resolve(),
            uv=_uv(),
            constraints=constraints,
            cuda=arguments.cuda,
            pip=not arguments.no_pip,
        )
        columns = [_column(this, version, chosen) for version in versions]
    print("\n" + _table(versions, columns))  # noqa: T201
    print("\n".join(this.said))  # noqa: T201
    return int(any(FAILED in column.values() for column in columns))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Install and run each extra in each Python.")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="the folder of the wheels")
    parser.add_argument("--pythons", nargs="+", metavar="PYTHON", help="versions or programs")
    parser.add_argument("--only", nargs="+", choices=list(FOLDERS), metavar="NAME")
    parser.add_argument("--no-pip", action="store_true", help="install by uv alone: minutes less")
    parser.add_argument("--cuda", action="store_true", help="install CUDA's packages too")
    return parser.parse_args()


def _pins() -> Iterator[str]:
    """Yield the versions that are not the newest: torch's, and those of the four wheels."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    yield from (pin for pin in pins if pin.startswith("torch=="))
    yield from (f"{name}=={_project(name)['version']}" for name in FOLDERS)


def _project(name: str) -> dict[str, Any]:
    import tomllib  # since Python 3.11, as `make` needs

    with (FOLDERS[name] / "pyproject.toml").open("rb") as file:
        project: dict[str, Any] = tomllib.load(file)["project"]
    return project


def _supported(project: dict[str, Any]) -> list[str]:
    """Return the versions of a distribution's classifiers, such as "3.12"."""
    named = [line for line in project["classifiers"] if line.startswith(CLASSIFIER)]
    return [line.rpartition(" ")[2] for line in named]


def _uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.is_file() else shutil.which("uv")
    if found is None:
        raise SystemExit("uv is not installed; run `make dist`, which installs it into .venv")
    return found


def _column(this: Round, python: str, chosen: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the outcome of each row in one Python."""
    found = subprocess.run(
        [this.uv, "python", "find", "--no-python-downloads", "--no-project", python],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        return dict.fromkeys((row for name in chosen for row in _rows(name, chosen[name])), ABSENT)
    program = found.stdout.strip()
    version = _output(program, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    column: dict[str, str] = {}
    for name, project in chosen.items():
        rows = list(_rows(name, project))
        if version not in _supported(project):
            column |= dict.fromkeys(rows, UNSUPPORTED)
            continue
        *single, together = rows
        outcomes = {row: _by_uv(this, program, version, row) for row in single}
        installable = [row for row in single if outcomes[row] not in (RESOLVES, NO_WHEELS)]
        by_pip = NOT_ASKED
        if this.pip and installable:
            by_pip = _by_pip(this, program, version, installable)
        column |= outcomes | {together: by_pip}
    return column


def _rows(name: str, project: dict[str, Any]) -> Iterator[str]:
    """Yield the requirements of a distribution's rows; the last stands for all, by pip."""
    yield name
    yield from (f"{name}[{extra}]" for extra in project.get("optional-dependencies", ()))
    yield f"{name}, all that runs, by pip"


def _by_uv(this: Round, python: str, version: str, requirement: str) -> str:
    """Install one requirement by uv into an environment of its own and run its probe."""
    options: list[str | Path] = ["--quiet", "--only-binary", ":all:", "--find-links", this.dist]
    for named in filter(None, os.environ.get("UV_FIND_LINKS", "").split(",")):
        options += ["--find-links", named]  # an option hides the variable
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder, "wanted.in")
        wanted.write_text(requirement)
        lock = Path(folder, "wanted.txt")
        resolved = _run(
            *(this.uv, "pip", "compile", wanted, "--constraint", this.constraints),
            *("--python", python, "--output-file", lock, *options),
        )
        where = f"{requirement}, Python {version}, uv"
        if resolved.returncode:
            this.said.append(f"{where}: {resolved.stderr.strip()}")
            return NO_WHEELS if "no wheels" in resolved.stderr else FAILED
        if CUDA in lock.read_text() and not this.cuda:
            return RESOLVES
        home = Path(folder, "env")
        _run(this.uv, "venv", "--quiet", "--no-project", "--python", python, home)
        there = home / "bin/python"
        installed = _run(
            this.uv, "pip", "install", "--python", there, "--requirement", lock, *options
        )
        return _outcome(this, where, installed, there, [requirement])


def _by_pip(this: Round, python: str, version: str, requirements: list[str]) -> str:
    """Install requirements together by pip into one environment and run all their probes."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "env")
        _run(this.uv, "venv", "--quiet", "--no-project", "--seed", "--python", python, home)
        there = home / "bin/python"
        wanted = ["--constraint", str(this.constraints), "--find-links", str(this.dist)]
        installed = _run(
            *(there, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"),
            *(*wanted, *requirements),
        )
        where = f"{requirements[0]}, Python {version}, pip"
        return _outcome(this, where, installed, there, requirements)


def _outcome(
    this: Round,
    where: str,
    installed: subprocess.CompletedProcess[str],
    python: Path,
    requirements: list[str],
) -> str:
    """Run the probes of what was installed; say what failed."""
    finished = installed
    for requirement in requirements:
        if finished.returncode == 0:
            finished = _run(python, "-I", _probe(requirement), cwd=python.parents[2])
    if finished.returncode:
        this.said.append(f"{where}: {finished.stdout[-2000:]}{finished.stderr[-2000:]}")
    outcome = FAILED if finished.returncode else RUNS
    print(f"{where}: {outcome}", flush=True)  # noqa: T201
    return outcome


def _probe(requirement: str) -> Path:
    """Return what uses an extra once, such as probes/sift-rerank/probe_faiss.py."""
    name, _, extra = requirement.rstrip("]").partition("[")
    return PROBES / name / f"probe_{extra or 'base'}.py"


def _run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    left_out = ("PYTHONPATH", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, env=environment
    )


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _table(versions: list[str], columns: list[dict[str, str]]) -> str:
    lines = [f"| | {' | '.join(versions)} |", "|---" * (1 + len(versions)) + "|"]
    for row in columns[0]:
        cells = " | ".join(column[row] for column in columns)
        lines.append(f"| {row} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
