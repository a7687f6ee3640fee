"""Front matter: what a page says about itself before its text, in YAML or TOML.

Jekyll, Hugo, MkDocs, Docusaurus, Pandoc and Obsidian read it. It is found line by line, as such
files often are no valid YAML ("title: Part 1: the boat"), which a parser would refuse as a whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# A line of dashes is a rule as well. As in Pandoc, no blank line follows where metadata begin.
# 20,000 characters bound the search for its end.
_BLOCK = re.compile(
    r"\ufeff?(?:---[ \t]*\r?\n(?=\S)(?P<yaml>.{0,20000}?)^(?P<close>---|\.\.\.)"
    r"|\+\+\+[ \t]*\r?\n(?P<toml>.{0,20000}?)^\+\+\+)[ \t]*\r?(?:\n|\Z)",
    re.DOTALL | re.MULTILINE,
)
# A key has three words at most, so that a sentence with a colon is none.
_KEY = r"(?:[\"'][^\"'\n]+[\"']|[\w$@.][\w$@./:+-]*(?: [\w$@./+-]+){0,2})[ \t]*:(?=\s)"
# After the first key: keys, what is indented, items of a list, comments, ends of brackets.
_YAML = re.compile(
    rf"(?:#.*\n|[ \t\r]*\n)*{_KEY}.*\n(?:(?:{_KEY}|[ \t\r#\]}}]|-[ \t\r]|-?(?=\n)).*\n)*"
)
_TOML = re.compile(r"(?:[ \t]*(?:#.*|\r)?\n)*[ \t]*(?:[\w\"'.-]+[ \t]*=|\[|\Z)")

# The value in its line and the indented ones below, perhaps after a mark like ">-".
_TITLE = re.compile(
    r"^title[ \t]*[:=][ \t]*(?:[>|][-+0-9]*[ \t\r]*\n[ \t]+)?(\S.*(?:\n[ \t]+\S.*)*)",
    re.IGNORECASE | re.MULTILINE,
)
_QUOTED = re.compile(r"([\"'])(.*?)(?<!\\)\1(?:\s+#.*)?")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, kw_only=True)
class FrontMatter:
    """The lines about a text that stand before it.

    Args:
        content: The lines, without those that open and close it.
        end: Offset behind its last line.
    """

    content: str
    end: int

    @property
    def title(self) -> str:
        """Return what stands under "title", in one line; empty without a text there."""
        found = _TITLE.search(re.split(r"^\[", self.content, maxsplit=1, flags=re.MULTILINE)[0])
        value = " ".join(found[1].split()) if found else ""
        if quoted := _QUOTED.fullmatch(value):
            value = quoted[2].replace('\\"', '"').replace("''", "'")
        elif value.startswith(("[", "{", "#")) or value in ("null", "~"):
            return ""  # a list, a template's place, nothing
        else:
            value = value.split(" #")[0]
        return value if _WORD.search(value) else ""


def front_matter(text: str) -> FrontMatter | None:
    """Return the front matter of a text; None without any.

    Between lines of "---" (the last may be "...") it is YAML, between lines of "+++" TOML, of
    20,000 characters at most. Records between lines of "---" are none: all of them are the text.
    """
    block = _BLOCK.match(text)
    if block is None:
        return None
    if block["toml"] is not None:
        is_toml = _TOML.match(block["toml"])
        return FrontMatter(content=block["toml"], end=block.end()) if is_toml else None
    if block["yaml"] and not _YAML.fullmatch(block["yaml"]):
        return None
    following = _BLOCK.match(text, block.start("close"))
    if following and following["yaml"] and _YAML.fullmatch(following["yaml"]):
        return None
    return FrontMatter(content=block["yaml"], end=block.end())


def same_words(title: str, heading: str) -> bool:
    """Return whether two titles differ in marks and capitals alone."""
    first, second = (_WORD.findall(one.casefold()) for one in (title, heading))
    return first == second
