"""The date of a file: the one that it states, else Git's last commit of it, else its time."""

from __future__ import annotations

import os
import re
import subprocess
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from sift_core.dates import is_date
from sift_core.documents.finding import (
    HTML_SUFFIXES,
    OFFICE_SUFFIXES,
    PDF_SUFFIX,
    WITHOUT_MACROS,
    FoundFile,
    SkipError,
)
from sift_core.documents.front_matter import front_matter
from sift_core.types import Document

DATE_KEY, KIND_KEY = "date", "date_kind"
GIT_SECONDS = 20.0  # for the history of one repository; afterwards the files' times count

# Of several dates the first in this order: when a text changed says more than when it began.
_KEYS = ("lastmod", "last_modified", "modified", "updated", "date", "published", "created")
_LINE = re.compile(r"^([A-Za-z_-]+)[ \t]*[:=][ \t]*(\S.*?)\s*$", re.MULTILINE)
_META = (
    *("article:modified_time", "og:updated_time", "dcterms.modified", "last-modified"),
    *("datemodified", "article:published_time", "dcterms.date", "dcterms.created", "dc.date"),
    *("date", "datepublished", "pubdate"),
)
_PARTIAL = re.compile(r"(\d{4})(-\d\d)?")
# A repository that was received may name programs in its settings; none of these is run.
_GIT = (
    *("git", "-c", "log.showSignature=false", "-c", "core.fsmonitor=false"),
    *("-c", "core.quotePath=false", "--no-optional-locks", "--literal-pathspecs"),
)
_GIT_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
}


def date_of_content(content: bytes, text: str, suffix: str) -> dict[str, str]:
    """Return "date" and "date_kind" as a file states them; empty if it states no date.

    Args:
        content: Its bytes.
        text: The text that was read of it.
        suffix: Of its name, in lower case.
    """
    suffix = WITHOUT_MACROS.get(suffix, suffix)
    if suffix == PDF_SUFFIX:
        kind, values = "pdf", _of_pdf(content)
    elif suffix in HTML_SUFFIXES:
        kind, values = "html", _of_html(content)
    elif suffix in OFFICE_SUFFIXES:
        kind, values = suffix[1:], _of_office(content, suffix)
    else:
        kind, values = "front_matter", _of_front_matter(text)
    for value in values:
        if (found := as_iso(value)) is not None:
            return {DATE_KEY: found, KIND_KEY: kind}
    return {}


def as_iso(value: object) -> str | None:
    """Return a date as ISO 8601 text that `by_date` reads, or None if the value is no date.

    Takes ISO 8601, also with "/" or without day or month, and dates of mails.
    """
    if isinstance(value, datetime):
        return value.isoformat()
    text = str(value).strip().strip("\"'").strip()
    if partial := _PARTIAL.fullmatch(text):
        text = f"{partial[1]}{partial[2] or '-01'}-01"
    text = re.sub(r"^(\d{4})/(\d\d)/(\d\d)", r"\1-\2-\3", text)
    if re.match(r"\d{4}-?\d\d-?\d\d", text) and is_date(text):
        return text
    with suppress(ValueError, TypeError, IndexError, OverflowError):
        return parsedate_to_datetime(text).isoformat()
    return None


def _of_front_matter(text: str) -> list[str]:
    matter = front_matter(text)
    lines = _LINE.findall(matter.content) if matter else []
    found = {key.lower().replace("-", "_"): value.split(" #")[0] for key, value in reversed(lines)}
    return [found[key] for key in _KEYS if key in found]


def _of_html(content: bytes) -> list[str]:
    from bs4 import BeautifulSoup
    from bs4.filter import SoupStrainer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # XHTML is read as HTML on purpose, as in `html`
        page = BeautifulSoup(content, "html.parser", parse_only=SoupStrainer(["meta", "time"]))
    names = ("property", "name", "itemprop", "http-equiv")
    found: dict[str, str] = {}
    for meta in page.find_all("meta"):
        for name in names:
            found.setdefault(str(meta.get(name, "")).lower(), str(meta.get("content", "")))
    times = [str(one.get("datetime") or one.get_text()) for one in page.find_all("time")]
    return [*(found[key] for key in _META if key in found), *times]


def _of_office(content: bytes, suffix: str) -> list[str]:
    from sift_core.documents.office import epub, package

    with suppress(SkipError):
        if suffix == ".epub":
            return epub.stated_dates(content)
        return package.stated_dates(content, suffix)
    return []


def _of_pdf(content: bytes) -> list[Any]:
    import pypdf

    with suppress(Exception):  # pypdf raises whatever a broken file leads to
        reader = pypdf.PdfReader(BytesIO(content))
        if reader.is_encrypted:
            reader.decrypt("")
        about = reader.metadata
        if about is not None:
            return [one for one in (about.modification_date, about.creation_date) if one]
    return []


class FileDates:
    """Dates of files that state none. Asks Git once for each repository.

    Args:
        files: Of which dates may be asked.
    """

    def __init__(self, files: Iterable[FoundFile]) -> None:
        self._by_git: dict[str, str] = {}
        roots: dict[Path, list[str]] = {}
        root_of: dict[Path, Path | None] = {}
        for file in files:
            path = Path(os.path.realpath(file.path))
            if path.parent not in root_of:
                places = (path.parent, *path.parent.parents)
                root_of[path.parent] = next(
                    (one for one in places if (one / ".git").exists()), None
                )
            if (root := root_of[path.parent]) is not None:
                roots.setdefault(root, []).append(path.relative_to(root).as_posix())
        for root, names in roots.items():
            self._by_git |= {str(root / name): date for name, date in _commits(root, names).items()}

    def dated(self, documents: Sequence[Document], file: FoundFile) -> list[Document]:
        """Return chunks of a file with "date" and "date_kind"."""
        if not documents or DATE_KEY in documents[0].metadata:
            return list(documents)
        kind, date = "git", self._by_git.get(os.path.realpath(file.path))
        if date is None:
            with suppress(OSError, OverflowError, ValueError):
                seconds = int(os.stat(file.path).st_mtime)
                kind, date = "file", datetime.fromtimestamp(seconds, timezone.utc).isoformat()
        if date is None:
            return list(documents)
        own = {DATE_KEY: date, KIND_KEY: kind}
        return [replace(one, metadata={**one.metadata, **own}) for one in documents]


def _commits(root: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the date of the last commit of each file that Git has."""
    folder = os.path.commonpath([os.path.dirname(name) for name in names])
    command = [*_GIT, "log", "--format=%x01%cI", "--name-only", "-z", "--no-renames"]
    try:
        found = subprocess.run(
            [*command, "--", folder or "."],
            cwd=root,
            env={**os.environ, **_GIT_ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    wanted, dates = set(names), dict[str, str]()
    for commit in found.stdout.decode("utf-8", "replace").split("\x01")[1:]:
        date, *files = commit.split("\0")
        for name in files:
            if (own := name.strip("\n")) in wanted:
                dates.setdefault(own, date.strip())
    return dates
