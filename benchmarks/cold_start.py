"""How long until something happens? `sift --help`, a search, `import sift_core` beside NumPy's own.

    python -m benchmarks.cold_start [--repetitions 15] [--json benchmarks/results/cold_start.json]

Each repetition starts one process of each kind after another, those that are quick four times, so
that what else the machine does meets all of them alike; the fastest of each counts, the median
stands beside it. Files are in the system's cache after the first round, which is not counted, and
so is the package's bytecode, as in an installation. The selection is of 10 among 200. Compiling is
measured once. The longest of 500 selections is the one that loads the loops if they are on disk.
The search is of a store with one chunk.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from benchmarks.options import options
from benchmarks.report import Report

SELECT = """
import numpy as np
from sift_core import load_compiled, select
{}
rows = np.random.default_rng(0).standard_normal((200, 384)).astype(np.float32)
select(rows[0], rows[1:], 10)
"""
LOADED = SELECT.format("load_compiled()")
SELECTING_ON = """
import time
longest = 0.0
for _ in range(500):
    begin = time.perf_counter()
    select(rows[0], rows[1:], 10)
    longest = max(longest, time.perf_counter() - begin)
print(1000 * longest)
"""
COMMANDS = {
    "python": ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import sift_core": ["-c", "import sift_core"],
    "from sift_core import select": ["-c", "from sift_core import select"],
    "one selection": ["-c", SELECT.format("")],
    "one selection, compiled loops loaded": ["-c", LOADED],
    "sift --help": ["-m", "sift_core.cli", "--help"],
    "sift search": ["-m", "sift_core.cli", "search", "a question"],
}
# The others are started as many times more often: on a noisy machine the fastest of fifteen still
# differs by 20 ms from the next fifteen's, which is half of what an import may take.
SLOW = {"one selection, compiled loops loaded", "sift search"}
QUICK_TIMES = 4


def seconds(arguments: list[str], **environment: str) -> float:
    """Return how long a process of this Python takes from start to end."""
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - begin


@contextmanager
def indexed_folder() -> Iterator[None]:
    """Stand in a folder that `sift index` has indexed."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("one.txt").write_text("The only text.\n", encoding="utf-8")
        seconds(["-m", "sift_core.cli", "index", "one.txt"])
        yield


def compiled_anew() -> float:
    """Return what the loops take where nothing compiled is on disk, in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        return 1000 * seconds(["-c", LOADED], NUMBA_CACHE_DIR=folder)


def longest_selection(**environment: str) -> float:
    """Return the longest of 500 selections of a process after its first, in milliseconds."""
    found = subprocess.run(
        [sys.executable, "-c", SELECT.format("") + SELECTING_ON],
        check=True,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
    )
    return float(found.stdout)


def measure(repetitions: int) -> dict[str, list[float]]:
    """Return the times of every command, in milliseconds, in the order of the rounds."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for i in range(-1, repetitions):
        for j in range(QUICK_TIMES):
            for name, arguments in COMMANDS.items():
                if j == 0 or name not in SLOW:
                    found = 1000 * seconds(arguments)
                    if i >= 0:
                        times[name].append(found)
    return times


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--repetitions", type=int, default=15)
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process compiles the package
    report = Report(section="cold_start")
    seconds(["-c", "import sift_core; sift_core.load_compiled()"])  # puts the loops on disk
    with indexed_folder():
        times = measure(arguments.repetitions)
    times["one selection, loops compiled first"] = [compiled_anew()]
    longest = "the longest of 500 selections, loops on disk"
    times[longest] = [longest_selection() for _ in range(arguments.repetitions)]
    with tempfile.TemporaryDirectory() as folder:
        times["the longest of 500 selections, no loops"] = [
            longest_selection(NUMBA_CACHE_DIR=folder) for _ in range(arguments.repetitions)
        ]
    fastest = {name: min(found) for name, found in times.items()}
    report.heading("fastest of each, and median")
    for name, found in times.items():
        median_ms = round(statistics.median(found), 1)
        report.add(case=name, ms=round(fastest[name], 1), median_ms=median_ms)
    report.heading("Bars")
    report.judge("sift --help, ms", fastest["sift --help"], "help_ms", "lower")
    report.judge("sift search, ms", fastest["sift search"], "search_ms", "lower")
    for name in ("import sift_core", "from sift_core import select"):
        over = fastest[name] - fastest["import numpy"]
        report.judge(f"{name} beyond import numpy, ms", over, "import_over_numpy_ms", "lower")
    first = fastest["one selection"] - fastest["from sift_core import select"]
    report.judge("the first selection of a process, ms", first, "first_selection_ms", "lower")
    report.judge(f"{longest}, ms", fastest[longest], "longest_selection_ms", "lower")
    report.finish(arguments.json, ["numpy", "numba", "typer", "rich", "sift-rerank"])


if __name__ == "__main__":
    main()
