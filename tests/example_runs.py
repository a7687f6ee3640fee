"""Runs the demo, and then every example over what it left behind, in one fresh interpreter.

    python -W error tests/example_runs.py FOLDER

Most of an example's time goes into importing torch and the frameworks, so they share that; else
each runs as if alone: as `__main__`, with its own arguments, working directory and output, over
its own copy of the demo's cache (a Qdrant folder is for one client). FOLDER/docs is what the demo
reads; FOLDER/NAME.out, NAME.err and, last, NAME.code are what a script printed and returned.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
HELPERS = {
    "demo_answers",
    "demo_pace",
    "demo_questions",
    "demo_report",
    "demo_store",
    "python_docs",
    "transformers_docs",
}
NEED_MORE = {"demo", "index_with_ray"}  # the first comes first; the other wants a server
QUESTION = "How is stochastic depth computed?"
LIMIT_S = 600


def example_names() -> list[str]:
    """Return the examples that need no argument."""
    return sorted({path.stem for path in EXAMPLES.glob("*.py")} - HELPERS - NEED_MORE)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What a script returned and printed."""

    returncode: int
    stdout: str
    stderr: str


class ExampleRuns:
    """All of them, under way: each result can be had as soon as it is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", __file__, str(folder)],
            env={**os.environ, "COLUMNS": "140", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        )

    def of(self, name: str) -> Finished:
        """Wait until a script has ended, and return what it did."""
        code = self.folder / f"{name}.code"
        end = time.monotonic() + LIMIT_S
        while not code.exists():
            has_ended = self._process.poll() is not None and not code.exists()
            if has_ended or time.monotonic() > end:
                raise TimeoutError(f"{name} has not ended; {self._process.returncode=}")
            time.sleep(0.05)
        return Finished(
            returncode=int(code.read_text()),
            stdout=(self.folder / f"{name}.out").read_text(encoding="utf-8"),
            stderr=(self.folder / f"{name}.err").read_text(encoding="utf-8"),
        )

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def output_in(folder: Path, name: str) -> Iterator[None]:
    """Send what is printed to files, also by code that is not Python's."""
    streams = [(sys.stdout, 1, folder / f"{name}.out"), (sys.stderr, 2, folder / f"{name}.err")]
    kept = [os.dup(number) for _, number, _ in streams]
    for _, number, path in streams:
        with path.open("wb") as file:
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        for (stream, number, _), old in zip(streams, kept, strict=True):
            stream.flush()
            os.dup2(old, number)
            os.close(old)


def run_script(folder: Path, name: str, cwd: Path, *arguments: str) -> int:
    os.chdir(cwd)  # nothing may depend on the folder that one stands in
    sys.argv = [str(EXAMPLES / f"{name}.py"), *arguments]
    code = 0
    with output_in(folder, name):
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as stop:
            if isinstance(stop.code, str):
                sys.stderr.write(stop.code)
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except BaseException:
            traceback.print_exc()
            code = 1
    return code


def tell(folder: Path, name: str, code: int) -> None:
    """Say that a script has ended, all or nothing."""
    part = folder / f"{name}.part"
    part.write_text(str(code))
    part.replace(folder / f"{name}.code")


def main(folder: Path) -> None:
    sys.path[:1] = [str(EXAMPLES), str(EXAMPLES.parent)]
    from tests.random_model import save_random_model

    cache = folder / "cache"
    os.environ["SIFT_DEMO_MODEL"] = str(save_random_model(folder / "model", window=2048))
    arguments = ["--docs", str(folder / "docs"), "--cache", str(cache), "--question", QUESTION]
    code = run_script(folder, "demo", folder, *arguments)
    copies = {name: folder / "copies" / name for name in example_names()}
    for copy in copies.values():
        shutil.copytree(cache, copy)
    tell(folder, "demo", code)  # from here on the cache is the tests'
    for name, copy in copies.items():
        os.environ["SIFT_DEMO_CACHE"] = str(copy)
        tell(folder, name, run_script(folder, name, copy))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
