"""Attempts, each in a process of its own: what it does to itself is seen, and hurts no other.

The promise is the right result or an error of ours, and no loss of what was stored. A kind is a
module whose `ATTACKS` are functions `attack(rng, folder)`, called in an empty current folder,
which raise `Failed`, or anything else, where that does not hold.
"""

import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

KINDS = ["fuzz", "kill", "full_disk", "damage", "injection", "hostile"]
HANG_S = 600  # no attempt takes as long, on a busy machine either

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([f"tests.attacks.{kind}" for kind in KINDS])


class Failed(Exception):
    """A promise that did not hold."""


@dataclass
class Tally:
    """What became of the attempts of one attack; `failures` are seeds by what failed."""

    attack: str
    n_tried: int = 0
    seconds: float = 0.0
    failures: dict[str, list[int]] = field(default_factory=dict)

    def attempt(self, attack, seed):
        """Try, note and return what failed, "" if nothing did."""
        started = time.monotonic()
        what = outcome(attack, seed)
        self.seconds += time.monotonic() - started
        self.n_tried += 1
        if what:  # under the first that differs in a number or in its end alone
            kinds = {re.sub(r"\d+", "", known)[:60]: known for known in self.failures}
            known = kinds.get(re.sub(r"\d+", "", what)[:60], what)
            self.failures.setdefault(known, []).append(seed)
        return what


def attacks(only=None):
    """Return the attacks by name, "damage.faiss"; all, or those of some kinds or names."""
    found = {}
    for kind in KINDS:
        for attack in import_module(f"tests.attacks.{kind}").ATTACKS:
            name = f"{kind}.{attack.__name__}"
            if not only or kind in only or name in only:
                found[name] = attack
    return found


def outcome(attack, seed):
    """Return what failed in one attempt, "" where all held; the same seed, the same attempt."""
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    end, other = _processes.Pipe(duplex=False)
    process = _processes.Process(target=_attempted, args=(attack, seed, folder, other))
    process.start()
    other.close()
    try:
        told = end.recv() if end.poll(HANG_S) else f"no end in {HANG_S} s"
    except EOFError:
        process.join()
        log = (folder / "log").read_text(errors="replace")[-300:]
        told = f"the process died with exit code {process.exitcode}: {log}"
    with suppress(ProcessLookupError):  # with what it has started
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    sys.setrecursionlimit(20_000)  # to remove folders of any depth
    shutil.rmtree(folder, ignore_errors=True)
    return " ".join(told.replace(str(folder), "…").split())[:400]


def _attempted(attack, seed, folder, pipe):
    os.setpgid(0, 0)
    for number in (1, 2):
        os.dup2(os.open(folder / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
    here, told = folder / "here", ""
    here.mkdir()
    os.chdir(here)
    try:
        attack(random.Random(seed), here)
    except Failed as failed:
        told = str(failed)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        last = ([one for one in frames if "/sift_core/" in one.filename] or frames)[-1]
        told = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {error}"
    pipe.send(told)
    signal.pause()  # until killed, with all that was started


def table(tallies):
    """Return attack × number tried × outcome, and the seeds of what failed."""
    lines = [f"{'attack':<28} {'tried':>7} {'seconds':>8}  outcome"]
    notes = []
    for tally in tallies:
        n = sum(map(len, tally.failures.values()))
        end = f"{n} FAILED" if n else "held"
        lines.append(f"{tally.attack:<28} {tally.n_tried:>7,} {tally.seconds:>8.0f}  {end}")
        for what, seeds in tally.failures.items():
            notes.append(f"--only {tally.attack} --seed {seeds[0]} (also {seeds[1:5]})\n  {what}")
    return "\n".join([*lines, *notes])
