"""The engine's imports, and one step of learning by a small model."""

import peft
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sift_core.answering import AnswerEngine

shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
model = LlamaForCausalLM(LlamaConfig(vocab_size=16, num_attention_heads=2, **shape))
model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"]))
tokens = torch.arange(8)[None]
model(input_ids=tokens, labels=tokens).loss.backward()
assert AnswerEngine.from_pretrained
