"""Says whether a tag can be published: `python .ci/releasable.py v0.1.0`.

The tag names the version of all four distributions, of CITATION.cff and of a section of
CHANGELOG.md, and no address stands for the repository's any more. Exits with 1 and the reasons
otherwise. Needs Python 3.11 and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACEHOLDER = "https://sift-rerank.example"  # nobody's: .example is reserved by RFC 2606


def reasons(tag: str, root: Path = ROOT) -> Iterator[str]:
    """Yield what keeps a tag from being published."""
    import tomllib  # since Python 3.11

    version = tag.removeprefix("v")
    if version == tag:
        yield f"the tag must begin with v, got {tag!r}"
    for path in sorted([root / "pyproject.toml", *root.glob("integrations/*/pyproject.toml")]):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(root)
        if (found := tomllib.loads(text)["project"]["version"]) != version:
            yield f"{name} has version {found}, the tag {version}"
        if PLACEHOLDER in text:
            yield f"{name} names {PLACEHOLDER}; put in the repository's address"
    for file, line in (
        ("CITATION.cff", f"version: {version}"),
        ("CHANGELOG.md", f"## [{version}]"),
    ):
        if not any(
            found.split(" - ")[0] == line
            for found in (root / file).read_text(encoding="utf-8").splitlines()
        ):
            yield f"{file} has no line {line!r}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python .ci/releasable.py TAG")
    sys.exit("\n".join(reasons(sys.argv[1])) or None)
