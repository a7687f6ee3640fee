"""Which changes of a base model are noticed, and what gives a model its name."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from sift_core import AnswerError, InvalidInputError
from sift_core.answering.fine_tuning import fine_tune
from sift_core.answering.model.weights_fingerprint import BaseWeights
from sift_core.answering.settings import FineTuningSettings
from tests.answering.plain_peft import lora, pefts_own_warnings

NAME = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def lm(make_random_lm):
    return make_random_lm("llama, own head")


@pytest.fixture
def model(lm):
    return lm.model


def said_of(weights):
    """What is said of a model; "" where it passes."""
    try:
        weights.verify()
    except AnswerError as error:
        return str(error)
    return ""


def test_an_untouched_model_passes_however_it_is_used(random_lm):
    weights = BaseWeights(random_lm.model)
    before = weights.fingerprint
    tuned = fine_tune(random_lm, ["a cow ate the hay"] * 2, FineTuningSettings(lora=lora(4)))
    with random_lm.adapted(tuned.adapter):
        random_lm.generate("hay", max_new_tokens=3)
        assert said_of(weights) == ""
    random_lm.bits_per_byte("hay" * 70)
    assert said_of(weights) == ""
    assert BaseWeights(random_lm.model).fingerprint == before
    assert len(before) == 64


def write_in_place(model):
    with torch.no_grad():
        weight_of(model)[5, 6] += 1


def replace_by_equal(model):
    layer = model.model.layers[1].mlp.up_proj
    layer.weight = torch.nn.Parameter(layer.weight.detach().clone(), requires_grad=False)


def weight_of(model):
    return dict(model.named_parameters())[NAME]


# How a model is changed → what is said of it; "" where nothing is.
CHANGES = {
    "in place, one number": (write_in_place, f"version of '{NAME}' changed"),
    "through data, most numbers": (
        lambda model: weight_of(model).data.mul_(1 + 1e-6),
        f"bits of '{NAME}' changed",
    ),
    "through data, one number": (lambda model: weight_of(model).data[5, 6].add_(1), ""),
    "to learn": (lambda model: weight_of(model).requires_grad_(), "requires_grad of"),
    "by an optimizer": (
        lambda model: stepped(weight_of(model)),
        f"version, requires_grad, bits of '{NAME}'",
    ),
    "to another number type": (lambda model: model.to(torch.bfloat16), "dtype, bits of"),
    "replaced by an equal one": (replace_by_equal, f"identity, version, address of '{NAME}'"),
    "added": (
        lambda model: model.model.layers[0].register_buffer("extra", torch.zeros(2)),
        "'model.layers.0.extra' was added",
    ),
    "taken away": (
        lambda model: setattr(model.model.layers[0].mlp.up_proj, "weight", None),
        "'model.layers.0.mlp.up_proj.weight' is gone",
    ),
}


def stepped(weight):
    weight.requires_grad_().grad = torch.ones_like(weight)
    torch.optim.SGD([weight], lr=1).step()


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_seen(model, name):
    weights = BaseWeights(model)
    change, expected = CHANGES[name]
    change(model)
    assert expected in said_of(weights)
    assert bool(expected) == bool(said_of(weights))


@pytest.mark.parametrize("unmerge", [False, True])
def test_a_merged_lora_is_seen_also_after_it_was_unmerged(model, unmerge):
    weights = BaseWeights(model)
    with pefts_own_warnings():
        peft_model = get_peft_model(
            model, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
        )
    assert "is gone" in said_of(weights)
    if unmerge:
        peft_model.merge_adapter()
        peft_model.unmerge_adapter()
        peft_model.unload()
    else:
        peft_model.merge_and_unload()
    assert "bits" in said_of(weights)


def test_a_query_ends_with_an_error_where_somebody_wrote_to_the_base(lm):
    adapter = fine_tune(lm, ["a cow"], FineTuningSettings(lora=lora(2))).adapter
    for learned in (adapter, None):
        with pytest.raises(AnswerError, match="not what it was"), lm.adapted(learned):
            write_in_place(lm.model)


def test_persistent_buffers_count_and_computed_ones_do_not_whatever_they_hold(model):
    model.register_buffer("stored", torch.arange(4))
    model.register_buffer("flag", torch.tensor(True))
    model.register_buffer("nothing", torch.zeros(0, 3))
    model.register_buffer("no_number", torch.tensor(float("nan")))
    model.register_buffer("computed", torch.arange(4), persistent=False)
    weights = BaseWeights(model)
    model.computed = torch.zeros(3)
    assert said_of(weights) == ""
    model.stored.data[2] = 7
    assert "'stored' changed" in said_of(weights)
    model.stored.data[2] = 2
    model.flag.data.fill_(False)
    assert "flag" in said_of(weights)


def test_a_weight_that_lies_transposed_is_sampled_by_its_bits(model):
    model.lm_head.weight = torch.nn.Parameter(
        model.lm_head.weight.detach().t().contiguous().t(), requires_grad=False
    )
    assert not model.lm_head.weight.is_contiguous()
    weights = BaseWeights(model)
    assert said_of(weights) == ""
    model.lm_head.weight.data.mul_(2)
    assert "lm_head" in said_of(weights)


def test_a_tied_head_is_one_tensor_and_untying_is_seen(make_random_lm):
    model = make_random_lm("llama, tied head").model
    weights = BaseWeights(model)
    model.lm_head.weight = torch.nn.Parameter(
        model.lm_head.weight.detach().clone(), requires_grad=False
    )
    assert "'lm_head.weight' was added" in said_of(weights)


def test_a_model_loaded_in_inference_mode_is_checked():
    sizes = {"vocab_size": 17, "hidden_size": 8, "intermediate_size": 8}
    with torch.inference_mode():
        model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=1, num_attention_heads=1))
        weights = BaseWeights(model)
        assert said_of(weights) == ""
        model.lm_head.weight.mul_(2)
    assert said_of(weights)


def test_models_that_compute_otherwise_have_other_fingerprints(make_random_lm):
    prints = [
        BaseWeights(make_random_lm(shape).model).fingerprint for shape in ("gpt2", "gpt-neox")
    ]
    model = make_random_lm("gpt2").model
    model.config._name_or_path = "elsewhere"
    model.config.use_cache = False
    assert BaseWeights(model).fingerprint == prints[0]
    model.config.activation_function = "relu"  # the same weights
    prints.append(BaseWeights(model).fingerprint)
    assert len(set(prints)) == 3
    assert BaseWeights(model.to(torch.bfloat16)).fingerprint == prints[-1]  # the same, rounded
    model.lm_head.weight.data.reshape(-1)[-1:].view(torch.uint8)[0] ^= 1
    assert BaseWeights(model).fingerprint != prints[-1]


def test_a_first_fingerprint_is_refused_of_a_model_that_has_changed(model):
    weights = BaseWeights(model)
    model.lm_head.weight.data.mul_(2)
    with pytest.raises(AnswerError, match=r"'lm_head.weight' changed.*load it again"):
        assert weights.fingerprint


def test_weights_that_are_not_in_memory_are_refused(model):
    model.to("meta")
    with pytest.raises(InvalidInputError, match="not in memory"):
        BaseWeights(model)


@pytest.mark.gpu
def test_the_fingerprint_is_the_same_on_a_gpu(model):
    here = BaseWeights(model).fingerprint
    there = BaseWeights(model.to("cuda"))
    assert there.fingerprint == here
    assert said_of(there) == ""
    model.lm_head.weight.data.mul_(2)
    assert said_of(there)
