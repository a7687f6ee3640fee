"""What `sift doctor` says of settings: where they come from, and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sift_core.cli.application import config_of, configurable_options
from sift_core.cli.command_options import CommandOption, unknown_variables, wrong_variable
from sift_core.cli.settings import (
    read_settings,
    settings_file,
    wrong_names,
    wrong_values,
)
from sift_core.cli.stores import API_KEY_VARIABLE, StoreAddress
from sift_core.errors import InvalidInputError, SiftError

SECRETS = (API_KEY_VARIABLE, "HF_TOKEN")
_HIDDEN = "(not shown: it may hold a secret)"


def settings_state(context: Any) -> dict[str, Any]:
    """Return all about the settings, for JSON: no value of a secret among it.

    Args:
        context: Typer's, of the command `doctor`.

    Returns:
        "file": the settings file, None if there is none; "keys": what it sets, as "store" and
        "[search] n-select"; "effective": value and origin of store, embedder and model;
        "secrets": "set" or "not set"; "faults" and "notes": sentences.
    """
    options = configurable_options()
    path, settings, faults = _read(config_of(context))
    if path is not None:
        faults += _file_faults(path, settings, options)
    faults += [
        str(wrong)
        for of_command in options.values()
        for option in of_command.values()
        if (wrong := wrong_variable(option)) is not None
    ]
    notes = [
        note
        for command, of_command in options.items()
        for note in unknown_variables(command, of_command, os.environ)
    ]
    return {
        "file": None if path is None else str(path),
        "keys": list(_keys(settings)),
        "effective": {
            name: _effective(context, options["doctor"][name], path)
            for name in ("store", "embedder", "model")
        },
        "secrets": {name: "set" if os.environ.get(name) else "not set" for name in SECRETS},
        "faults": list(dict.fromkeys(faults)),
        "notes": notes,
    }


def shown_store(text: str) -> str:
    """Return a store's address as it may be printed: hidden if it is none and may hold a key."""
    try:
        return str(StoreAddress.parse(text))
    except InvalidInputError:
        return _HIDDEN if "@" in text or "?" in text else text


def _read(config: Path | None) -> tuple[Path | None, dict[str, Any], list[str]]:
    path = None
    try:
        path = settings_file(config)
        return path, read_settings(path) if path else {}, []
    except SiftError as error:
        return path, {}, [str(error)]


def _file_faults(
    path: Path, settings: Mapping[str, Any], options: Mapping[str, Mapping[str, CommandOption]]
) -> list[str]:
    faults = list(wrong_names(path, settings, options))
    for command, of_command in options.items():
        faults += wrong_values(path, settings, command, of_command)
    tables = {"": settings, **{name: settings.get(name) for name in options}}
    for name, table in tables.items():
        store = table.get("store") if isinstance(table, dict) else None
        if isinstance(store, str):
            try:
                StoreAddress.parse(store)
            except InvalidInputError as error:
                place = f" in [{name}]" if name else ""
                faults.append(
                    f"the settings file {str(path)!r} has a store{place} of no use: {error}"
                )
    return faults


def _keys(settings: Mapping[str, Any]) -> Iterator[str]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from (f"[{key}] {inner}" for inner in value)
        else:
            yield key


def _effective(context: Any, option: CommandOption, path: Path | None) -> dict[str, Any]:
    """Return value and origin of a setting as `doctor` got it."""
    value = context.params[option.parameter]
    if option.flag == "store":
        value = shown_store(value)
    source = context.get_parameter_source(option.parameter)
    origin, name = {
        "COMMANDLINE": ("flag", f"--{option.flag}"),
        "ENVIRONMENT": ("environment", option.variable),
        "DEFAULT_MAP": ("file", str(path)),
    }.get(source.name if source else "", ("default", None))
    return {"value": value, "from": origin, "name": name}
