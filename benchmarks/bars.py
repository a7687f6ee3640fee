"""What a benchmark must reach: the numbers of bars.toml, and whether a value reaches one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10; pytest brings this one there
    import tomli as tomllib

BARS = Path(__file__).with_name("bars.toml")


def load_bars(section: str) -> dict[str, Any]:
    """Return the bars of one benchmark, name → number.

    Raises:
        KeyError: If bars.toml has no such section.
    """
    return tomllib.loads(BARS.read_text(encoding="utf-8"))[section]


def bar(
    name: str, value: float, bar: float, better: Literal["higher", "lower"]
) -> dict[str, object]:
    """Return the record of one bar; a value equal to the bar passes, NaN never does."""
    if better not in ("higher", "lower"):
        raise ValueError(f'`better` must be "higher" or "lower", got {better!r}')
    passes = value >= bar if better == "higher" else value <= bar
    return {"name": name, "value": value, "bar": bar, "better": better, "pass": bool(passes)}


def in_words(record: dict[str, Any]) -> str:
    """Return one line: name, value, bar, and pass or by how much it falls short."""
    sign = ">=" if record["better"] == "higher" else "<="
    line = f"{record['name']}: {record['value']:.4g} (bar {sign} {record['bar']:g})"
    if record["pass"]:
        return f"{line}  pass"
    short = abs(record["value"] - record["bar"])
    share = f" ({short / record['bar']:.0%})" if record["bar"] else ""
    return f"{line}  falls short by {short:.3g}{share}"
