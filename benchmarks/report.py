"""What one run of a benchmark found: rows, bars and what was skipped, printed as they come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.bars import bar, in_words, load_bars
from benchmarks.records import write_record


@dataclass(kw_only=True)
class Report:
    """Collects rows and bars; the numbers of the bars come from one section of bars.toml."""

    section: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    bars: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bar_numbers = load_bars(self.section) if self.section else {}

    def heading(self, text: str) -> None:
        print(f"\n{text}", flush=True)

    def add(self, **row: Any) -> None:
        """Add a row and print it."""
        self.rows.append(row)
        cells = (
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in row.items()
        )
        print(f"  {', '.join(cells)}", flush=True)

    def times(self, case: str, data: str, ours: str, times_ms: dict[str, float]) -> None:
        """Add and print one row a method, with its time over that of `ours`."""
        for method, ms in times_ms.items():
            over_ours = round(ms / times_ms[ours], 3)
            self.add(case=case, data=data, method=method, ms=round(ms, 4), over_ours=over_ours)

    def judge(
        self, name: str, value: float, key: str, better: Literal["higher", "lower"] = "higher"
    ) -> None:
        """Add and print a bar whose number stands under `key`."""
        self.bars.append(bar(name, value, self.bar_numbers[key], better))
        print(f"  {in_words(self.bars[-1])}", flush=True)

    def skip(self, case: str, reason: str) -> None:
        """Add and print a row that says why nothing was measured."""
        self.add(case=case, skipped=reason)

    def finish(self, path: Path | None, packages: Sequence[str]) -> None:
        """Print every bar once more, and write the record if there is a path."""
        if self.bars:
            self.heading("Bars")
        for record in self.bars:
            print(f"  {in_words(record)}")
        for row in self.rows:
            if "skipped" in row:
                print(f"  {row['case']}: skipped, {row['skipped']}")
        if path is not None:
            write_record(path, rows=self.rows, bars=self.bars, packages=[*packages])
