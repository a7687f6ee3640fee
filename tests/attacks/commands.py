"""Work in a forked process that is measured, killed or interrupted; and `sift` as such work."""

import os
import re
import resource
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass

import peft  # noqa: F401  # like the next, imported once for all
import sentence_transformers  # noqa: F401
import tqdm

import sift_core.cli.doctor
import sift_core.cli.index
import sift_core.cli.search
import sift_core.documents.html  # noqa: F401
from sift_core.cli import main
from tests.attacks.frame import HANG_S, Failed

STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
tqdm.tqdm.set_lock(threading.RLock())  # semaphores between processes would outlive the killed


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a process left behind: its exit code (-9: killed), its words, what it took at most."""

    code: int
    out: str
    err: str
    cpu_s: float
    grown_mb: float

    def checked(self, *codes):
        """Raise unless it ended as `sift` may: well, or with one line that says why not."""
        told = f"exit code {self.code}: {self.err[-300:]!r} {self.out[-100:]!r}"
        if steering := STEERING.search(self.out + self.err):
            raise Failed(f"{steering.group()!r} reached the terminal; {told}")
        if self.code not in (codes or (0, 2)) or "Traceback" in self.err or "defect" in self.err:
            raise Failed(told)
        n = sum(line.startswith("error: ") for line in self.err.splitlines())
        is_other = "Usage: " in self.err or "✗ " in self.out or '"faults"' in self.out
        if self.code in (1, 2) and n != 1 and not is_other:
            raise Failed(f"no single line of error; {told}")
        return self


def forked(work, folder, *, kill_after_s=HANG_S / 2, stdout=None):
    """Run something in a child of this process, and return how it ended.

    What it writes is noted beside the folder, or goes to `stdout`, for instance /dev/full.
    """
    out, err = folder.parent / "out", folder.parent / "err"
    for path in (out, err):
        path.write_bytes(b"")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _become(work, stdout or out, err)
    ended = 0
    while not ended:
        if time.monotonic() - started > kill_after_s:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)
        ended, status, usage = os.wait4(child, os.WNOHANG)
    return Ended(
        code=os.waitstatus_to_exitcode(status),
        out=out.read_text(errors="replace"),
        err=err.read_text(errors="replace"),
        cpu_s=usage.ru_utime + usage.ru_stime,
        grown_mb=max(usage.ru_maxrss - before, 0) / 1024,
    )


def _become(work, out, err):
    """Do the work with these files for standard streams, and end as Python would."""
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(out, os.O_WRONLY), 1)
        os.dup2(os.open(err, os.O_WRONLY), 2)
        sys.stdin = open(0, closefd=False)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
        code = work() or 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            sys.stderr.write("Traceback: Python could not flush stdout\n")
            code = 120
        sys.stderr.flush()
        os._exit(code)


def environment(folder, settings=()):
    """Return the variables of a user whose home is beside a folder, and who has no settings."""
    names = [name for name in os.environ if not name.startswith(("SIFT_", "XDG_", "QDRANT_"))]
    home = {"COLUMNS": "100", "TERM": "dumb", "HOME": str(folder.parent / "home")}
    return {**{name: os.environ[name] for name in names}, **home, **dict(settings)}


def sift(folder, *arguments, settings=(), **options):
    """Run `sift` in a folder, in a forked process; the options are those of `forked`."""

    def work():
        changed = environment(folder, settings)
        os.environ.clear()
        os.environ.update(changed)
        sys.argv = ["sift", *arguments]
        main()

    (folder.parent / "home").mkdir(exist_ok=True)
    return forked(work, folder, **options)


def write_cats(folder, numbers, says="Cats purr"):
    """Write a file a number into the folder's docs, each of one chunk."""
    (folder / "docs").mkdir(exist_ok=True)
    for i in numbers:
        (folder / f"docs/{i}.md").write_text(f"# Part {i}\n\n{says}, {i} times.\n")


def assert_cats(folder, numbers):
    """Raise unless `sift search` finds what was written."""
    found = sift(folder, "search", "How often do cats purr?", "-n", "60").checked(0)
    if any(f"Cats purr, {i} times" not in found.out for i in numbers):
        raise Failed(f"a text is missing or another: {found.out[:300]}")
