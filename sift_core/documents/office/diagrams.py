"""The texts of SmartArt."""

from __future__ import annotations

from sift_core.documents.office.package import parse_xml

_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_TEXT_POINTS = (None, "node", "doc", "asst")  # the others are lines between them, and layout


def diagram_texts(data: bytes) -> list[str]:
    """Return the texts of SmartArt, in the order in which they were written.

    Args:
        data: The part of the file that has its data; nothing is read of an empty one.
    """
    texts = []
    for point in parse_xml(data).iter(f"{_DIAGRAM}pt") if data else ():
        if point.get("type") in _TEXT_POINTS:
            text = " ".join(
                "".join(run.text or "" for run in paragraph.iter(f"{_A}t"))
                for paragraph in point.iter(f"{_A}p")
            )
            texts += [text.strip()] if text.strip() else []
    return texts
