"""Ctrl-C at random moments: no traceback of ours, and the store is as it was or goes on."""

import os
import signal
import subprocess
import sys
import time

from tests.attacks.commands import STEERING, environment, sift
from tests.attacks.frame import HANG_S, Failed

SEARCH = ("search", "How often do cats purr?", "-n", "60")
COMMANDS = (("index", "docs"), SEARCH, ("search", "cats", "--json"), ("doctor",), ("--help",))
CODE = "from sift_core.cli import main; main()"


def interrupted(rng, folder):
    """A real process of `sift`, interrupted once or twice, half of the time while it starts."""
    docs = folder / "docs"
    docs.mkdir()
    for i in range(20):
        (docs / f"{i}.md").write_text(f"# Part {i}\n\nCats purr, {i} times.\n")
    sift(folder, "index", "docs").checked(0)
    for i in range(10, 60):
        (docs / f"{i}.md").write_text(f"# Part {i}\n\nDogs bark, {i} times.\n")
    command, pipe = rng.choice(COMMANDS), subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *command],
        **{"cwd": folder, "env": environment(folder), "text": True},
        **{"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe},
    )
    if rng.random() < 0.5:
        wait_for_imports(process, rng.uniform(0, 3e8))
    else:
        time.sleep(rng.uniform(0.5, 8))
    for _ in range(rng.choice([1, 1, 1, 2])):
        process.send_signal(signal.SIGINT)
        time.sleep(rng.uniform(0, 0.2))
    out, err = process.communicate(timeout=HANG_S / 2)
    told = f"{command}: exit code {process.returncode}, {err[-600:]!r}"
    # Before our first line runs, a traceback is Python's own.
    is_pythons = "Traceback" in err and "sift_core" not in err and "<string>" not in err
    is_fine = "Traceback" not in err and process.returncode in (0, 130, -signal.SIGINT)
    if not (is_fine or is_pythons) or STEERING.search(out + err):
        raise Failed(told)
    found = sift(folder, *SEARCH).checked(0)
    if any(f"Cats purr, {i} times" not in found.out for i in range(10)):
        raise Failed(f"{told}; then lost: {found.out}")
    again = sift(folder, "index", "docs", "--json").checked(0)
    if '"n_chunks": 60' not in again.out:
        raise Failed(f"{told}; then {again.out[:200]}")


def wait_for_imports(process, n_bytes):
    """Wait until a process has so much memory, or has ended: a moment of its start."""
    while process.poll() is None:
        with open(f"/proc/{process.pid}/statm") as file:
            if int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >= n_bytes:
                return
        time.sleep(0.002)


ATTACKS = {"interrupted": interrupted}
