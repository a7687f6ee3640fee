"""The layers of a causal LM, found once a model, and the adapters of one flow of control alone.

Every linear layer of a model has one hook for good. It asks a context variable for the adapter
of the thread or asyncio task that is computing, so that nobody sees another one's and nothing
has to be put back. Nothing is merged, wrapped or written to.

This is why PEFT's layers are not used: they hold their adapters in the model, where two threads
see each other's, and `disable_adapter` switches for everyone at once.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

from sift_core.answering.model.adapters import AdaptedLayer, Adapter, AdapterLayout
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.progress import check_of_work

try:
    import torch
    from torch.nn import functional
    from transformers.activations import NewGELUActivation
    from transformers.pytorch_utils import Conv1D
except ImportError as error:
    raise MissingDependencyError("torch and transformers", extra="fine-tune") from error

MEMORY_ERRORS = (RuntimeError, MemoryError)  # what running out of memory is raised as
_OUT_OF_MEMORY = (
    "can't allocate memory",  # Linux and macOS
    "not enough memory",  # Windows
    "out of memory",  # CUDA, MPS
    "bad_alloc",
    "ALLOC_FAILED",  # cuBLAS, cuDNN
)


@dataclass(frozen=True, kw_only=True, eq=False)
class LoraPair:
    """A and B of one layer as they are computed with.

    Args:
        a: Shape (rank, n_in).
        b: Shape (n_out, rank).
        scale: What the update is multiplied by.
    """

    a: torch.Tensor
    b: torch.Tensor
    scale: float

    def added_to(self, output: torch.Tensor, x: torch.Tensor, *, in_place: bool) -> torch.Tensor:
        """Return output + scale x Aᵀ Bᵀ; x (..., n_in), output (..., n_out)."""
        x = x.to(self.a.dtype)
        low = functional.linear(x, self.a)
        check = check_of_work()
        if check is not None and low.requires_grad:
            low.register_hook(lambda _: check(0.0))  # type: ignore[no-untyped-call]  # on the way back
        low = low.flatten(0, -2)
        flat = output.flatten(0, -2)
        if output.dtype != self.a.dtype:
            return output.add((low @ self.b.t()).view_as(output).to(output.dtype), alpha=self.scale)
        if in_place:
            flat.addmm_(low, self.b.t(), alpha=self.scale)
            return output
        return torch.addmm(flat, low, self.b.t(), alpha=self.scale).view_as(output)


_pairs: ContextVar[Mapping[Any, LoraPair] | None] = ContextVar("sift_lora_pairs", default=None)
_learned: ContextVar[Mapping[Any, Adapter | None]] = ContextVar(
    "sift_learned", default=MappingProxyType({})
)


def active(model: Any) -> Adapter | None:
    """Return the adapter that is active in this thread or task; None if there is none."""
    return _learned.get().get(model)


@contextmanager
def activate(model: Any, learned: Adapter | None) -> Iterator[None]:
    """Let `active` return what was learned for the `with` block, in this flow of control alone."""
    token = _learned.set({**_learned.get(), model: learned})
    try:
        yield
    finally:
        _learned.reset(token)


def active_pairs() -> Mapping[Any, LoraPair]:
    """Return layer → the update that it adds in this flow of control, of all models."""
    return _pairs.get() or {}


@contextmanager
def activate_pairs(
    modules: Mapping[Any, LoraPair], *, instead_of: frozenset[Any]
) -> Iterator[None]:
    """Let layers add these updates for the `with` block, in this flow of control alone.

    Args:
        modules: Layer → its update.
        instead_of: Layers of the same model; an update of theirs that is active is not,
            meanwhile.
    """
    others = {m: pair for m, pair in active_pairs().items() if m not in instead_of}
    token = _pairs.set({**others, **modules} or None)
    try:
        yield
    finally:
        _pairs.reset(token)


def watch_linear(module: Any) -> None:
    """Let adapters add to what a linear layer puts out, and let the work end there."""
    if _add_update not in module._forward_hooks.values():  # a copied model has its hooks already
        module.register_forward_hook(_add_update, with_kwargs=True)


def _add_update(
    module: Any, args: tuple[Any, ...], options: dict[str, Any], output: torch.Tensor
) -> torch.Tensor | None:
    if (check := check_of_work()) is not None:
        check(0.0)  # a pass over a long text may take half a minute
    pair = active_pairs().get(module)
    if pair is None:
        return None
    # The output of these two is nobody's but ours; a quantised layer's may be a view.
    x = args[0] if args else next(iter(options.values()))
    return pair.added_to(output, x, in_place=type(module) in (torch.nn.Linear, Conv1D))


@dataclass(kw_only=True, eq=False)
class ModelLayers:
    """Where the linear layers, the decoder layers and the head of a model are.

    Args:
        linears: Dotted name → every linear layer but the head.
        head_name: Dotted name of the output head.
        head: The output head; its weight may be the embeddings' own.
        trunk: All that comes before the head.
        decoder_layers: The decoder layers. Empty if they cannot be found.
        slow_gelus: GPT-2's activations. Transformers spells them out in seven operations whose
            results are kept for the gradient, two fifths of what a step holds. PyTorch has one.
        config: The model's configuration.
        module_names: Dotted names of all modules.
        model: The model.
    """

    linears: Mapping[str, Any]
    head_name: str
    head: Any
    trunk: Any
    decoder_layers: Sequence[Any]
    slow_gelus: Sequence[Any]
    config: Any
    module_names: Sequence[str]
    model: weakref.ref[Any]
    _knows_head: bool | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def modules(self) -> frozenset[Any]:
        """Return everything that an adapter may add to."""
        return frozenset([*self.linears.values(), self.head])

    @property
    def n_vocabulary(self) -> int:
        """Return the number of logits a token."""
        return _widths(self.head)[1]

    def layout(self, *, rank: int, lora: Any = None) -> AdapterLayout:
        """Return the layout of an adapter.

        Args:
            rank: Of every update.
            lora: A `peft.LoraConfig` that names some layers. Default: every linear layer but the
                head.

        Raises:
            InvalidInputError: If the model has no such layers.
        """
        chosen = self.linears if lora is None else self._named(lora)
        if not chosen:
            raise InvalidInputError(
                "the model has no linear layers of PyTorch, transformers or bitsandbytes that an "
                "adapter could add to; load it unquantised or through bitsandbytes"
            )
        return AdapterLayout(
            layers=tuple(
                AdaptedLayer(name=name, n_in=_widths(m)[0], n_out=_widths(m)[1])
                for name, m in chosen.items()
            ),
            rank=rank,
            fan_in_fan_out=any(isinstance(m, Conv1D) for m in chosen.values()),
        )

    def _named(self, lora: Any) -> Mapping[str, Any]:
        """Return the layers that a configuration of PEFT's names.

        Raises:
            InvalidInputError: If it names none, or something that is no linear layer.
        """
        from sift_core.answering.model.adapters import is_all_linear, matcher

        if is_all_linear(lora) and not self.linears:
            return {}
        is_named = matcher(lora, self.config.model_type, self.linears)
        known = dict(self.linears)
        if not is_all_linear(lora):
            known[self.head_name] = self.head
            for name in filter(is_named, self.module_names):
                if name not in known:
                    raise InvalidInputError(
                        f"`target_modules` names {name!r}, which is no linear layer; an adapter "
                        f"adds to linear layers alone"
                    )
        chosen = {name: module for name, module in known.items() if is_named(name)}
        if not chosen:
            raise InvalidInputError(
                f"`target_modules` must name linear layers, got {lora.target_modules!r}; the "
                f"model has {', '.join(list(self.linears)[:3])}, …"
            )
        return chosen

    def module(self, name: str) -> Any:
        """Return a layer that an adapter adds to.

        Raises:
            InvalidInputError: If the model has none of that name.
        """
        found = self.head if name == self.head_name else self.linears.get(name)
        if found is None:
            raise InvalidInputError(
                f"the adapter adds to a layer {name!r} that the model does not have; use it with "
                f"the model that it was made for"
            )
        return found

    def pairs(self, adapter: Adapter) -> dict[Any, LoraPair]:
        """Return layer → what an adapter adds to it, on the model's device, in its precision.

        Raises:
            InvalidInputError: If it was made for another model.
        """
        found = {}
        model: Any = self.model()
        values = adapter.values.to(model.device, model.dtype)
        for name, (a, b) in adapter.layout.pairs(values).items():
            module = self.module(name)
            ours, expected = (a.shape[-1], b.shape[-2]), _widths(module)
            if ours != expected:
                raise InvalidInputError(
                    f"the adapter's layer {name!r} is {ours[0]} → {ours[1]}, the model's "
                    f"{expected[0]} → {expected[1]}; use it with the model that it was made for"
                )
            found[module] = LoraPair(a=a, b=b, scale=adapter.scale)
        return found

    def hidden(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return what the head reads, shape (rows, n, width); the logits where that is unknown."""
        if self.knows_head:
            output: torch.Tensor = self.trunk(input_ids=inputs, use_cache=False).last_hidden_state
            return output
        model: Any = self.model()
        logits: torch.Tensor = model(input_ids=inputs, use_cache=False).logits
        return logits

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return float32 logits, shape (..., n_vocabulary), of what `hidden` returned."""
        return self._logits(hidden) if self.knows_head else hidden.float()

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(hidden)
        scale = getattr(self.config, "logit_scale", None)  # Cohere
        divisor = getattr(self.config, "logits_scaling", None)  # Granite
        cap = getattr(self.config, "final_logit_softcapping", None)  # Gemma 2
        if scale is not None:
            logits = logits * scale
        if divisor is not None:
            logits = logits / divisor
        if cap is not None:
            logits = torch.tanh(logits / cap) * cap
        return logits.float()

    @property
    def knows_head(self) -> bool:
        """Return whether trunk and head, one after the other, are the model; tried once."""
        if self._knows_head is None:
            with self._lock:
                if self._knows_head is None:
                    self._knows_head = self._tried_head()
        return self._knows_head

    def _tried_head(self) -> bool:
        model: Any = self.model()
        n = min(8, model.get_input_embeddings().num_embeddings)
        inputs = torch.arange(n, device=model.device)[None]
        nothing = activate_pairs({}, instead_of=self.modules)
        with torch.inference_mode(False), torch.no_grad(), nothing:
            try:
                expected = model(input_ids=inputs, use_cache=False).logits.float()
                hidden = self.trunk(input_ids=inputs, use_cache=False).last_hidden_state
                found = self._logits(hidden)
            except _OTHER_KIND_OF_MODEL as error:
                if is_out_of_memory(error):
                    raise
                return False
        if found.shape != expected.shape:
            return False
        return float((found - expected).abs().max()) <= 1e-3 * float(expected.abs().max())


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that memory ran out, of a GPU or of the machine."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(said in str(error) for said in _OUT_OF_MEMORY)


def _widths(linear: Any) -> tuple[int, int]:
    """Return (n_in, n_out) of a linear layer; a quantised one's weight has another shape."""
    if isinstance(linear, Conv1D):
        n_in, n_out = linear.weight.shape
        return int(n_in), int(n_out)
    return int(linear.in_features), int(linear.out_features)


# RuntimeError: shapes that do not fit, where layers keep a state between calls.
_OTHER_KIND_OF_MODEL = (TypeError, KeyError, AttributeError, ValueError, IndexError, RuntimeError)

_layers: WeakKeyDictionary[Any, ModelLayers] = WeakKeyDictionary()
_layers_lock = threading.Lock()


def layers_of(model: Any) -> ModelLayers:
    """Return the layers of a model, always the same; the first call puts hooks on its layers."""
    with _layers_lock:
        if model not in _layers:
            _layers[model] = _find(model)
        return _layers[model]


def _find(model: Any) -> ModelLayers:
    head = model.get_output_embeddings()
    if head is None:
        raise InvalidInputError(
            "the model has no output head over a vocabulary; load it by `AutoModelForCausalLM`"
        )
    names = {module: name for name, module in model.named_modules()}
    linears = {
        name: module
        for module, name in names.items()
        if isinstance(module, torch.nn.Linear | Conv1D) and module is not head
    }
    trunk = model.base_model
    config = model.config.get_text_config()
    decoder = model.get_decoder() or trunk
    lists = [
        module
        for module in decoder.modules()
        if isinstance(module, torch.nn.ModuleList)
        and len(module) == getattr(config, "num_hidden_layers", None)
    ]
    for module in (*linears.values(), head):
        watch_linear(module)
    return ModelLayers(
        linears=linears,
        head_name=names[head],
        head=head,
        trunk=None if trunk is model else trunk,  # then the model is taken as it is
        decoder_layers=list(lists[0]) if lists else [],
        slow_gelus=[module for module in names if type(module) is NewGELUActivation],
        config=config,
        module_names=list(names.values()),
        model=weakref.ref(model),
    )
