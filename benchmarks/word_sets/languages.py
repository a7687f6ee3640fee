"""German, Chinese and Python, with twenty questions each, written by hand before any search.

Half of the questions need one passage, half need two. The shared corpora have no German and no
Chinese, so short encyclopedic passages were written, too: 60 in German and 61 in Chinese, each
on a subject that resembles those of others. Python is 47 files of CPython 3.11.7's library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sift_core.documents import Chunker
from sift_core.errors import InvalidInputError
from sift_core.evaluation.data import Passage, Question, RetrievalSet, read_json_lines

CHUNK_CHARACTERS = 1600  # about 40 lines
PYTHON_SOURCE = "cpython-3.11.7:Lib/"
PYTHON_FILES = (
    "asyncio/locks.py asyncio/staggered.py asyncio/threads.py cmd.py code.py copyreg.py crypt.py "
    "dbm/__init__.py dbm/dumb.py fnmatch.py genericpath.py getopt.py glob.py graphlib.py gzip.py "
    "hashlib.py heapq.py html/__init__.py json/decoder.py json/encoder.py json/tool.py "
    "multiprocessing/pool.py nturl2path.py numbers.py optparse.py pkgutil.py platform.py "
    "plistlib.py pprint.py pty.py queue.py quopri.py rlcompleter.py runpy.py socketserver.py "
    "stat.py tabnanny.py textwrap.py timeit.py tracemalloc.py tty.py types.py urllib/parse.py "
    "uu.py warnings.py wsgiref/handlers.py zipapp.py"
).split()


def read_language_sets(data: Path) -> list[RetrievalSet]:
    """Return the sets "german", "chinese" and "python".

    Args:
        data: Folder that holds minipile/, for Python.
    """
    return [read_german(), read_chinese(), read_python(data)]


def read_german() -> RetrievalSet:
    """Return 60 German passages on rivers, towns, planets, metals, trees and people."""
    return _read_hand_written("german")


def read_chinese() -> RetrievalSet:
    """Return 61 Chinese passages on rivers, mountains, towns, poets, dynasties and more."""
    return _read_hand_written("chinese")


def read_python(data: Path) -> RetrievalSet:
    """Return files of Python's library, cut at functions or about every 40 lines.

    Args:
        data: Folder that holds minipile/train.jsonl.xz.

    Raises:
        InvalidInputError: If a file is missing, or a question's text stands in no chunk or two.
    """
    chunker = Chunker(CHUNK_CHARACTERS)
    passages = [
        Passage(passage_id=chunk.document_id, title=name, text=chunk.text)
        for name, text in _python_files(data / "minipile" / "train.jsonl.xz").items()
        for chunk in chunker.split(text, format="python", document_id=name)
    ]

    def row_of(name: str, stands_there: str) -> int:
        rows = [
            row
            for row, passage in enumerate(passages)
            if passage.title == name and stands_there in passage.text
        ]
        if len(rows) != 1:
            raise InvalidInputError(
                f"{stands_there!r} must stand in one chunk of {name}, got {len(rows)}"
            )
        return rows[0]

    questions = [
        _make_question("python", place, asked["question"], [row_of(*one) for one in asked["gold"]])
        for place, asked in enumerate(_read("python")["questions"], start=1)
    ]
    return RetrievalSet(name="python", passages=passages, questions=questions)


def _python_files(path: Path) -> Mapping[str, str]:
    """Return the texts of `PYTHON_FILES` in their order, each put together from its pieces."""
    pieces: dict[str, dict[int, str]] = {name: {} for name in PYTHON_FILES}
    for line in read_json_lines(path):
        name = line.text("doc").removeprefix(PYTHON_SOURCE)
        if line.values.get("lang") == "python" and name in pieces:
            pieces[name][int(line.text("id").partition("#")[2] or 0)] = line.text("text")
    missing = [name for name, found in pieces.items() if not found]
    if missing:
        raise InvalidInputError(f"{path} lacks {', '.join(missing)}")
    return {
        name: "\n\n".join(found[number] for number in sorted(found))
        for name, found in pieces.items()
    }


def _read_hand_written(name: str) -> RetrievalSet:
    read = _read(name)
    passages = [Passage(passage_id=one["title"], **one) for one in read["passages"]]
    row_of = {passage.title: row for row, passage in enumerate(passages)}
    questions = [
        _make_question(name, place, asked["question"], [row_of[title] for title in asked["gold"]])
        for place, asked in enumerate(read["questions"], start=1)
    ]
    return RetrievalSet(name=name, passages=passages, questions=questions)


def _make_question(name: str, place: int, text: str, rows: list[int]) -> Question:
    return Question(question_id=f"{name}/{place}", text=text, grades=dict.fromkeys(rows, 1.0))


def _read(name: str) -> dict[str, Any]:
    path = Path(__file__).with_name(f"{name}.json")
    read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return read
