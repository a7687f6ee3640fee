"""Word documents as Markdown, by mammoth and the reader of HTML."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from itertools import count
from typing import Any

from sift_core.documents.finding import SkipError, SkipReason, broken
from sift_core.documents.html import markdown_of_html
from sift_core.documents.office.diagrams import diagram_texts
from sift_core.documents.office.omml import MATH, line_of_omml
from sift_core.documents.office.package import (
    etree,
    no_text,
    open_package,
    parse_xml,
    read_part,
    rewritten,
    title_of,
)
from sift_core.errors import MissingDependencyError

try:
    import mammoth
except ImportError as error:
    raise MissingDependencyError("mammoth", extra="office") from error

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_VML = "{urn:schemas-microsoft-com:vml}"
_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
# What stands around runs of text, and mammoth skips with them.
_WRAPPERS = [f"{_W}{name}" for name in ("fldSimple", "bdo", "dir")]

# A table of contents repeats the headings. Styles of code are those of Word and of pandoc.
_STYLES = "\n".join(
    [
        *(
            f"p[style-name='{toc} {level}'] => !"
            for toc in ("toc", "TOC")
            for level in range(1, 10)
        ),
        "p[style-name='TOC Heading'] => !",
        "p[style-name='Title'] => h1:fresh",
        *(
            f"p[style-name='{style}'] => pre:separator('\\n')"
            for style in ("HTML Preformatted", "Source Code", "Code", "Macro Text")
        ),
        # Word's styles for lists in lists, each of which counts as a first level by its numbering.
        *(
            f"p[style-name='{style} {level}'] => {'ul|ol > li > ' * (level - 1)}{tag} > li:fresh"
            for style, tag in (("List Bullet", "ul"), ("List Number", "ol"))
            for level in range(2, 6)
        ),
    ]
)
_HEADING = re.compile("heading [1-6]", re.IGNORECASE)
_BODIES = re.compile(r"word/(?:document|footnotes|endnotes)\d*\.xml")
_NOTE = re.compile(r'<li id="(?:foot|end)note-[^"]*">\s*<p>')
_NOTE_END = re.compile(r'\s*<a href="#(?:foot|end)note-ref-[^"]*">↑</a></p></li>')
_MARK = re.compile(r'(<a href="#(?:foot|end)note-[^"]*" id="[^"]*">)\[(\d+)\]</a>')


def markdown_of_docx(content: bytes) -> str:
    """Return the text of a Word document as Markdown: headings, lists, tables and footnotes stay.

    Tracked changes count as accepted. Superscripts become "^6" and formulas one line. Text boxes
    and the texts of SmartArt follow their paragraph. Left out are headers, footers, comments,
    hidden text, images and the table of contents. A document without a heading of level 1 begins
    with the title of its properties as one.

    Args:
        content: The file.

    Raises:
        SkipError: If it is encrypted, broken, no Word document, or has no text.
    """
    package = open_package(content, ".docx")
    try:
        html = mammoth.convert_to_html(
            rewritten(package, lambda name, part: _prepared(package, name, part)),
            style_map=_STYLES,
            include_embedded_style_map=False,
            convert_image=mammoth.images.img_element(lambda image: {}),
        ).value
        text = markdown_of_html(_with_notes(html).encode(), is_page=False)
    except SkipError as error:
        if error.reason is SkipReason.EMPTY:
            raise no_text(package) from error
        raise
    except RecursionError as error:
        raise SkipError(SkipReason.BROKEN, "its tables are nested too deeply") from error
    except Exception as error:  # mammoth raises whatever a broken file leads to
        raise broken(error) from error
    title = title_of(package)
    return f"# {title}\n\n{text}" if title and "<h1" not in html else text


def _with_notes(html: str) -> str:
    """Return a page in which footnotes have the form of Markdown: "[^1]: See below."."""
    number = count(1)
    html = _MARK.sub(r"\1\2</a>", html)
    return _NOTE_END.sub("</p>", _NOTE.sub(lambda _: f"<p>[^{next(number)}]: ", html))


def _prepared(package: zipfile.ZipFile, name: str, part: bytes) -> bytes:
    """Return a part of a document in which all that has text has it in runs of text."""
    if not _BODIES.fullmatch(name):
        return part
    root = parse_xml(part)
    raised, hidden = _character_styles(package)
    _write_formulas(root)
    _name_headings(root, package)
    for wrapper in list(root.iter(*_WRAPPERS)):
        _replace(wrapper, list(wrapper))
    for ruby in list(root.iter(f"{_W}ruby")):
        _replace(ruby, [run for base in ruby.findall(f"{_W}rubyBase") for run in base])
    for drawing in list(_drawings(root)):
        _write_drawing(package, name, drawing)
    for run in list(root.iter(f"{_W}r")):
        properties = run.find(f"{_W}rPr")
        if properties is None:
            continue
        style = properties.find(f"{_W}rStyle")
        style_id = "" if style is None else style.get(f"{_W}val", "")
        vanish = properties.find(f"{_W}vanish")
        if _is_on(vanish) if vanish is not None else style_id in hidden:
            _replace(run, [])
        elif style_id in raised and properties.find(f"{_W}vertAlign") is None:
            etree.SubElement(properties, f"{_W}vertAlign", {f"{_W}val": raised[style_id]})
    return bytes(etree.tostring(root, encoding="utf-8", xml_declaration=True))


def _is_on(toggle: Any) -> bool:
    return toggle is not None and toggle.get(f"{_W}val") not in ("0", "false", "off")


def _character_styles(package: zipfile.ZipFile) -> tuple[dict[str, str], set[str]]:
    """Return the styles that raise or lower text, with the direction, and those that hide it."""
    content = read_part(package, "word/styles.xml")
    raised: dict[str, str] = {}
    hidden: set[str] = set()
    for style in parse_xml(content).iter(f"{_W}style") if content else ():
        names = (style.get(f"{_W}styleId", ""), style.find(f"{_W}name"))
        if style.get(f"{_W}type") != "character" or style.find(f"{_W}rPr") is None:
            continue
        name = "" if names[1] is None else names[1].get(f"{_W}val", "")
        align = style.find(f"{_W}rPr/{_W}vertAlign")
        if align is not None and "reference" not in name and "anchor" not in name:
            raised[names[0]] = align.get(f"{_W}val", "baseline")
        if _is_on(style.find(f"{_W}rPr/{_W}vanish")):
            hidden.add(names[0])
    return raised, hidden


def _name_headings(root: Any, package: zipfile.ZipFile) -> None:
    """Give paragraphs whose style is made from one of Word's for headings that very style."""
    content = read_part(package, "word/styles.xml")
    bases: dict[str, str] = {}
    headings: set[str] = set()
    for style in parse_xml(content).iter(f"{_W}style") if content else ():
        style_id, base = style.get(f"{_W}styleId", ""), style.find(f"{_W}basedOn")
        named = style.find(f"{_W}name")
        name = "" if named is None else named.get(f"{_W}val", "")
        if base is not None and name.casefold() != "toc heading":
            bases[style_id] = base.get(f"{_W}val", "")
        if _HEADING.fullmatch(name):
            headings.add(style_id)
    for style in root.iter(f"{_W}pStyle"):
        style_id, seen = style.get(f"{_W}val", ""), set[str]()
        while style_id in bases and style_id not in headings | seen:
            seen.add(style_id)
            style_id = bases[style_id]
        if style_id in headings:
            style.set(f"{_W}val", style_id)


def _write_formulas(root: Any) -> None:
    for formula in list(root.iter(f"{{{MATH}}}oMathPara", f"{{{MATH}}}oMath")):
        if next(formula.iterancestors(f"{{{MATH}}}oMathPara", f"{{{MATH}}}oMath"), None) is None:
            parts = formula.findall(f"{{{MATH}}}oMath") or [formula]
            text = " ".join(map(line_of_omml, parts))
            is_alone = etree.QName(formula).localname == "oMathPara"
            _replace(formula, [_run(f" {text} " if is_alone else text)])


def _run(text: str) -> Any:
    run = etree.Element(f"{_W}r")
    etree.SubElement(run, f"{_W}t", {_SPACE: "preserve"}).text = text
    return run


def _drawings(root: Any) -> Iterator[Any]:
    """Yield what may be a text box or SmartArt, outermost first, each once."""
    for one in root.iter(f"{_MC}AlternateContent", f"{_W}drawing"):
        if next(one.iterancestors(f"{_MC}AlternateContent"), None) is None:
            yield one


def _write_drawing(package: zipfile.ZipFile, name: str, drawing: Any) -> None:
    """Write the texts of a drawing as a text box of the older kind, which mammoth reads."""
    choice = drawing.find(f"{_MC}Choice")
    shown = drawing if choice is None else choice
    paragraphs = [
        paragraph
        for box in shown.iter(f"{_W}txbxContent")
        if next(box.iterancestors(f"{_W}txbxContent"), None) is None
        for paragraph in box
    ]
    for diagram in shown.iter(f"{_DIAGRAM}relIds"):
        relation = diagram.get(f"{_RELATION}dm", "")
        for text in diagram_texts(_target(package, name, relation)):
            paragraphs.append(etree.Element(f"{_W}p"))
            paragraphs[-1].append(_run(text))
    if not paragraphs:
        if choice is not None and drawing.find(f"{_MC}Fallback") is None:
            _replace(drawing, list(choice))
        return
    picture = etree.Element(f"{_W}pict")
    box = etree.SubElement(picture, f"{_VML}textbox")
    etree.SubElement(box, f"{_W}txbxContent").extend(paragraphs)
    _replace(drawing, [picture])


def _target(package: zipfile.ZipFile, name: str, relation: str) -> bytes:
    """Return the part that a relation of another part leads to; empty without one."""
    folder, _, file = name.rpartition("/")
    relations = read_part(package, f"{folder}/_rels/{file}.rels")
    for one in parse_xml(relations) if relations else ():
        if one.get("Id") == relation:
            target = one.get("Target", "")
            path = target.lstrip("/") if target.startswith("/") else f"{folder}/{target}"
            return read_part(package, path) or b""
    return b""


def _replace(element: Any, others: list[Any]) -> None:
    """Put other elements in the place of one. Texts beside elements have no meaning there."""
    parent = element.getparent()
    if parent is not None:
        at = parent.index(element)
        parent[at : at + 1] = others
