"""What `sift doctor` looks at: distributions, devices, and the folders that are written to."""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from sift_core.cache_folder import default_cache_folder
from sift_core.errors import MissingDependencyError

try:
    from packaging.requirements import Requirement
except ImportError as error:
    raise MissingDependencyError("packaging", extra="cli") from error

DISTRIBUTION = "sift-rerank"
INTEGRATIONS = ("langchain-sift", "llama-index-postprocessor-sift")
PURPOSES = {
    "cli": "the sift command",
    "demo": "an embedding model; make demo",
    "eval": "sift eval",
    "faiss": "Faiss indexes",
    "faiss-gpu": "Faiss indexes on a GPU",
    "fast": "compiled selection",
    "files": "PDF and HTML for sift index",
    "fine-tune": "answers by a language model",
    "index": "cutting files into chunks",
    "qdrant": "Qdrant collections",
    "qdrant-edge": "Qdrant's engine in this process",
    "ray": "experiments on several machines",
}
_FOR_NVIDIA = {"faiss-gpu"}  # extras that are of no use without such a GPU
_MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Package:
    """One requirement and what is installed of it.

    Args:
        name: Of the distribution.
        needed: The versions that will do, for instance ">=1.16"; "" for any.
        version: Installed; None if it is not.
    """

    name: str
    needed: str
    version: str | None
    is_right: bool

    @property
    def is_wrong(self) -> bool:
        """Whether it is installed in a version that will not do."""
        return self.version is not None and not self.is_right


@dataclass(frozen=True, kw_only=True)
class Part:
    """Something that can be installed as one, and what it is for.

    Args:
        name: An extra, or a distribution of its own.
        purpose: What it is for.
        install: The command that brings what is missing.
        packages: What it needs.
        is_of_use: Whether this machine could use it.
    """

    name: str
    purpose: str
    install: str
    packages: tuple[Package, ...]
    is_of_use: bool = True

    @property
    def names(self) -> frozenset[str]:
        """The distributions that it needs."""
        return frozenset(package.name for package in self.packages)

    @property
    def missing(self) -> tuple[Package, ...]:
        """What is not installed."""
        return tuple(package for package in self.packages if package.version is None)

    @property
    def wrong(self) -> tuple[Package, ...]:
        """What is installed in a version that will not do."""
        return tuple(package for package in self.packages if package.is_wrong)

    @property
    def is_there(self) -> bool:
        """Whether all of it is installed, in versions that will do."""
        return all(package.is_right for package in self.packages)


def extras() -> list[Part]:
    """Return the extras of this distribution that have packages of their own, by name.

    Raises:
        MissingDependencyError: If this is not an installed distribution.
    """
    try:
        described = metadata.metadata(DISTRIBUTION)
    except metadata.PackageNotFoundError as error:
        raise MissingDependencyError(DISTRIBUTION, extra="cli") from error
    names = described.get_all("Provides-Extra") or []
    return [part for name in sorted(names) if (part := _extra(name)).packages]


def integrations() -> list[Part]:
    """Return what is installed of the distributions for frameworks, and what they need."""
    found = []
    for name in INTEGRATIONS:
        version = _version_of(name)
        needed = packages_of(name) if version else ()
        own = Package(name=name, needed="", version=version, is_right=version is not None)
        found.append(
            Part(
                name=name,
                purpose="LangChain" if "langchain" in name else "LlamaIndex",
                install=_install(name),
                packages=(own, *needed),
            )
        )
    return found


def packages_of(distribution: str, *, extra: str = "") -> tuple[Package, ...]:
    """Return what an installed distribution asks for on this machine.

    Args:
        distribution: Its name.
        extra: What it asks for because of that extra alone; "" for what it always asks for.
    """
    requirements = map(Requirement, metadata.requires(distribution) or [])
    return tuple(_states(requirements, extra))


def machine() -> dict[str, str]:
    """Return what this machine is, by name."""
    pages, size = (os.sysconf(key) for key in ("SC_PHYS_PAGES", "SC_PAGE_SIZE"))
    return {
        "sift-rerank": _version_of(DISTRIBUTION) or "not installed",
        "Python": platform.python_version(),
        "system": platform.platform(terse=True),
        "cores": str(_usable_cores()),
        "memory": f"{pages * size / _MIB / 1024:.1f} GiB",
    }


def devices() -> dict[str, str]:
    """Return what can compute here, by the package that would; packages that fail say how."""
    found = {}
    for name, look in {"torch": _torch_devices, "faiss": _faiss_devices}.items():
        try:
            found[name] = look(import_module(name))
        except ModuleNotFoundError:
            continue
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            found[name] = f"broken: {str(error).strip().splitlines()[0]}"
    return found


def folders() -> dict[str, str]:
    """Return where this library would write, and whether there it can."""
    return {
        name: _state_of(folder)
        for name, folder in {"here": Path.cwd(), "caches": default_cache_folder()}.items()
    }


def has_nvidia_gpu() -> bool:
    """Return whether NVIDIA's driver lists a GPU; it is asked by nvidia-smi."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        listed = subprocess.run(
            [program, "-L"], capture_output=True, text=True, errors="replace", timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and "GPU " in listed.stdout


def _extra(name: str) -> Part:
    return Part(
        name=name,
        purpose=PURPOSES.get(name, ""),
        install=_install(DISTRIBUTION, extra=name),
        packages=packages_of(DISTRIBUTION, extra=name),
        is_of_use=name not in _FOR_NVIDIA or has_nvidia_gpu(),
    )


def _install(name: str, *, extra: str = "") -> str:
    """Return how to install a distribution: from the folder that it, or ours, came from."""
    bracket = f"[{extra}]" if extra else ""
    origin = _origin(name)
    if origin is None and name in INTEGRATIONS and (ours := _origin(DISTRIBUTION)):
        origin = (ours[0] / "integrations" / name, ours[1])
    if origin is not None and origin[0].is_dir():
        option = "-e " if origin[1] else ""
        return f"pip install {option}{shlex.quote(f'{origin[0]}{bracket}')}"
    return f"pip install --upgrade {shlex.quote(f'{name}{bracket}')}"


def _origin(name: str) -> tuple[Path, bool] | None:
    """Return the folder that a distribution was installed from, and whether editable; or None."""
    try:
        recorded = metadata.distribution(name).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    if recorded is None:
        return None
    url = json.loads(recorded)
    if "dir_info" not in url:
        return None
    folder = Path(url2pathname(urlsplit(url["url"]).path))
    return folder, bool(url["dir_info"].get("editable"))


def _states(requirements: Iterator[Requirement], extra: str) -> Iterator[Package]:
    for requirement in requirements:
        marker = requirement.marker
        applies = marker is None or marker.evaluate({"extra": extra})
        is_ours = marker is not None and "extra" in str(marker)
        if not applies or is_ours != bool(extra) or requirement.name == DISTRIBUTION:
            continue
        version = _version_of(requirement.name)
        yield Package(
            name=requirement.name,
            needed=str(requirement.specifier),
            version=version,
            is_right=version is not None
            and requirement.specifier.contains(version, prereleases=True),
        )


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _usable_cores() -> int:
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _torch_devices(torch: Any) -> str:
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        names.append("mps")
    threads = f"cpu, {torch.get_num_threads()} threads"
    return ", ".join(["no GPU" if not names else "cuda: " + " + ".join(names), threads])


def _faiss_devices(faiss: Any) -> str:
    n_gpus = faiss.get_num_gpus() if hasattr(faiss, "get_num_gpus") else 0
    return f"{n_gpus or 'no'} GPU{'s' * (n_gpus > 1)}, {faiss.omp_get_max_threads()} threads"


def _state_of(folder: Path) -> str:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    may = "writable" if os.access(existing, os.W_OK) else "NOT writable"
    free = shutil.disk_usage(existing).free / _MIB / 1024
    return f"{folder}: {may}, {free:.1f} GiB free"
