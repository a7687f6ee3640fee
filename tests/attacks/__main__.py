"""Run the attacks in turn: `python -m tests.attacks --minutes 20 [--only KIND] [--seed S]`.

Each gets about as much time as any other. The table says what was tried and what did not hold,
with the seed that reproduces it (`--only ATTACK --seed S --minutes 0`); the exit code is 1 then.
"""

import argparse
import json
import random
import sys
import time
from dataclasses import asdict
from pathlib import Path

from tests.attacks.frame import Tally, attacks, table


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="0: each attack once")
    parser.add_argument("--only", action="append", help="a kind (damage) or attack (damage.faiss)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--json", type=Path, help="a file for the table")
    given = parser.parse_args()
    chosen = attacks(given.only)
    if not chosen:
        parser.error(f"there are {', '.join(attacks())}")
    tallies = [Tally(name) for name in chosen]
    end = time.monotonic() + 60 * given.minutes
    while time.monotonic() < end or not all(tally.n_tried for tally in tallies):
        tally = min(tallies, key=lambda one: (one.n_tried > 0, one.seconds))
        seed = given.seed + tally.n_tried
        if what := tally.attempt(chosen[tally.attack], seed):
            sys.stdout.write(f"{tally.attack} failed with seed {seed}: {what}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{table(tallies)}\nFirst seed: {given.seed}\n")
    if given.json:
        record = {"seed": given.seed, "attacks": [asdict(tally) for tally in tallies]}
        given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(any(tally.failures for tally in tallies))


if __name__ == "__main__":
    sys.exit(main())
