"""Panels of a page that a control opens: answers below questions, and tabs."""

from __future__ import annotations

from typing import Any

_LABELS = ["h1", "h2", "h3", "h4", "h5", "h6", "dt", "summary"]
_INLINE = [*_LABELS, "p", "li", "td", "th"]
_NO_CONTENT = ["nav", "menu", "header", "footer", "dialog", "button", "input"]
_NO_CONTENT_ROLES = ["navigation", "menu", "menubar", "listbox", "search", "dialog", "alertdialog"]
_TARGETS = ["aria-controls", "data-bs-target", "data-target", "href"]


def open_panels(page: Any) -> None:
    """Show the panels of a page, and keep the labels that open them.

    A panel is what a control names, or follows it, or names it. Menus and dialogs are none. The
    label of a tab moves to the start of its panel. Other hidden elements and buttons stay as they
    are.
    """
    by_id: dict[str, Any] = {}
    for one in page.find_all(id=True):
        by_id.setdefault(one["id"], one)
    for panel in page.find_all(hidden=True):
        if panel["hidden"] == "until-found" or panel.get("role") == "tabpanel":
            del panel["hidden"]
    labelled: dict[str, Any] = {}
    for panel in page.find_all(attrs={"aria-labelledby": True}):
        for name in panel["aria-labelledby"].split():
            labelled.setdefault(name, panel)
    for control in page.find_all(_is_control):
        label = control.find_parent(_LABELS) or control
        panel = _panel(control, label, by_id, labelled)
        if panel is not None:
            del panel["hidden"]
        is_question = control.get_text(strip=True).endswith(("?", "？", "؟"))  # noqa: RUF001
        if panel is not None and control.get("role") == "tab":
            control.extract()
            control.name = "p"
            panel.insert(0, control)
        elif control.name == "button" and (
            panel is not None or label is not control or is_question
        ):
            control.name = "span" if control.find_parent(_INLINE) else "div"


def _is_control(one: Any) -> bool:
    toggles = one.has_attr("data-bs-toggle") or one.has_attr("data-toggle")
    return (
        one.name == "button"
        or one.get("role") in ("tab", "button")
        or one.has_attr("aria-controls")
        or one.has_attr("aria-expanded")
        or toggles
    )


def _panel(control: Any, label: Any, by_id: Any, labelled: Any) -> Any | None:
    """Return the content that a control opens; None without any."""
    found = []
    for key in _TARGETS:
        found += [by_id.get(name.removeprefix("#")) for name in (control.get(key) or "").split()]
    found.append(labelled.get(control.get("id")))
    if label is not control or control.has_attr("aria-expanded"):
        found.append(label.find_next_sibling())
    return next((one for one in found if one is not None and _is_content(one)), None)


def _is_content(panel: Any) -> bool:
    """Whether an element has text of its own: more than links."""
    if panel.name in _NO_CONTENT or panel.get("role") in _NO_CONTENT_ROLES:
        return False
    text = len(panel.get_text(strip=True))
    links = sum(len(link.get_text(strip=True)) for link in panel.find_all("a"))
    return links < 0.8 * text
