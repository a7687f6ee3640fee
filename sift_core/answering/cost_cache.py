"""The cost model of a machine, kept in a file so that it is measured once."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import tempfile
from pathlib import Path

from sift_core.answering.cost_model import CostModel
from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.language_model import LanguageModel
from sift_core.cache_folder import default_cache_folder
from sift_core.errors import MissingDependencyError

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error

FORMAT = 1  # of the file and of what is measured: raise it when either changes
_logger = logging.getLogger(__name__)


def cached_cost_model(
    language_model: LanguageModel,
    settings: FineTuningSettings | None = None,
    *,
    folder: str | Path | None = None,
) -> CostModel:
    """Return the costs of a model on this machine: read, or measured once and written.

    Args:
        language_model: The model.
        settings: How it learns; the paper's if None.
        folder: Where the file is, `default_cache_folder()` if None; made where missing. Its
            name is a hash. A file that cannot be read or written is logged as a warning and
            does no harm: the costs are measured again.

    Raises:
        AnswerError: If the model fails while it is measured.
    """
    path = (
        Path(folder or default_cache_folder()) / f"cost-{cost_key(language_model, settings)}.json"
    )
    try:
        return CostModel.from_record(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        pass
    except (OSError, ValueError, RecursionError) as error:
        _logger.warning("the cost model in %s is of no use and is measured again: %s", path, error)
    measured = CostModel.measure(language_model, settings)
    try:
        _write(path, json.dumps(measured.as_record()))
    except OSError as error:
        _logger.warning("the cost model could not be kept in %s: %s", path, error)
    return measured


def cost_key(language_model: LanguageModel, settings: FineTuningSettings | None = None) -> str:
    """Return a hash of all that the costs depend on: model's shape, machine, settings, torch."""
    model = language_model.model
    config = model.config.to_dict()
    for name in ("_name_or_path", "transformers_version"):  # where from, not what
        config.pop(name, None)
    identity = {
        "format": FORMAT,
        "config": config,
        "dtype": str(model.dtype),
        "window": language_model.window,
        "device": _device_name(model.device),
        "n_threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "settings": (settings or FineTuningSettings()).as_record(),
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} {_processor()} {os.cpu_count()}"


def _processor() -> str:
    """Return the processor's name; that of the architecture where the system tells no more."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except (OSError, UnicodeDecodeError):
        pass
    return platform.processor() or platform.machine()


def _write(path: Path, text: str) -> None:
    """Write a file that a reader sees whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix=".cost-", suffix=".unfinished")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(unfinished, path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise
