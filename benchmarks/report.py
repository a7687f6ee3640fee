"""What one run of a benchmark found: rows, bars and what was skipped, printed as they come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.bars import bar, in_words


@dataclass(kw_only=True)
class Report:
    """Collects rows and bars; the numbers of the bars come from one section of bars.toml."""

    bar_numbers: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    bars: list[dict[str, Any]] = field(default_factory=list)

    def heading(self, text: str) -> None:
        print(f"\n{text}", flush=True)

    def times(self, case: str, data: str, ours: str, times_ms: dict[str, float]) -> None:
        """Add and print one row a method, with its time over that of `ours`."""
        for method, ms in times_ms.items():
            over_ours = ms / times_ms[ours]
            self.rows.append(
                {
                    "case": case,
                    "data": data,
                    "method": method,
                    "ms": round(ms, 4),
                    "over_ours": round(over_ours, 3),
                }
            )
            print(f"  {data:>8} {ms:>9.3f} ms {over_ours:>8.2f}×  {method}", flush=True)

    def judge(
        self, name: str, value: float, key: str, better: Literal["higher", "lower"] = "higher"
    ) -> None:
        """Add and print a bar whose number stands under `key`."""
        self.bars.append(bar(name, value, self.bar_numbers[key], better))
        print(f"  {in_words(self.bars[-1])}", flush=True)

    def skip(self, case: str, reason: str) -> None:
        """Add and print a row that says why nothing was measured."""
        self.rows.append({"case": case, "skipped": reason})
        print(f"  skipped: {reason}", flush=True)

    def summarize(self) -> None:
        """Print every bar once more, together."""
        self.heading("Bars")
        for record in self.bars:
            print(f"  {in_words(record)}")
        for row in self.rows:
            if "skipped" in row:
                print(f"  {row['case']}: skipped, {row['skipped']}")
