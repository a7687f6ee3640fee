"""Tests each integration with the oldest and the newest framework that it supports.

A cell is one integration with one set of versions: `NAME.txt` here lists what is installed
beside it, and its environment is `.cache/matrix/NAME`, made anew where that list, what the
distributions require or the Python has changed, and with --fresh: "newest" is what was newest
when the environment was made. Run `make test-matrix`, or

    python integrations/matrix/run.py [--only NAME ...] [--fresh]

with the Python that the environments shall have. Ends with a table of versions and outcomes
and, below it, why tests were skipped. The exit status is 1 if a test failed.

Warnings are errors in every cell but for what `TOLERATED` names.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import subprocess
import sys
import venv
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache" / "matrix"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """An integration and the versions it is tested with.

    Attributes:
        name: Of the requirements file and of the environment.
        folder: The integration's folder in `integrations/`.
        shown: Packages whose versions the table has.
    """

    name: str
    folder: str
    shown: tuple[str, ...]

    @property
    def home(self) -> Path:
        """Where the environment is."""
        return CACHE / self.name

    @property
    def python(self) -> str:
        """The environment's interpreter."""
        return str(self.home / "bin" / "python")

    @property
    def report(self) -> Path:
        """Where pytest writes the outcomes."""
        return self.home.with_suffix(".xml")


LLAMA_INDEX = "llama-index-postprocessor-sift"
LANGCHAIN = "langchain-sift"
HAYSTACK = "sift-haystack"
STORES = ("qdrant-client", "faiss-cpu", "numpy", "pydantic", "torch")
CELLS = [
    Cell(
        name=f"{framework}-{age}",
        folder=folder,
        shown=(f"{framework}-core", *(f"{framework}-{part}" for part in parts), *STORES),
    )
    for framework, folder, parts in (
        ("llama-index", LLAMA_INDEX, ("vector-stores-qdrant", "vector-stores-faiss")),
        ("langchain", LANGCHAIN, ("qdrant", "community", "tests")),
    )
    for age in ("oldest", "newest")
]
CELLS += [
    Cell(name=f"haystack-{age}", folder=HAYSTACK, shown=("haystack-ai", "qdrant-haystack", *STORES))
    for age in ("oldest", "newest")
]

# Said by Faiss's own extension module on import; Faiss 1.11 crashes where it is an error.
TOLERATED = ("ignore:builtin type:DeprecationWarning",)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the tests of a cell came to; `skips` counts the reasons."""

    cell: Cell
    versions: str
    passed: int
    failed: int
    skips: Counter[str]
    status: int


def main() -> int:
    """Test the cells asked for; return 1 if a test failed or an environment cannot be made."""
    arguments = _arguments()
    outcomes = []
    for cell in CELLS:
        if not arguments.only or cell.name in arguments.only:
            print(f"== {cell.name}", flush=True)  # noqa: T201
            _prepare(cell, fresh=arguments.fresh)
            outcomes.append(_test(cell))
    print("\n" + _table(outcomes))  # noqa: T201
    return int(any(outcome.status != 0 for outcome in outcomes))


def _arguments() -> argparse.Namespace:
    names = [cell.name for cell in CELLS]
    parser = argparse.ArgumentParser(description="Test the integrations with several versions.")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--fresh", action="store_true", help="make the environments anew")
    return parser.parse_args()


def _prepare(cell: Cell, *, fresh: bool) -> None:
    """Make the cell's environment, unless one of the same description is there."""
    described = _description(cell)
    stamp = cell.home / ".description"
    if not fresh and stamp.is_file() and stamp.read_text(encoding="utf-8") == described:
        return
    venv.create(cell.home, clear=True, with_pip=True)
    # Torch alone and first, as in the Makefile: where pip knows of a CPU wheel it takes that,
    # not the CUDA build.
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    _pip(cell, *(pin for pin in pins if pin.startswith("torch==")))
    # Editable: the environment then stays right when the code changes.
    _pip(
        cell,
        *("--editable", f"{ROOT}[faiss,fine-tune,qdrant]"),
        *("--editable", str(ROOT / "integrations" / cell.folder)),
        *("--requirement", str(HERE / f"{cell.name}.txt")),
    )
    stamp.write_text(described, encoding="utf-8")


def _description(cell: Cell) -> str:
    """Return a digest of all that decides what is in the environment."""
    listed = (HERE / f"{cell.name}.txt").read_text(encoding="utf-8")
    needed = [_requirements(folder) for folder in (ROOT, ROOT / "integrations" / cell.folder)]
    parts = [sys.version, listed, *needed]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _requirements(folder: Path) -> str:
    """Return what a distribution needs; Python 3.10 cannot read TOML and has all of the file."""
    text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    if sys.version_info < (3, 11):
        return text
    import tomllib

    project = tomllib.loads(text)["project"]
    return repr([project["dependencies"], project.get("optional-dependencies")])


def _pip(cell: Cell, *wanted: str) -> None:
    command = [cell.python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*command, *wanted], check=True)


def _test(cell: Cell) -> Outcome:
    tolerated = [option for warning in TOLERATED for option in ("-W", warning)]
    cell.report.unlink(missing_ok=True)
    # From the root: its pyproject.toml configures pytest, and tests share servers in tests/.
    run = subprocess.run(
        [
            *(cell.python, "-m", "pytest", f"integrations/{cell.folder}/tests", "-q"),
            *("--continue-on-collection-errors", "-p", "no:cacheprovider"),
            *(f"--junitxml={cell.report}", *tolerated),
        ],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        check=False,
    )
    return _outcome(cell, run.returncode)


def _outcome(cell: Cell, status: int) -> Outcome:
    cases = ElementTree.parse(cell.report).iter("testcase") if cell.report.is_file() else ()
    passed = failed = 0
    skips: Counter[str] = Counter()
    for case in cases:
        skipped = case.find("skipped")
        if skipped is not None:
            skips[_reason(skipped)] += 1
        elif case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        else:
            passed += 1
    return Outcome(
        cell=cell,
        versions=_versions(cell),
        passed=passed,
        failed=failed,
        skips=skips,
        status=status,
    )


def _reason(skipped: ElementTree.Element) -> str:
    """Return why a test or a file was skipped; pytest has a file's reason inside a tuple."""
    said = skipped.get("message") or ""
    if said == "collection skipped":
        said = (skipped.text or "").rpartition("Skipped: ")[2].rstrip("')\n")
    return said


def _versions(cell: Cell) -> str:
    """Return the installed versions of what the table shows; what is not there is left out."""
    listed = subprocess.run(
        [cell.python, "-m", "pip", "--disable-pip-version-check", "list", "--format=freeze"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    installed = dict(line.split("==") for line in listed if "==" in line)
    found = [f"{name} {installed[name]}" for name in cell.shown if name in installed]
    return ", ".join([f"Python {platform.python_version()}", *found])


def _table(outcomes: list[Outcome]) -> str:
    lines = ["| cell | passed | failed | skipped | versions |", "|---|---|---|---|---|"]
    lines += [
        f"| {of.cell.name} | {of.passed} | {of.failed} | {of.skips.total()} | {of.versions} |"
        for of in outcomes
    ]
    for of in outcomes:
        if of.status not in (0, 1):
            lines.append(f"\n{of.cell.name}: pytest ended with status {of.status}")
        if of.skips:
            lines.append(f"\n{of.cell.name} skipped:")
            lines += [f"  {n} × {reason}" for reason, n in of.skips.most_common()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
