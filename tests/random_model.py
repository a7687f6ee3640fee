"""A small random causal model on disk, in place of one from a hub: it answers at once, nonsense."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

END = "<|endoftext|>"

# Words that are a token each, as those that tests use often are to a trained tokenizer.
WORDS = """
a above address after all an and answer archive are as at away be bend big black boil book books
box boxes by call called can cat cats climate copy corner count cow cups day delete dictionary do
does dog each empty extract file files first fold folder folders folding for four from function
glass go green has have house how in into is it its kettle keep keys leaf leave lid light limit
list long make many matter member members minutes moon most mountain name no not of on one open
opened or order over painted passage plants print question rain read reader reads red return
returned returns river room rows says second sees several shelf sky sort source stands sugar sun
table take takes tea test text than that the their them then there they this time times to tree
turn two under unpack up use wait walk warm water what when where which while who why will with
word words write years you
"""


def save_random_model(folder: Path, *, window: int = 1024) -> Path:
    """Write a Llama of 330,000 random weights with a byte-level BPE tokenizer to `folder`.

    The same at every call. Its window has `window` tokens, bytes can be tokens, and it has no chat
    template. The weights are large enough for answers that repeat no single token.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=800,
        special_tokens=[AddedToken(END, special=True)],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" " + " ".join(WORDS.split())], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END, eos_token=END, pad_token=END
    )
    fast.model_max_length = window
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=96,
        intermediate_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=window,
        tie_word_embeddings=True,
        initializer_range=0.1,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder
