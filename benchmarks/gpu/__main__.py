"""Measure on one GPU, in at most twelve minutes, what a CPU cannot tell.

    python -m benchmarks.gpu [--minutes 12] [--only NAME ...] [--dry-run] [--json FILE]

Sections run one after another, each in a process of its own with a time limit, and the record has
each row as soon as it is known. `python -m benchmarks.gpu.carrying` packs beforehand what the
machine lacks, and this unpacks it. `--dry-run` takes the same path with tiny sizes on the CPU.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import torch

from benchmarks.gpu.carrying import FOLDER, ROOT, install, prepared_commit
from benchmarks.gpu.running import Record, Section, run
from benchmarks.records import environment

PACKAGES = ["torch", "transformers", "peft", "numpy", "numba", "faiss-cpu", "faiss-gpu-cu12"]
LIMITS_S = {  # of each section; the last one takes what is left
    "device": 60,
    "selection": 120,
    "faiss_source": 120,
    "fine_tuning": 210,
    "query": 150,
    "completion": 600,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=12, help="for everything. Default: 12")
    parser.add_argument("--only", nargs="+", choices=LIMITS_S, default=[*LIMITS_S], help="sections")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on the CPU")
    parser.add_argument("--carried", type=Path, default=FOLDER, help="default: .cache/gpu")
    parser.add_argument("--json", type=Path, required=True, help="where to write the record")
    arguments = parser.parse_args()
    until = time.monotonic() + 60 * arguments.minutes
    if not (arguments.dry_run or torch.cuda.is_available()):
        parser.error("PyTorch finds no CUDA device here; --dry-run needs none")
    site, failures = install(arguments.carried)
    sys.path.insert(0, str(site))  # so that the record has the versions of what was carried
    made_with = environment(PACKAGES, folder=Path(__file__).parent)
    if made_with["commit"] == "unknown":
        made_with["commit"] = prepared_commit(arguments.carried)
    record = Record(path=arguments.json, made_with=made_with)
    record.rows += [{"section": "carrying", "skipped": failure} for failure in failures]
    dry = ["--dry-run"] if arguments.dry_run else []
    command = [sys.executable, "-m", "benchmarks.gpu.section", *dry]
    sections = [
        Section(name=name, limit_s=LIMITS_S[name], command=[*command, name, "--rows"])
        for name in arguments.only
    ]
    paths = os.pathsep.join([str(ROOT), str(site), os.environ.get("PYTHONPATH", "")])
    is_good = run(
        sections,
        record,
        until=until,
        environ={**os.environ, "PYTHONPATH": paths},
    )
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
