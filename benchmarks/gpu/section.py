"""One section in this process, which writes each row to a file at once.

    python -m benchmarks.gpu.section NAME --rows FILE [--dry-run]

`benchmarks.gpu` starts it. What a section does to the device, and a crash, end with its process.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from transformers.utils import logging

from benchmarks.report import Report


@dataclass(kw_only=True)
class StreamedReport(Report):
    """A report that appends each row and bar to a file, a line of JSON each."""

    file: Path

    def add(self, **row: Any) -> None:
        super().add(**row)
        self._append("rows", row)

    def judge(
        self, name: str, value: float, key: str, better: Literal["higher", "lower"] = "higher"
    ) -> None:
        super().judge(name, value, key, better)
        self._append("bars", self.bars[-1])

    def _append(self, kind: str, content: dict[str, Any]) -> None:
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({kind: content}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="a module of benchmarks.gpu that has `measure`")
    parser.add_argument("--rows", type=Path, required=True, help="file to append to")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on the CPU")
    arguments = parser.parse_args()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    device = torch.device("cpu" if arguments.dry_run else "cuda:0")
    if arguments.dry_run:
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(device)
    report = StreamedReport(section="gpu", file=arguments.rows)
    section = import_module(f"benchmarks.gpu.{arguments.name}")
    section.measure(report, device, tiny=arguments.dry_run)


if __name__ == "__main__":
    main()
