"""The documentation that every Python carries: docstrings of its own standard library.

Read with `ast`, so nothing is imported or run. Long docstrings are cut at blank lines.
"""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from sift_core import Document, InvalidInputError

MAX_CHARACTERS = 1000  # of a chunk; all-MiniLM-L6-v2 reads 256 tokens, about this much
MIN_CHARACTERS = 40  # of a docstring; shorter ones say what the name says
SKIPPED_FOLDERS = {
    "__pycache__",
    "dist-packages",
    "distutils",  # these and the next three: a fifth of the text, of no use to most scripts
    "idle_test",
    "idlelib",
    "lib2to3",
    "site-packages",
    "test",
    "tests",
    "tkinter",
}

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def standard_library() -> Path:
    """Return the folder of the running interpreter's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def python_files(folder: Path) -> list[Path]:
    """Return the modules below a folder, tests and installed packages left out.

    Raises:
        InvalidInputError: If the folder is not there or holds no Python file.
    """
    if not folder.is_dir():
        raise InvalidInputError(f"no such folder: {str(folder)!r}; pass one with Python files")
    files = [
        path
        for path in sorted(folder.rglob("*.py"))
        if not SKIPPED_FOLDERS & set(path.relative_to(folder).parts)
    ]
    if not files:
        raise InvalidInputError(
            f"no Python file below {str(folder)!r}; pass a folder with documented modules"
        )
    return files


def documents_of(path: Path, folder: Path) -> Iterator[Document]:
    """Yield a module's docstrings as chunks; a file that does not parse has none.

    A definition that stands twice with one docstring, under `if` and `else`, counts once.
    """
    module = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # templates and files in odd encodings
        return
    seen: set[str] = set()
    for name, node in _definitions(tree, module):
        docstring = ast.get_docstring(node)
        if docstring is None or len(docstring) < MIN_CHARACTERS:
            continue
        title = name + _signature(node)
        for part, text in enumerate(_parts(docstring), start=1):
            chunk = f"{title}\n\n{text}"
            if chunk in seen:
                continue
            seen.add(chunk)
            yield Document(
                document_id=f"{name}#{part}",
                text=chunk,
                metadata={"name": name, "part": part, "body": text},
            )


def _definitions(node: ast.AST, name: str) -> Iterator[tuple[str, Definition]]:
    """Yield a module, its classes and functions, and theirs, with dotted names.

    Also those under `if`, `try` and `with`, and inside functions.
    """
    if isinstance(node, Definition):
        yield name, node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _definitions(child, f"{name}.{child.name}")
        elif isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from _definitions(child, name)


def _signature(node: Definition) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return f"({ast.unparse(node.args)})"
    return ""


def _parts(docstring: str) -> Iterator[str]:
    """Yield a docstring in pieces of whole paragraphs; one long paragraph stays whole."""
    piece = ""
    for paragraph in docstring.split("\n\n"):
        if piece and len(piece) + len(paragraph) + 2 > MAX_CHARACTERS:
            yield piece
            piece = ""
        piece = f"{piece}\n\n{paragraph}" if piece else paragraph
    if piece.strip():
        yield piece
