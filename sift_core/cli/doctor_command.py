"""`sift doctor`: what is installed, what can compute, what is missing and how to get it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from sift_core.cli.settings import DEFAULT_STORE, JsonOption, StoreOption
from sift_core.errors import CandidateSourceError, SiftError

if TYPE_CHECKING:
    from rich.console import Console

    from sift_core.cli.doctor_checks import Package, Part

_COMPOSITE = {"all"}  # names other extras only


def doctor(store: StoreOption = DEFAULT_STORE, as_json: JsonOption = False) -> None:
    """Say what is installed, what is missing and how to install it.

    Exit code 2 if something that is installed does not fit or is broken, or the store fails;
    what is merely not installed is no failure.

    Examples:
    sift doctor
    sift doctor --store qdrant:http://localhost:6333 --json
    """
    from sift_core.cli import doctor_checks

    parts = [
        part
        for part in (*doctor_checks.extras(), *doctor_checks.integrations())
        if part.name not in _COMPOSITE
    ]
    found: dict[str, Any] = {
        "machine": doctor_checks.machine(),
        "devices": doctor_checks.devices(),
        "folders": doctor_checks.folders(),
        "store": _store_state(store),
    }
    faults = [*_faults(parts), *_broken(found["devices"])]
    if found["store"].get("error"):
        faults.append(found["store"]["error"])
    if as_json:
        from sift_core.cli.printing import print_json

        print_json({**found, "parts": [_record(part) for part in parts], "faults": faults})
    else:
        _show(found, parts, faults)
    if faults:
        raise typer.Exit(2)


def _store_state(text: str) -> dict[str, Any]:
    """Return what a store says of itself; "error" only if there is one that fails."""
    from sift_core.cli.stores import StoreAddress, open_store, stored_embedder_name

    try:
        address = StoreAddress.parse(text)
        with open_store(address) as source:
            return {
                "address": str(address),
                "n_chunks": len(source.content_ids()),
                "embedder": stored_embedder_name(source),
            }
    except CandidateSourceError as error:
        return {"address": text, "error": str(error)}
    except SiftError as error:
        return {"address": text, "note": str(error)}


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
        "install": None if part.is_there else part.install,
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


def _show(found: dict[str, Any], parts: list[Part], faults: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=False)
    for facts in ("machine", "devices", "folders"):
        grid = Table.grid(padding=(0, 2))
        for name, value in found[facts].items():
            grid.add_row(f"[bold]{name}[/]", _plain(value))
        console.print(grid)
        console.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "part", "for", "installed"):
        table.add_column(heading)
    for part in parts:
        table.add_row(_mark(part), part.name, part.purpose, _versions(part, parts))
    console.print(table)
    _show_installs(console, parts)
    console.print()
    console.print(_plain(_store_line(found["store"])))
    for fault in faults:
        console.print(f"[bold red]✗[/] {_plain(fault)}")
    if not faults:
        console.print("[green]✓[/] nothing that is installed is at fault")


def _show_installs(console: Console, parts: list[Part]) -> None:
    absent = [part for part in parts if not part.is_there and not part.wrong]
    if absent:
        console.print("\nnot installed (– above); as far as you need it:")
    for part in absent:
        console.print(f"  {_plain(part.install)}")


def _mark(part: Part) -> str:
    if part.wrong:
        return "[bold red]✗[/]"
    return "[green]✓[/]" if part.is_there else "–"


def _versions(part: Part, parts: list[Part]) -> str:
    """Return what is installed of a part; packages of parts that it includes are in their rows."""
    included = [other for other in parts if other.names < part.names]
    theirs = set().union(*(other.names for other in included))
    own = [_version(package) for package in part.packages if package.name not in theirs]
    rows = f"all of {', '.join(other.name for other in included)}; " if included else ""
    return _plain(rows + ", ".join(own))


def _version(package: Package) -> str:
    if package.version is None:
        return f"{package.name} missing"
    return f"{package.name} {package.version}"


def _store_line(store: dict[str, Any]) -> str:
    if "n_chunks" in store:
        return f"store {store['address']}: {store['n_chunks']} chunks, by {store['embedder']}"
    return f"store {store['address']}: {store.get('error') or store['note']}"


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
