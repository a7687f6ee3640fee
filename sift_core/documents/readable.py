"""Remove from a text what extraction and typesetting left there and nobody searches for."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

# Ligatures, forms of Arabic and Hebrew letters, radicals, compatibility ideographs, and letters of
# formulas. Superscripts and full widths stay: NFKC would make "106" of "10⁶".
_FORMS = re.compile("[\u0132\u0133\u2f00-\u2fd5\uf900-\ufdff\ufe70-\ufefc\U0001d400-\U0001d7ff]")
_INVISIBLE = re.compile(
    r"\u00ad(?:[ \t]*\n[ \t]*(?=\w))?|[\u2061-\u2064]"
)  # and marks of formulas that nobody sees

# Of a file within a text, what is longer than an example in prose; base64 may go on over lines.
_INLINE_FILE = re.compile(
    r"data:[\w.+-]+/[\w.+-]+(?:;[\w=.+-]+)*;base64,[\w+/%=-]{48,}(?:\s+[\w+/]{40,}=*)*"
    r"(?:\s+[\w+/]+=*(?=\s*[)>\"']))?"
    r"|data:image/[\w.+-]+(?:;[\w=.+-]+)*,(?:[^\s<>\"')]{64,}|<svg\b.*?</svg>)",
    re.IGNORECASE | re.DOTALL,
)
_DEFINITION = re.compile(
    r"^ {0,3}\[[^\]\n]+\]:[ \t]*<?[ \t]*>?[ \t]*(?:\"[^\"\n]*\")?\n?", re.MULTILINE
)
_RUBY_TEXT = re.compile(r"<(rt|rp|rtc)\b[^<>]*>[^<>]*</\1>|</?(?:ruby|rb)\b[^<>]*>", re.IGNORECASE)

_WORDS = re.compile(r"[^\W\d_]+(?:[-\u2010][^\W\d_]+)*")
_BROKEN_WORD = re.compile(r"(?<![\w\u2010-])([^\W\d_]+)[-\u2010][ \t]*\n[ \t]*([^\W\d_]+)")
_SUSPENDED = "and or to und oder bis bzw et ou y o e en of och eller i a".split()
_COMPOUND = re.compile(
    r"(?:self|well|non|half|ex)-|\w+-(?:based|known|like|specific|level|scale|term|aware|free"
    r"|driven|dependent|related|of)$"
)


def readable(text: str) -> str:
    """Return a text with letters in place of their forms, and without inline files.

    "ﬁ" becomes "fi", and "ﻣ" the letter "م". Soft hyphens and the readings of ruby leave.
    """
    text = _INVISIBLE.sub("", text)
    if "<r" in text.casefold():
        text = _RUBY_TEXT.sub("", text)
    return _FORMS.sub(lambda form: unicodedata.normalize("NFKC", form[0]).strip(), text)


def without_inline_files(text: str) -> str:
    """Return a text without the content of `data:` addresses, which are images in base64."""
    if "data:" not in text.casefold():
        return text
    shorter = _INLINE_FILE.sub("", text)
    return text if shorter == text else _DEFINITION.sub("", shorter)


def unhyphenated(pages: Sequence[str]) -> list[str]:
    """Return pages whose words are whole again where a line ended in them.

    The hyphen stays where the pages have the word with one, and in likely compounds. Names in
    capitals and numbers keep it too.
    """
    seen = {word.casefold() for page in pages for word in _WORDS.findall(page)}

    def joined(match: re.Match[str]) -> str:
        first, second = match[1], match[2]
        if second in _SUSPENDED or not second[0].islower():  # "pre- and post-war"
            return match[0]
        whole, hyphened = f"{first}{second}", f"{first}-{second}"
        is_compound = len(first) == 1 or first.isupper() or _COMPOUND.match(hyphened.casefold())
        if whole.casefold() in seen or not (is_compound or hyphened.casefold() in seen):
            return whole
        return hyphened

    return [_BROKEN_WORD.sub(joined, page) for page in pages]
