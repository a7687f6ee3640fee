"""Superscripts, subscripts and formulas of a page, written in one line."""

from __future__ import annotations

import re
from typing import Any

from sift_core.documents.scripts import lowered, raised

# Formulas as they were drawn, beside their source.
_DRAWN = ["katex-html", "MathJax", "MathJax_Display", "MathJax_Preview", "MathJax_SVG"]
_PICTURE = re.compile(r"(?:^|[-_])(?:math|tex|latex|equation|formula)(?:$|[-_])")
_STYLE = re.compile(r"^\{\\(?:display|text)style\s*(.*?)\s*\}$", re.DOTALL)
_SCRIPT_AT_END = re.compile(r"[\^_][-+\w.]*$")
_INLINE = {
    "a",
    "abbr",
    "b",
    "cite",
    "em",
    "font",
    "i",
    "mark",
    "small",
    "span",
    "strong",
    "u",
    "var",
}
_SCRIPTS = ["sup", "sub"]
# How MathML names where the second and third part of a formula stand.
_POSITIONS = {
    "msup": "^",
    "mover": "^",
    "msub": "_",
    "munder": "_",
    "msubsup": "_^",
    "munderover": "_^",
}


def write_formulas(page: Any) -> None:
    """Replace formulas by their TeX or by text, superscripts by "^2", footnote marks by "[^3]"."""
    for script in page.find_all("script", type=re.compile("^math/tex")):
        script.replace_with(f" {script.get_text(strip=True)} ")
    for drawn in page.find_all(class_=_DRAWN):
        drawn.extract()
    for picture in page.find_all("img", class_=_PICTURE, alt=True):
        if not picture.find_previous_sibling(lambda one: one.find("math") or one.name == "math"):
            picture.replace_with(_without_style(picture["alt"]))
    for formula in page.find_all("math"):
        formula.replace_with(_tex(formula) or _line(formula))
    for mark in page.find_all(_is_note_mark):
        if not (mark.find(_SCRIPTS) or mark.find_parent(_SCRIPTS)):  # styles alone raise it
            mark.wrap(page.new_tag("sup"))
    for mark in reversed(page.find_all(_SCRIPTS)):  # inner ones first
        before, after = _beside(mark, "previous_sibling"), _beside(mark, "next_sibling")
        text = mark.get_text().strip()
        if mark.name == "sub":
            mark.replace_with(lowered(before, text))
            continue
        link = mark.find("a", href=True) or mark.find_parent("a", href=True)
        is_note = link is not None and "#" in link["href"] and link.get_text().strip() == text
        mark.replace_with(raised(before, text, after, is_note=is_note))


def line_of_mathml(formula: str) -> str:
    """Return a formula of MathML in one line: "(a+b)/2", "10^6", "√(y)".

    Args:
        formula: A `<math>` element.
    """
    from bs4 import BeautifulSoup

    return _line(BeautifulSoup(formula, "html.parser")).strip()


def _is_note_mark(one: Any) -> bool:
    """Whether an element is the mark of a footnote in a book."""
    kinds = f"{one.get('role', '')} {one.get('epub:type', '')}".split()
    return one.name == "a" and ("doc-noteref" in kinds or "noteref" in kinds)


def _tex(formula: Any) -> str:
    """Return the TeX that a formula carries; empty without any."""
    note = formula.find("annotation", encoding=re.compile("tex", re.IGNORECASE))
    return _without_style(note.get_text() if note else formula.get("alttext") or "")


def _without_style(tex: str) -> str:
    return _STYLE.sub(r"\1", tex.strip())


def _line(formula: Any) -> str:
    """Return the text of a formula of MathML in one line."""
    for note in formula.find_all(["annotation", "annotation-xml"]):
        note.extract()
    for node in reversed(formula.find_all(True)):  # inner ones first
        inner = [part.get_text() for part in node.find_all(True, recursive=False)]
        parts = [part.strip() for part in inner]
        text = _joined(inner) if inner else node.get_text().strip()
        if len(parts) == 2 and node.name == "mfrac":
            text = f" {'/'.join(map(_term, parts))} "
        elif len(parts) > 1 and node.name in _POSITIONS:
            marks = zip(_POSITIONS[node.name], parts[1:], strict=False)
            text = parts[0] + "".join(mark + _term(part) for mark, part in marks)
        elif node.name == "msqrt":
            text = f"√({text})"
        elif len(parts) == 2 and node.name == "mroot":
            text = f"{_term(parts[0])}^(1/{parts[1]})"
        elif node.name == "mtext" or (node.name in ("mtd", "mtr") and text):
            text = f" {text} "
        node.clear()
        node.append(text)
    return re.sub(" {2,}", " ", formula.get_text())


def _joined(parts: list[str]) -> str:
    """Return parts in one line, in which no exponent or index runs into what follows."""
    text = ""
    for part in parts:
        text += " " * bool(part[:1].isalnum() and _SCRIPT_AT_END.search(text)) + part
    return text


def _term(text: str) -> str:
    return text if re.fullmatch(r"-?\w+|\w", text) else f"({text})"


def _beside(mark: Any, side: str) -> str:
    """Return the text next to an element in its line, on one side of it."""
    while True:
        one = getattr(mark, side)
        while one is not None and one.name not in ("br", "div", "p"):
            if text := one.get_text():
                return str(text)
            one = getattr(one, side)
        if one is not None or mark.parent is None or mark.parent.name not in _INLINE:
            return ""
        mark = mark.parent
