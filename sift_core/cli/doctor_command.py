"""`sift doctor`: what is installed, what can compute, what is missing and how to get it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import typer

from sift_core.cli.settings import (
    DEFAULT_EMBEDDER,
    DEFAULT_STORE,
    EmbedderOption,
    JsonOption,
    ModelOption,
    StoreOption,
)
from sift_core.errors import CandidateSourceError, InvalidInputError, SiftError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from sift_core.cli.doctor_checks import Package, Part

_COMPOSITE = {"all"}  # names other extras only
_PIPE_WIDTH = 10_000  # columns where stdout is no terminal: no line of ours is longer


def doctor(
    context: typer.Context,
    store: StoreOption = DEFAULT_STORE,
    embedder: EmbedderOption = None,
    model: ModelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what is installed, what is missing and how to install it, and which settings hold.

    Exit code 2 if something that is installed does not fit or is broken, a setting is wrong, or
    the store fails; what is merely not installed is no failure.

    Examples:
    sift doctor
    sift doctor --store qdrant:http://localhost:6333 --json
    """
    from sift_core.cli import doctor_checks
    from sift_core.cli.doctor_settings import settings_state

    parts = [
        part
        for part in (*doctor_checks.extras(), *doctor_checks.integrations())
        if part.name not in _COMPOSITE
    ]
    found: dict[str, Any] = {
        "machine": doctor_checks.machine(),
        "devices": doctor_checks.devices(),
        "folders": doctor_checks.folders(),
        "settings": settings_state(context),
        "store": _store_state(store, embedder),
    }
    faults = [*_faults(parts), *_broken(found["devices"]), *found["settings"]["faults"]]
    failure = found["store"].get("error")
    if failure and not any(failure in fault for fault in faults):
        faults.append(failure)
    if as_json:
        from sift_core.cli.printing import print_json

        print_json({**found, "parts": [_record(part) for part in parts], "faults": faults})
    else:
        _print(found, parts, faults)
    if faults:
        raise typer.Exit(2)


def _store_state(text: str, embedder: str | None) -> dict[str, Any]:
    """Return what a store says of itself; "error" only if no command could use it."""
    from sift_core.cli.doctor_settings import shown_store
    from sift_core.cli.stores import StoreAddress, open_store, stored_embedder_name

    shown = shown_store(text)
    try:
        address = StoreAddress.parse(text)
    except InvalidInputError as error:
        return {"address": shown, "error": str(error)}
    try:
        with open_store(address) as source:
            state = {
                "address": shown,
                "n_chunks": len(source.content_ids()),
                "embedder": stored_embedder_name(source),
            }
    except CandidateSourceError as error:
        return {"address": shown, "error": str(error)}
    except SiftError as error:
        return {"address": shown, "note": str(error)}
    if embedder not in (None, state["embedder"]):
        try:
            with open_store(address, embedder_name=embedder):
                pass
        except SiftError as error:
            return {**state, "error": str(error)}
    return state


def _faults(parts: list[Part]) -> list[str]:
    """Return what does not fit, a line each; one package of several parts once."""
    lines = {
        package.name: f"{package.name} {package.version} does not fit {part.name}, which needs "
        f"{package.needed}; {part.install}"
        for part in parts
        for package in part.wrong
    }
    return list(lines.values())


def _broken(devices: dict[str, str]) -> list[str]:
    return [
        f"{name} is installed but does not import: {state.removeprefix('broken: ')}; reinstall it"
        for name, state in devices.items()
        if state.startswith("broken")
    ]


def _record(part: Part) -> dict[str, Any]:
    return {
        "name": part.name,
        "purpose": part.purpose,
        "is_there": part.is_there,
        "install": part.install if part.is_of_use and not part.is_there else None,
        "packages": [
            {
                "name": package.name,
                "needed": package.needed,
                "version": package.version,
                "is_right": package.is_right,
            }
            for package in part.packages
        ],
    }


def _print(found: dict[str, Any], parts: list[Part], faults: list[str]) -> None:
    """Print what was found; in a pipe no line is wrapped, unless COLUMNS says how wide it is."""
    from rich.console import Console

    is_free = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    console = Console(highlight=False, emoji=False, width=_PIPE_WIDTH if is_free else None)
    with console.capture() as capture:
        _show(console, found, parts, faults)
    for line in capture.get().splitlines():
        typer.echo(line.rstrip())  # a table fills its cells


def _show(console: Console, found: dict[str, Any], parts: list[Part], faults: list[str]) -> None:
    for facts in (*(found[name] for name in ("machine", "devices", "folders")), _settings(found)):
        console.print(_grid(facts))
        console.print()
    console.print(_parts_table(parts))
    _show_installs(console, parts)
    console.print()
    console.print(_plain(_store_line(found["store"])), soft_wrap=True)
    for note in found["settings"]["notes"]:
        console.print(f"[yellow]![/] {_plain(note)}", soft_wrap=True)
    for fault in faults:
        console.print(f"[bold red]✗[/] {_plain(fault)}", soft_wrap=True)
    if not faults:
        console.print("[green]✓[/] nothing that is installed is at fault")


def _grid(facts: dict[str, str]) -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts.items():
        grid.add_row(f"[bold]{name}[/]", _plain(value))
    return grid


def _settings(found: dict[str, Any]) -> dict[str, str]:
    """Return the settings by name, each with where it comes from."""
    settings = found["settings"]
    unset = {
        "embedder": f"the store's, {DEFAULT_EMBEDDER} for a new one",
        "model": "none",
    }
    keys = f": {', '.join(settings['keys'])}" if settings["keys"] else ""
    told = {"settings": f"{settings['file']}{keys}" if settings["file"] else "no file"}
    for name, effective in settings["effective"].items():
        origin = effective["name"] or effective["from"]
        told[name] = f"{effective['value'] or unset[name]} ({origin})"
    return {**told, **settings["secrets"]}


def _parts_table(parts: list[Part]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "part", "for", "installed"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "part")
    for part in parts:
        table.add_row(_mark(part), part.name, part.purpose, _versions(part, parts))
    return table


def _show_installs(console: Console, parts: list[Part]) -> None:
    absent = [part for part in parts if not part.is_there and not part.wrong and part.is_of_use]
    if absent:
        console.print("\nnot installed (– above); as far as you need it:")
        for part in absent:
            console.print(f"  {_plain(part.install)}", soft_wrap=True)


def _mark(part: Part) -> str:
    if part.wrong:
        return "[bold red]✗[/]"
    return "[green]✓[/]" if part.is_there else "–"


def _versions(part: Part, parts: list[Part]) -> str:
    """Return what is installed of a part; packages of parts that it includes are in their rows."""
    included = [other for other in parts if other.names < part.names]
    theirs = set().union(*(other.names for other in included))
    own = [_version(package, part) for package in part.packages if package.name not in theirs]
    rows = f"all of {', '.join(other.name for other in included)}; " if included else ""
    return _plain(rows + ", ".join(own))


def _version(package: Package, part: Part) -> str:
    """Return a package's version, with its name where the row does not begin with it."""
    version = package.version or "missing"
    return version if package.name == part.name else f"{package.name} {version}"


def _store_line(store: dict[str, Any]) -> str:
    if "n_chunks" in store:
        return f"store {store['address']}: {store['n_chunks']} chunks, by {store['embedder']}"
    return f"store {store['address']}: {store.get('error') or store['note']}"


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
