"""Formulas of Office files in one line, in the same form as those of web pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from typing import Any

from lxml import etree

from sift_core.documents.html_formulas import line_of_mathml

MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"

_M = f"{{{MATH}}}"
_SCRIPTS = {
    "sSup": ("msup", ("e", "sup")),
    "sSub": ("msub", ("e", "sub")),
    "sSubSup": ("msubsup", ("e", "sub", "sup")),
    "limLow": ("munder", ("e", "lim")),
    "limUpp": ("mover", ("e", "lim")),
    "f": ("mfrac", ("num", "den")),
}


def line_of_omml(formula: Any) -> str:
    """Return a formula of Office Math in one line: "(a+b)/2", "10^6", "√(y)", "∑_(i=1)^n x_i".

    Args:
        formula: Its element, `m:oMath` or `m:oMathPara`.
    """
    return line_of_mathml(f"<math>{_mathml(formula)}</math>")


def _mathml(element: Any) -> str:
    """Return the MathML of an element of Office Math, as text."""
    name = etree.QName(element).localname
    if name in _SCRIPTS:
        tag, parts = _SCRIPTS[name]
        return f"<{tag}>{''.join(_row(element, part) for part in parts)}</{tag}>"
    if name in _WRITERS:
        return _WRITERS[name](element)
    if name == "t":
        return f"<mi>{escape(element.text or '')}</mi>"
    if name.endswith("Pr"):  # properties
        return ""
    return "".join(map(_mathml, element))


def _row(element: Any, name: str) -> str:
    """Return a part of a construct as one node of MathML."""
    return f"<mrow>{''.join(map(_mathml, element.findall(_M + name)))}</mrow>"


def _property(element: Any, name: str, default: str) -> str:
    """Return a character that the properties of a construct state."""
    found = element.find(f"{_M}{etree.QName(element).localname}Pr/{_M}{name}")
    return default if found is None else str(found.get(f"{_M}val", default))


def _radical(element: Any) -> str:
    degree, radicand = _row(element, "deg"), _row(element, "e")
    if "<mi>" in degree:
        return f"<mroot>{radicand}{degree}</mroot>"
    return f"<msqrt>{radicand}</msqrt>"


def _nary(element: Any) -> str:
    sign = f"<mo>{escape(_property(element, 'chr', '∫'))}</mo>"
    low, high = _row(element, "sub"), _row(element, "sup")
    if "<mi>" in low and "<mi>" in high:
        sign = f"<munderover>{sign}{low}{high}</munderover>"
    elif "<mi>" in low:
        sign = f"<munder>{sign}{low}</munder>"
    elif "<mi>" in high:
        sign = f"<mover>{sign}{high}</mover>"
    return f"{sign}<mtext></mtext>{_row(element, 'e')}"


def _delimited(element: Any) -> str:
    begin, end = _property(element, "begChr", "("), _property(element, "endChr", ")")
    between = f"<mo>{escape(_property(element, 'sepChr', '|'))}</mo>"
    parts = (f"<mrow>{''.join(map(_mathml, one))}</mrow>" for one in element.findall(f"{_M}e"))
    return f"<mrow><mo>{escape(begin)}</mo>{between.join(parts)}<mo>{escape(end)}</mo></mrow>"


def _before(element: Any) -> str:
    """Write indices that stand before their base."""
    scripts = f"<msubsup><mrow></mrow>{_row(element, 'sub')}{_row(element, 'sup')}</msubsup>"
    return scripts + _row(element, "e")


def _function(element: Any) -> str:
    return f"<mrow>{_row(element, 'fName')}<mtext></mtext>{_row(element, 'e')}</mrow>"


def _accented(element: Any) -> str:
    mark = _property(element, "chr", "\u0302")
    return f"<mrow>{_row(element, 'e')}<mo>{escape(mark)}</mo></mrow>"


def _lines(rows: Iterable[Iterable[Any]]) -> str:
    written = (
        "".join(f"<mtd>{''.join(map(_mathml, cell))}</mtd>" for cell in cells) for cells in rows
    )
    return f"<mtable>{''.join(f'<mtr>{row}</mtr>' for row in written)}</mtable>"


_WRITERS: dict[str, Callable[[Any], str]] = {
    "rad": _radical,
    "nary": _nary,
    "d": _delimited,
    "sPre": _before,
    "func": _function,
    "acc": _accented,
    "m": lambda element: _lines(row.findall(f"{_M}e") for row in element.findall(f"{_M}mr")),
    "eqArr": lambda element: _lines([line] for line in element.findall(f"{_M}e")),
}
