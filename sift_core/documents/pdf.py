"""The text of a PDF file, with where each page begins."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from io import BytesIO

from sift_core.documents.skipped import SkipError, SkipReason
from sift_core.errors import MissingDependencyError

try:
    import pypdf
    from pypdf.errors import DependencyError
except ImportError as error:
    raise MissingDependencyError("pypdf", extra="files") from error


@dataclass(frozen=True, kw_only=True)
class PDFText:
    """The text of all pages of a PDF, a blank line between two.

    Args:
        text: The text.
        starts: Offset in it of each page, ascending.
    """

    text: str
    starts: tuple[int, ...]

    def page_at(self, offset: int) -> int:
        """Return the page, from 1 on, of the character at an offset."""
        return bisect_right(self.starts, offset)


def text_of_pdf(content: bytes) -> PDFText:
    """Return the text of a PDF; pages are in the file's order, counted from 1.

    Args:
        content: The file. One that is encrypted with an empty password is read.

    Raises:
        SkipError: If it is encrypted, broken, or has no text, for instance since its pages were
            scanned.
    """
    try:
        reader = pypdf.PdfReader(BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise SkipError(SkipReason.ENCRYPTED, "needs a password")
        pages = [_clean(page.extract_text()) for page in reader.pages]
    except SkipError:
        raise
    except DependencyError as error:
        raise SkipError(
            SkipReason.ENCRYPTED, "pip install cryptography, if it has no password"
        ) from error
    # pypdf raises errors of its own, and whatever a broken file leads to in its middle: KeyError,
    # TypeError, ValueError, RecursionError, zlib.error ... One broken file must not end a run.
    except Exception as error:
        detail = " ".join(str(error).split())[:200]
        raise SkipError(SkipReason.BROKEN, f"{type(error).__name__}: {detail}") from error
    if not any(pages):
        raise SkipError(SkipReason.NO_TEXT, f"{len(pages)} pages")
    starts = []
    offset = 0
    for page in pages:
        starts.append(offset)
        offset += len(page) + 2
    return PDFText(text="\n\n".join(pages), starts=tuple(starts))


def _clean(text: str) -> str:
    """Return text without what no store takes: null characters and halves of surrogate pairs."""
    return text.replace("\0", "").encode("utf-8", "replace").decode().strip()
