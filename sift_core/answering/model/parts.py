"""The parts of a causal LM that fine-tuning works with, found once a model and tried before use."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from sift_core.answering.model.adapters import AdaptedLayer, Adapter, AdapterLayout
from sift_core.answering.model.hooks import (
    LayerCall,
    LayerRecorder,
    LoraPair,
    activate_pairs,
    watch_calls,
    watch_linear,
)
from sift_core.answering.model.recomputing import watch_cheap
from sift_core.errors import InvalidInputError, MissingDependencyError

try:
    import torch
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


@dataclass(kw_only=True, eq=False)
class ModelParts:
    """Where the linear layers, the decoder layers and the head of a model are.

    Args:
        linears: Dotted name → every linear layer but the head.
        head_name: Dotted name of the output head.
        head: The output head; its weight may be the embeddings' own.
        trunk: All that comes before the head.
        layers: The decoder layers; none where they cannot be told.
        behind: Modules that may stand between the last layer and the head.
        layer_prefix: Dotted name of the list of decoder layers, and a dot.
        config: The model's configuration.
        module_names: Dotted names of all modules.
    """

    linears: Mapping[str, Any]
    head_name: str
    head: Any
    trunk: Any
    layers: Sequence[Any]
    behind: Sequence[Any]
    layer_prefix: str
    config: Any
    module_names: Sequence[str]
    _tried: dict[str, bool] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def modules(self) -> frozenset[Any]:
        """Return everything that an adapter may add to."""
        return frozenset([*self.linears.values(), self.head])

    @property
    def is_quantized(self) -> bool:
        """Return whether a linear layer's weights are no floating point numbers."""
        return any(
            not layer.weight.is_floating_point()
            or type(layer).__module__.startswith("bitsandbytes")
            for layer in self.linears.values()
        )

    @property
    def n_vocabulary(self) -> int:
        """Return the number of logits a token."""
        return _widths(self.head)[1]

    def layout(
        self,
        *,
        rank: int,
        n_top_layers: int | None = None,
        head: bool = False,
        lora: Any = None,
    ) -> AdapterLayout:
        """Return the layout of an adapter on all linear layers, the top ones' or the head.

        Args:
            rank: Of every update.
            n_top_layers: Of how many decoder layers, the last ones; None for all.
            head: Whether of the output head alone.
            lora: A `peft.LoraConfig` that names some of these layers; None for all.

        Raises:
            InvalidInputError: If the model has no such layers.
        """
        chosen = {self.head_name: self.head} if head else dict(self.linears)
        if lora is not None:
            chosen = self._named(lora, chosen)
        if not chosen:
            raise InvalidInputError(
                "the model has no linear layers of PyTorch, transformers or bitsandbytes that an "
                "adapter could add to; load it unquantised or through bitsandbytes"
            )
        if n_top_layers is not None:
            if not 1 <= n_top_layers <= len(self.layers):
                raise InvalidInputError(
                    f'`scope` must be at most "top:{len(self.layers)}" for a model of so many '
                    f'layers, got "top:{n_top_layers}"'
                    if self.layers
                    else 'the layers of this model cannot be told; pass the scope "all" or "head"'
                )
            first = len(self.layers) - n_top_layers
            starts = tuple(f"{self.layer_prefix}{i}." for i in range(first, len(self.layers)))
            chosen = {name: m for name, m in chosen.items() if name.startswith(starts)}
        return AdapterLayout(
            layers=tuple(
                AdaptedLayer(name=name, n_in=_widths(m)[0], n_out=_widths(m)[1])
                for name, m in chosen.items()
            ),
            rank=rank,
            fan_in_fan_out=any(isinstance(m, Conv1D) for m in chosen.values()),
        )

    def _named(self, lora: Any, in_scope: Mapping[str, Any]) -> dict[str, Any]:
        """Return the layers of a scope that a configuration of PEFT's names.

        Raises:
            InvalidInputError: If it names none, or something that is no linear layer.
        """
        from sift_core.answering.model.lora_config import is_all_linear, matcher

        if is_all_linear(lora) and set(in_scope) == {self.head_name}:
            return dict(in_scope)
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
        if set(in_scope) == set(self.linears):
            in_scope = known  # the head too, where it is named
        chosen = {name: module for name, module in in_scope.items() if is_named(name)}
        if not chosen:
            raise InvalidInputError(
                f"`target_modules` must name linear layers in scope, got "
                f"{lora.target_modules!r}; the model has {', '.join(list(self.linears)[:3])}, …"
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

    def pairs(self, adapter: Adapter, model: Any) -> dict[Any, LoraPair]:
        """Return layer → what an adapter adds to it, on the model's device, in its precision.

        Raises:
            InvalidInputError: If it was made for another model.
        """
        found = {}
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

    def hidden(self, model: Any, inputs: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Return what the head reads, shape (rows, n, width); the logits where that is unknown."""
        if not self._is_known(model, "head"):
            logits: torch.Tensor = model(
                input_ids=inputs, attention_mask=mask, use_cache=False
            ).logits
            return logits
        output: torch.Tensor = self.trunk(
            input_ids=inputs, attention_mask=mask, use_cache=False
        ).last_hidden_state
        return output

    def logits(self, model: Any, hidden: torch.Tensor) -> torch.Tensor:
        """Return float32 logits, shape (..., n_vocabulary), of what `hidden` returned."""
        return self._logits(hidden) if self._is_known(model, "head") else hidden.float()

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

    def can_repeat(self, model: Any) -> bool:
        """Return whether layers can be run one by one from a recorded hidden state."""
        return (
            bool(self.layers) and self._is_known(model, "head") and self._is_known(model, "layers")
        )

    def recorder(self) -> LayerRecorder:
        """Return a recorder of all decoder layers and what stands behind them."""
        return LayerRecorder(modules=frozenset([*self.layers, *self.behind]))

    def split(self, calls: Sequence[LayerCall]) -> tuple[list[LayerCall], list[LayerCall]]:
        """Return the calls of the layers, and of what was called after the last of them."""
        last = max(i for i, call in enumerate(calls) if call.module is self.layers[-1])
        layers = set(self.layers)
        return [call for call in calls[: last + 1] if call.module in layers], list(
            calls[last + 1 :]
        )

    def _is_known(self, model: Any, part: str) -> bool:
        """Return whether a part does what it is taken for, tried once."""
        if part not in self._tried:
            with self._lock:
                if part not in self._tried:
                    tried = self._head_is_right if part == "head" else self._layers_are_right
                    nothing = activate_pairs({}, instead_of=self.modules)
                    with torch.inference_mode(False), torch.no_grad(), nothing:
                        try:
                            self._tried[part] = tried(model)
                        except _OTHER_KIND_OF_MODEL as error:
                            if is_out_of_memory(error):
                                raise
                            self._tried[part] = False
        return self._tried[part]

    def _example(self, model: Any) -> torch.Tensor:
        n = min(8, model.get_input_embeddings().num_embeddings)
        return torch.arange(n, device=model.device)[None]

    def _head_is_right(self, model: Any) -> bool:
        inputs = self._example(model)
        expected = model(input_ids=inputs, use_cache=False).logits.float()
        hidden = self.trunk(input_ids=inputs, use_cache=False).last_hidden_state
        return _is_close(self._logits(hidden), expected)

    def _layers_are_right(self, model: Any) -> bool:
        recorder = self.recorder()
        with recorder.activated():
            expected = self.trunk(input_ids=self._example(model), use_cache=False).last_hidden_state
        layers, behind = self.split(recorder.calls)
        if [call.module for call in layers] != list(self.layers) or self._share_gradients(model):
            return False
        hidden = layers[0].hidden
        for call in (*layers, *behind):
            if not torch.equal(hidden, call.hidden):
                return False
            hidden = call.repeated(hidden)
        return torch.equal(hidden, expected)

    def _share_gradients(self, model: Any) -> bool:
        """Return whether something that learns reaches a layer beside its hidden state.

        As keys and values of another layer do in some models: the gradient through them would
        be lost where layers run one by one.
        """
        recorder = self.recorder()
        pairs = {}
        for module in self.linears.values():
            n_in, n_out = _widths(module)
            a = torch.zeros(1, n_in, device=model.device, dtype=model.dtype, requires_grad=True)
            b = torch.zeros(n_out, 1, device=model.device, dtype=model.dtype, requires_grad=True)
            pairs[module] = LoraPair(a=a, b=b, scale=1.0)
        with (
            torch.enable_grad(),
            activate_pairs(pairs, instead_of=self.modules),
            recorder.activated(),
        ):
            self.trunk(input_ids=self._example(model), use_cache=False)
        return any(tensor.requires_grad for call in recorder.calls for tensor in call.tensors())


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that memory ran out, of a GPU or of the machine."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(said in str(error) for said in _OUT_OF_MEMORY)


def _is_close(values: torch.Tensor, expected: torch.Tensor) -> bool:
    if values.shape != expected.shape:
        return False
    return float((values - expected).abs().max()) <= 1e-3 * float(expected.abs().max())


def _widths(linear: Any) -> tuple[int, int]:
    """Return (n_in, n_out) of a linear layer; a quantised one's weight has another shape."""
    if isinstance(linear, Conv1D):
        n_in, n_out = linear.weight.shape
        return int(n_in), int(n_out)
    return int(linear.in_features), int(linear.out_features)


# RuntimeError: shapes that do not fit, where layers keep a state between calls.
_OTHER_KIND_OF_MODEL = (TypeError, KeyError, AttributeError, ValueError, IndexError, RuntimeError)

_parts: WeakKeyDictionary[Any, ModelParts] = WeakKeyDictionary()
_parts_lock = threading.Lock()


def parts_of(model: Any) -> ModelParts:
    """Return the parts of a model, always the same; the first call puts hooks on its layers."""
    with _parts_lock:
        if model not in _parts:
            _parts[model] = _find(model)
        return _parts[model]


def _find(model: Any) -> ModelParts:
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
    layers, behind, prefix = [], [], ""
    if lists:
        layers, prefix = list(lists[0]), f"{names[lists[0]]}."
        owner = model.get_submodule(names[lists[0]].rpartition(".")[0])
        behind = [child for child in owner.children() if child is not lists[0]]
    for module in (*linears.values(), head):
        watch_linear(module)
    for module in (*layers, *behind):
        watch_calls(module)
    for module in names:
        watch_cheap(module)
    return ModelParts(
        linears=linears,
        head_name=names[head],
        head=head,
        trunk=None if trunk is model else trunk,  # as it is where the parts have no common names
        layers=layers,
        behind=behind,
        layer_prefix=prefix,
        config=config,
        module_names=list(names.values()),
    )
