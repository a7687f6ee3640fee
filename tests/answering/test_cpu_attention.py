"""Attention by whole products: the same as PyTorch's fused one, and only where it is plain."""

import copy

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from sift_core.answering import FineTuningSettings, LanguageModel, fine_tune
from sift_core.answering.model import cpu_attention
from sift_core.answering.model.cpu_attention import FUSED, NAME, attend_by_products

N_ROWS, N_HEADS, N_GROUPS, WIDTH = 2, 6, 3, 8


class Module:
    """What a layer tells an attention function of itself."""

    num_key_value_groups = N_HEADS // N_GROUPS
    is_causal = True


def tensors(n, *, dtype=torch.bfloat16, learns=False):
    generator = torch.Generator().manual_seed(n)
    shapes = [(N_ROWS, n, heads, WIDTH) for heads in (N_HEADS, N_GROUPS, N_GROUPS)]
    made = [torch.randn(shape, generator=generator).to(dtype).transpose(1, 2) for shape in shapes]
    return [one.requires_grad_(learns) for one in made]


def fused(query, key, value, **options):
    return scaled_dot_product_attention(query, key, value, enable_gqa=True, **options)


def attended(query, key, value, mask=None, **options):
    return cpu_attention._attention(Module(), query, key, value, mask, **options)[0].transpose(1, 2)


def refused(*_, **__):
    raise AssertionError("the fused attention was asked")


@pytest.mark.parametrize("n", [2, 63, 64, 65, 130, 513])
def test_what_is_read_is_what_fused_attention_reads(n, monkeypatch):
    monkeypatch.setattr(cpu_attention, "sdpa_attention_forward", refused)
    query, key, value = tensors(n)
    exact = fused(query.double(), key.double(), value.double(), is_causal=True)
    ours = (attended(query, key, value).double() - exact).abs()
    theirs = (fused(query, key, value, is_causal=True).double() - exact).abs()
    assert ours.max() <= max(2 * theirs.max(), 0.02)
    assert ours.mean() <= 2 * theirs.mean() + 1e-3


@pytest.mark.parametrize("n", [2, 65, 384])
def test_gradients_are_those_of_fused_attention(n, monkeypatch):
    monkeypatch.setattr(cpu_attention, "sdpa_attention_forward", refused)
    gradient = torch.randn((N_ROWS, N_HEADS, n, WIDTH), generator=torch.Generator().manual_seed(0))
    found, exact = tensors(n, learns=True), [one.double() for one in tensors(n)]
    attended(*found).backward(gradient.bfloat16())
    for one in exact:
        one.requires_grad_()
    fused(*exact, is_causal=True).backward(gradient.double())
    for ours, theirs in zip(found, exact, strict=True):
        scale = theirs.grad.abs().max()
        assert (ours.grad.double() - theirs.grad).abs().max() < 0.03 * scale


def test_gradients_are_exact_but_for_rounding():
    doubles = [one.detach().requires_grad_() for one in tensors(5, dtype=torch.float64)]
    assert torch.autograd.gradcheck(lambda *each: cpu_attention._Learned.apply(*each, 0.3), doubles)


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ({}, {"mask": torch.ones(1, 1, 7, 7, dtype=torch.bool).tril()}),
        ({}, {"is_causal": False}),
        ({}, {"dropout": 0.5}),
        ({"dtype": torch.float32}, {}),
    ],
    ids=["mask", "not causal", "dropout", "float32"],
)
def test_what_is_not_plain_is_left_to_fused_attention(change, options, monkeypatch):
    asked = []

    def noted(*given, **told):
        asked.append(told)
        return torch.zeros(N_ROWS, 7, N_HEADS, WIDTH), None

    monkeypatch.setattr(cpu_attention, "sdpa_attention_forward", noted)
    attended(*tensors(7, **change), **options)
    query, key, value = tensors(7)
    attended(query[:, :, -1:], key, value)  # one token after others
    attended(*tensors(385, learns=True))
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("dtype", "was", "then"),
    [
        (torch.float32, FUSED, FUSED),
        (torch.bfloat16, "eager", "eager"),
        (torch.bfloat16, FUSED, NAME),
    ],
    ids=str,
)
def test_only_a_model_in_bfloat16_with_fused_attention_is_changed(small_lm, dtype, was, then):
    model = copy.deepcopy(small_lm.model).to(dtype)
    model.config._attn_implementation = was
    attend_by_products(model)
    assert model.config._attn_implementation == then
    assert NAME not in model.config.to_json_string()


def test_a_model_reads_and_learns_as_by_fused_attention(small_lm):
    texts = ["Fold the sheet in half and open it again. " * 9, "The kettle boils the water."]
    told = []
    for attends in (NAME, FUSED):
        model = copy.deepcopy(small_lm.model).to(torch.bfloat16)
        lm = LanguageModel(model, small_lm.tokenizer, name="small")
        assert model.config._attn_implementation == NAME
        model.config._attn_implementation = attends
        told.append(fine_tune(lm, texts, FineTuningSettings(learning_rate=1e-3)).report.losses)
    assert told[0] == pytest.approx(told[1], rel=2e-3)
    assert told[0] != told[1]  # it was another attention
