"""The documentation that every user of transformers has: the docstrings in its models' files.

Read with `ast`, so nothing is imported or run. Models that came one from another have the same
docstrings, word for word: one text stands in dozens of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from sift_core import Document, InvalidInputError

MAX_CHARACTERS = 400  # of a docstring's beginning; what it is about stands there
MIN_CHARACTERS = 30  # shorter ones say what the name says


def image_models() -> Path:
    """Return the folder of the models in the installed transformers."""
    spec = find_spec("transformers")
    if spec is None or spec.origin is None:
        raise InvalidInputError("transformers is not installed; pass --docs with a folder")
    return Path(spec.origin).parent / "models"


def model_files(folder: Path) -> list[Path]:
    """Return the modeling files of the models that take images."""
    files = sorted(folder.glob("*/modeling_*.py"))
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    families = {path.parent for path, text in texts.items() if "pixel_values" in text}
    return [path for path in files if path.parent in families]


def documents_of(path: Path) -> Iterator[Document]:
    """Yield the docstrings of a file's classes and functions, each under name and arguments."""
    for node in ast.parse(path.read_bytes()).body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef):
            continue
        docstring = ast.get_docstring(node)
        if docstring is None or len(docstring) < MIN_CHARACTERS:
            continue
        body = _beginning(docstring)
        yield Document(
            document_id=f"{path.stem}.{node.name}",
            text=f"{path.parent.name}.{node.name}{_signature(node)}\n\n{body}",
            metadata={"source": f"{path.parent.name}.{node.name}", "body": body},
        )


def _signature(node: ast.ClassDef | ast.FunctionDef) -> str:
    """Return a function's arguments, a class's of `__init__`; nothing where it has none."""
    if isinstance(node, ast.FunctionDef):
        return f"({', '.join(one.arg for one in node.args.args)})"
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            return f"({', '.join(one.arg for one in part.args.args[1:])})"
    return ""


def _beginning(docstring: str) -> str:
    """Return the first paragraphs that fit together; a long first one is cut."""
    kept = ""
    for paragraph in docstring.split("\n\n"):
        if kept and len(kept) + len(paragraph) + 2 > MAX_CHARACTERS:
            break
        kept = f"{kept}\n\n{paragraph}" if kept else paragraph[:MAX_CHARACTERS]
    return kept
