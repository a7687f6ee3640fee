"""Numbers as a spreadsheet shows them: "25%", "1,200.50 €", "3.0E+05"."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

_SECTIONS = re.compile(r';(?=(?:[^"]*"[^"]*")*[^"]*$)')
# Of a format: colours, conditions and codes of a language; what pads; a text in quotation marks or
# behind a backslash.
_CURRENCY = re.compile(r"\[\$([^\]-]*)(?:-[^\]]*)?\]")
_BRACKETS = re.compile(r"\[[^\]]*\]")
_PADDING = re.compile(r"_.|\*.")
_LITERAL = re.compile(r'"([^"]*)"|\\(.)')
_DIGITS = re.compile(
    r"[#0?](?:[#0?,]*[#0?])?(?:\.[#0?]*)?(?:E\+[#0?]+)?(?P<scale>,*)", re.IGNORECASE
)
_DIGIT = re.compile(r"[#0?]")
_MARK = "\ue000"  # of a text in a format, while its digits are looked for
_LETTERS = re.compile(r"[A-Za-z/@?]")


def as_shown(value: float, format: str) -> str:
    """Return a number as a cell shows it.

    Digits, thousands separators, percent signs, exponents, scales by thousands, negative numbers in
    brackets, currencies and other texts of the format are kept. A format that needs more, such as
    fractions, gives the number as it is stored.

    Args:
        value: The number.
        format: The number format of its cell, for instance "#,##0.00 €" or "0%".
    """
    sections = _SECTIONS.split(format)
    is_second = value < 0 and len(sections) > 1
    if value == 0 and len(sections) > 2:
        section, shown = sections[2], 0.0
    else:
        section, shown = sections[is_second], abs(value) if is_second else value
    section = _PADDING.sub("", _BRACKETS.sub("", _CURRENCY.sub(r'"\1"', section)))
    if section.strip().casefold() == "general":
        return plain(shown)
    texts: list[str] = []

    def take(match: re.Match[str]) -> str:
        texts.append(match[1] if match[1] is not None else match[2])
        return _MARK

    bare = _LITERAL.sub(take, section.replace(_MARK, ""))
    digits = _DIGITS.search(bare)
    others = bare if digits is None else bare[: digits.start()] + bare[digits.end() :]
    if _LETTERS.search(others) or _DIGIT.search(others):
        return plain(value)
    if digits is not None:
        number = _number(shown, digits, n_percents=others.count("%"))
        bare = bare[: digits.start()] + number + bare[digits.end() :]
    waiting = iter(texts)
    shown_text = re.sub(_MARK, lambda _: next(waiting), bare).strip()
    return shown_text or plain(value)


def plain(value: float) -> str:
    """Return a number with up to 15 digits, as a cell without a format stores it."""
    if isinstance(value, int):
        return str(value)
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.15g}"


def _number(value: float, digits: re.Match[str], *, n_percents: int) -> str:
    """Return a number with as many digits as a format states."""
    pattern = digits[0].removesuffix(digits["scale"])
    mantissa, _, exponent = re.sub("e", "E", pattern).partition("E+")
    decimals = mantissa.partition(".")[2]
    if exponent:
        power = f"{value:.{len(decimals)}E}".split("E")
        return f"{power[0]}E{power[1][0]}{int(power[1][1:]):0{exponent.count('0') or 1}d}"
    scaled = Decimal(repr(value)).scaleb(2 * n_percents - 3 * len(digits["scale"]))
    try:
        rounded = scaled.quantize(Decimal(1).scaleb(-len(decimals)), ROUND_HALF_UP)
    except InvalidOperation:  # more than 28 digits
        return plain(value)
    if not rounded and "0" not in mantissa:  # "#" and "?" show no zero
        return ""
    text = f"{rounded:{',' if ',' in mantissa else ''}f}"
    optional = len(decimals) - len(decimals.rstrip("#?"))
    while optional and text.endswith("0"):
        text, optional = text[:-1], optional - 1
    whole, _, part = text.partition(".")
    sign, whole = ("-", whole[1:]) if whole.startswith("-") else ("", whole)
    least = mantissa.partition(".")[0].count("0")
    return f"{sign}{whole.zfill(least)}{'.' * bool(part)}{part}"
