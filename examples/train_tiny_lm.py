"""Train the tiny base model in examples/tiny_lm on the first half of the mini-Pile.

    python examples/train_tiny_lm.py --data FOLDER/minipile --minutes 90

Only documents whose sha1(doc) hex digest ends in 0-7 are read; the other half stays
unseen, as a data space for evaluation. The learning rate follows the clock, so a slow
machine trains on less text and still ends its schedule. Ctrl-C stops early and saves.
`--card` measures bits per byte per domain afterwards and writes the model card.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import lzma
import math
import os
import platform
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = Path(__file__).parent
END_OF_TEXT = "<|endoftext|>"
WINDOW = 1024  # tokens; the model is trained at the full window it is used with
SHORT_WINDOW = 256  # tokens; the first part of training learns faster on short rows
SHORT_SHARE = 0.65  # of the time budget; a guess
MICRO_BATCH_TOKENS = 2048  # a forward pass; larger ones are slower on a CPU (measured)
SHAPES = {  # both stay under 40 MB in bf16
    "cpu": dict(hidden_size=256, intermediate_size=672, num_hidden_layers=8, num_attention_heads=4),
    "cuda": dict(
        hidden_size=384, intermediate_size=1024, num_hidden_layers=9, num_attention_heads=6
    ),
}


def is_trained_on(doc: str) -> bool:
    """Return whether the document belongs to the half that the model may see."""
    return hashlib.sha1(doc.encode()).hexdigest()[-1] in "01234567"


def is_validation(doc: str) -> bool:
    """Return whether a document of that half is kept for the validation loss (1 in 64)."""
    return int(hashlib.sha1(doc.encode()).hexdigest()[-3:-1], 16) % 64 == 0


def read_documents(path: Path) -> Iterator[dict[str, str]]:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def train_tokenizer(texts: list[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer; digits stand alone so that numbers share tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        model_max_length=WINDOW,
        clean_up_tokenization_spaces=False,
    )


def pack(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> torch.Tensor:
    """Return token ids as rows of one window plus one, each text preceded by its mark."""
    ids: list[int] = []
    for start in range(0, len(texts), 1000):
        for row in tokenizer(texts[start : start + 1000], verbose=False)["input_ids"]:
            ids.append(tokenizer.bos_token_id)
            ids.extend(row)
    n_rows = (len(ids) - 1) // WINDOW
    flat = torch.tensor(ids[: n_rows * WINDOW + 1], dtype=torch.int32)
    return flat.unfold(0, WINDOW + 1, WINDOW)


def shorten(rows: torch.Tensor) -> torch.Tensor:
    """Return the same text as rows of one short window plus one."""
    return rows.unfold(1, SHORT_WINDOW + 1, SHORT_WINDOW).flatten(0, 1)


def next_token_loss(model: LlamaForCausalLM, rows: torch.Tensor) -> torch.Tensor:
    hidden = model.model(rows[:, :-1], use_cache=False).last_hidden_state
    logits = functional.linear(hidden.flatten(0, 1), model.lm_head.weight)
    return functional.cross_entropy(logits.float(), rows[:, 1:].flatten())


def learning_rate_factor(progress: float) -> float:
    """Return the factor at a share of the time budget: linear warm-up, cosine to zero."""
    warm_up = 0.03
    if progress < warm_up:
        return progress / warm_up
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (progress - warm_up) / (1 - warm_up))))


def optimizers_of(model: LlamaForCausalLM) -> list[torch.optim.Optimizer]:
    """Return Muon for the layers' matrices and AdamW for the rest, both at AdamW's rates."""
    layers = [p for p in model.model.layers.parameters() if p.ndim == 2]
    embedding = [model.model.embed_tokens.weight]  # the head too: they are tied
    others = [p for p in model.parameters() if p.ndim < 2]
    return [
        torch.optim.Muon(layers, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(
            [{"params": embedding, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
            betas=(0.9, 0.98),
        ),
    ]


def train(arguments: argparse.Namespace) -> None:
    torch.manual_seed(arguments.seed)
    device = arguments.device
    seen = [d for d in read_documents(arguments.data / "train.jsonl.xz") if is_trained_on(d["doc"])]
    train_texts = [d["text"] for d in seen if not is_validation(d["doc"])]
    validation_texts = [d["text"] for d in seen if is_validation(d["doc"])]
    tokenizer = train_tokenizer(train_texts, arguments.vocab_size)
    tokenizer.save_pretrained(arguments.output)

    generator = torch.Generator().manual_seed(arguments.seed)
    order = torch.randperm(len(train_texts), generator=generator).tolist()
    rows = pack(tokenizer, [train_texts[i] for i in order])
    validation = pack(tokenizer, validation_texts)[:16].long().to(device)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            max_position_embeddings=WINDOW,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            attn_implementation="sdpa",
            **SHAPES["cuda" if device == "cuda" else "cpu"],
        )
    ).to(device)
    n_parameters = sum(p.numel() for p in model.parameters())
    print(f"{n_parameters / 1e6:.1f} M parameters, {rows.numel() / 1e6:.1f} M tokens an epoch")

    optimizers = optimizers_of(model)

    def validation_loss() -> float:
        with torch.inference_mode():
            losses = [next_token_loss(model, part) for part in validation.split(2)]
        return float(torch.stack(losses).mean())

    started = time.monotonic()
    budget_s = arguments.minutes * 60
    n_tokens, step, next_report = 0, 0, 0.1
    bar = tqdm(total=round(budget_s), unit="s")
    try:
        while (elapsed := time.monotonic() - started) < budget_s:
            start = step * arguments.batch_size % len(rows)
            batch = rows[start : start + arguments.batch_size].long().to(device)
            if elapsed / budget_s < SHORT_SHARE:
                batch = shorten(batch)
            factor = learning_rate_factor(elapsed / budget_s)
            for group in (group for one in optimizers for group in one.param_groups):
                group["lr"] = arguments.learning_rate * factor
            loss_sum = 0.0
            for part in batch.split(MICRO_BATCH_TOKENS // (batch.shape[1] - 1)):
                with torch.autocast(device, torch.bfloat16):  # 1.5 times as fast on a CPU too
                    loss = next_token_loss(model, part) * len(part) / len(batch)
                loss.backward()
                loss_sum += float(loss.detach())
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            step += 1
            n_tokens += batch[:, 1:].numel()
            bar.set_postfix_str(f"step {step}, {n_tokens / 1e6:.2f} M tokens, loss {loss_sum:.3f}")
            bar.update(min(round(time.monotonic() - started), bar.total) - bar.n)
            if elapsed / budget_s > next_report:
                next_report += 0.1
                bar.write(f"{elapsed:6.0f} s  step {step}  validation {validation_loss():.4f}")
                save(model, arguments.output)  # what a killed run leaves behind
    except KeyboardInterrupt:
        bar.write("stopped early")
    save(model, arguments.output)
    bar.close()

    record = {
        "parameters": n_parameters,
        "tokens": n_tokens,
        "epochs": round(n_tokens / rows.numel(), 2),
        "steps": step,
        "minutes": round((time.monotonic() - started) / 60, 1),
        "validation_loss_nats_per_token": round(validation_loss(), 4),
        "batch_tokens": arguments.batch_size * WINDOW,
        "learning_rate": arguments.learning_rate,
        "seed": arguments.seed,
        "device": torch.cuda.get_device_name()
        if device == "cuda"
        else f"{os.cpu_count()} CPU cores",
        "machine": platform.machine(),
        "torch": torch.__version__,
    }
    (arguments.output / "training.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


def save(model: LlamaForCausalLM, folder: Path) -> None:
    """Write the weights in bf16; the model in training stays as it is."""
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)


CARD = """---
license: mit
library_name: transformers
pipeline_tag: text-generation
---

# tiny_lm

A causal language model of {parameters:.1f} M parameters (Llama architecture, window of {window}
tokens, byte-level BPE with {vocabulary} tokens, bf16), trained from scratch by
`examples/train_tiny_lm.py`. It exists so that every part of this project can be run and
measured for real without a model hub. It knows the shape of text, not facts: do not use
it for anything else.

- **Data:** the documents of the mini-Pile (12 domains of openly licensed text, part of it
  share-alike, such as Wikipedia's) whose `sha1(doc)` hex digest ends in 0-7. The other
  half is unseen, for use as a data space. The mini-Pile is not part of this repository. Its
  code holds CPython 3.11's library: the model has seen 244 of its 547 pieces, so figures on
  Python's own docstrings, as in `make demo`, flatter it in all modes.
- **Training:** {minutes:.0f} minutes on {device} ({machine}), shared with other work;
  {tokens:.1f} M tokens ({epochs} epochs) in {steps} steps of {batch_tokens}, Muon for the layers'
  matrices, AdamW for the rest, learning rate {learning_rate}, seed {seed}, torch {torch}. The first
  {short_share:.0%} of the time on rows of {short_window} tokens, the rest on rows of {window}.
- **Evaluation:** bits per byte by rolling windows on the mini-Pile's test_dev part
  ({n_documents} documents, sources disjoint from training), all bytes of a domain together:
  `python examples/train_tiny_lm.py --data FOLDER/minipile --card`.

| domain | documents | bits per byte |
|---|---|---|
{rows}
| **all** | {n_documents} | **{total:.3f}** |
"""


def write_card(arguments: argparse.Namespace) -> None:
    """Measure bits per byte per domain of the test set and write the model card."""
    from sift_core.answering import LanguageModel

    language_model = LanguageModel.from_pretrained(arguments.output, device=arguments.device)
    bits: dict[str, float] = defaultdict(float)
    n_bytes: dict[str, int] = defaultdict(int)
    n_documents: dict[str, int] = defaultdict(int)
    documents = list(read_documents(arguments.data / "test_dev.jsonl.xz"))
    for document in tqdm(documents, desc="bits per byte"):
        size, domain = len(document["text"].encode()), document["domain"]
        bits[domain] += language_model.bits_per_byte(document["text"]) * size
        n_bytes[domain] += size
        n_documents[domain] += 1
    training = json.loads((arguments.output / "training.json").read_text())
    rows = [f"| {d} | {n_documents[d]} | {bits[d] / n_bytes[d]:.3f} |" for d in sorted(bits)]
    card = CARD.format(
        **{
            **training,
            "parameters": training["parameters"] / 1e6,
            "tokens": training["tokens"] / 1e6,
        },
        window=WINDOW,
        short_window=SHORT_WINDOW,
        short_share=SHORT_SHARE,
        vocabulary=len(language_model.tokenizer),
        n_documents=len(documents),
        rows="\n".join(rows),
        total=sum(bits.values()) / sum(n_bytes.values()),
    )
    (arguments.output / "README.md").write_text(card, encoding="utf-8")
    print(card)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the mini-Pile")
    parser.add_argument("--output", type=Path, default=HERE / "tiny_lm")
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--batch-size", type=int, default=2, help="windows of 1024 tokens a step")
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--card", action="store_true", help="do not train; write the model card")
    arguments = parser.parse_args()
    (write_card if arguments.card else train)(arguments)


if __name__ == "__main__":
    main()
