"""How many tokens a second does query-time fine-tuning learn on the device, and what is its peak?

Weights are random, since speed does not depend on their values, and of the shape of the model
named. One step learns one chunk. The peers are plain PEFT loops over the same chunks. Shares of the
peak count the arithmetic that a LoRA needs, whoever does how much of it.
"""

from __future__ import annotations

import gc

import torch

from benchmarks.fine_tuning import Effort, against_rivals
from benchmarks.fine_tuning_rivals import engine_steps, peft_steps
from benchmarks.fine_tuning_shapes import LLAMA_1B, SMOLLM2_135M, TINY, Shape
from benchmarks.gpu.device import name_of, peak_tflops, product_tflops
from benchmarks.report import Report
from sift_core.answering import FineTuningSettings, LanguageModel

N_TOKENS = (512, 2048)  # of a chunk
N_STEPS, N_ROUNDS = 21, 3
RANK = FineTuningSettings().rank


def measure(report: Report, device: torch.device, *, tiny: bool) -> None:
    """Measure steps of each shape and length of chunks."""
    product = product_tflops(device, 128 if tiny else 8192)
    peak = peak_tflops(name_of(device))
    effort = Effort(rounds=1, n_steps=3) if tiny else Effort(rounds=N_ROUNDS, n_steps=N_STEPS)
    for shape in shapes(tiny):
        models = [shape.language_model(torch.bfloat16, device=str(device)) for _ in range(3)]
        ways = {
            "ours": engine_steps(models[0]),
            "plain PEFT loop": peft_steps(models[1]),
            "plain PEFT loop, autocast": peft_steps(models[2], autocast=True),
        }
        for n_tokens in (32,) if tiny else N_TOKENS:
            report.heading(f"Steps: {shape.name}, bf16, chunks of {n_tokens} tokens")
            effort = effort._replace(n_tokens=n_tokens)
            seconds, over_ours = against_rivals(shape, ways, effort)
            flops = n_tokens * flops_a_token(models[0], n_tokens)
            for method, taken in seconds.items():
                tflops = flops / taken / 1e12
                report.add(
                    case=f"steps, {shape.name}, {n_tokens} tokens",
                    method=method,
                    weights="random",
                    ms=round(1000 * taken, 4),
                    over_ours=round(over_ours[method], 4),
                    tokens_a_second=round(n_tokens / taken, 1),
                    tflops=round(tflops, 5),
                    share_of_peak=None if peak is None else round(tflops / peak, 5),
                    share_of_product=round(tflops / product, 5),
                )
        del models, ways
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def shapes(tiny: bool) -> tuple[Shape, ...]:
    """Return the models that are measured."""
    return (TINY,) if tiny else (SMOLLM2_135M, LLAMA_1B)


def flops_a_token(language_model: LanguageModel, n_tokens: int) -> int:
    """Return the operations that one token of a chunk needs in a step, a product and a sum two.

    A frozen linear layer takes 2 forward and 2 for the gradient of its input; a LoRA's two matrices
    take 2 more for their own. Causal attention takes n / 2 keys a query, twice, and in the backward
    pass twice that.
    """
    config = language_model.model.config
    head = language_model.model.get_output_embeddings()
    layers = [
        module for module in language_model.model.modules() if isinstance(module, torch.nn.Linear)
    ]
    frozen = sum(layer.weight.numel() for layer in layers)
    lora = sum(RANK * (one.in_features + one.out_features) for one in layers if one is not head)
    width = config.num_attention_heads * config.head_dim
    return int(4 * frozen + 6 * lora + 6 * n_tokens * width * config.num_hidden_layers)
