import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from sift_core import AnswerError, InvalidInputError
from sift_core.answering.learning.fine_tuning import fine_tune
from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.base_check import BaseCheck
from tests.answering.plain_peft import lora

NAME = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def model(make_random_lm):
    return make_random_lm("llama, own head").model


def seen_by(check):
    """What a check says, by each of its two ways; "" where it passes."""
    said = []
    for look in (check.cheap, check.exact):
        try:
            look()
            said.append("")
        except AnswerError as error:
            said.append(str(error))
    return said


@pytest.fixture
def check(model):
    made = BaseCheck(model)
    assert len(made.fingerprint) == 64
    return made


def flip_the_last_bit(tensor):
    tensor.data.reshape(-1)[-1:].view(torch.uint8)[0] ^= 1


def test_an_untouched_model_passes_however_it_is_used(random_lm):
    check = BaseCheck(random_lm.model)
    before = check.fingerprint
    assert before == BaseCheck(random_lm.model).fingerprint
    tuned = fine_tune(random_lm, ["a cow ate the hay"] * 2, FineTuningSettings(lora=lora(4)))
    with random_lm.adapted(tuned.adapter):
        random_lm.generate("hay", max_new_tokens=3)
        check.cheap()
        check.exact()
    random_lm.bits_per_byte("hay" * 70)
    check.cheap()
    check.exact()
    assert BaseCheck(random_lm.model).fingerprint == before


def test_one_bit_of_one_weight_is_seen_exactly_wherever_it_is(check, model):
    for name, tensor in model.state_dict(keep_vars=True).items():
        flip_the_last_bit(tensor)
        with pytest.raises(AnswerError, match=f"'{name}' changed"):
            check.exact()
        flip_the_last_bit(tensor)
        check.exact()


def write_in_place(model):
    with torch.no_grad():
        weight_of(model)[5, 6] += 1


def replace_by_equal(model):
    layer = model.model.layers[1].mlp.up_proj
    layer.weight = torch.nn.Parameter(layer.weight.detach().clone(), requires_grad=False)


def weight_of(model):
    return dict(model.named_parameters())[NAME]


# How a model is changed → what is said of it cheaply, and exactly; "" where nothing is.
CHANGES = {
    "in place, one number": (write_in_place, f"version of '{NAME}'", f"'{NAME}' changed"),
    "through data, most numbers": (
        lambda model: weight_of(model).data.mul_(1 + 1e-6),
        f"bits of '{NAME}' changed",
        f"'{NAME}' changed",
    ),
    "through data, one number": (
        lambda model: weight_of(model).data[5, 6].add_(1),
        "",
        f"'{NAME}' changed",
    ),
    "to learn": (lambda model: weight_of(model).requires_grad_(), *["requires_grad of"] * 2),
    "replaced by an equal one": (replace_by_equal, f"identity, version, address of '{NAME}'", ""),
    "added": (
        lambda model: model.model.layers[0].register_buffer("extra", torch.zeros(2)),
        *["'model.layers.0.extra' was added"] * 2,
    ),
    "taken away": (
        lambda model: setattr(model.model.layers[0].mlp.up_proj, "weight", None),
        *["'model.layers.0.mlp.up_proj.weight' is gone"] * 2,
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_seen_exactly_and_most_of_them_cheaply(check, model, name):
    change, cheaply, exactly = CHANGES[name]
    change(model)
    for said, expected in zip(seen_by(check), (cheaply, exactly), strict=True):
        assert expected in said
        assert bool(expected) == bool(said)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("unmerge", [False, True])
def test_a_merged_lora_is_seen_also_after_it_was_unmerged(check, model, unmerge):
    peft_model = get_peft_model(
        model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    cheap, exact = seen_by(check)
    assert "is gone" in cheap
    assert "is gone" in exact
    torch.manual_seed(1)
    for name, parameter in peft_model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_()
    if unmerge:
        peft_model.merge_adapter()
        peft_model.unmerge_adapter()
        peft_model.unload()
    else:
        peft_model.merge_and_unload()
    assert all("changed" in said for said in seen_by(check))


def test_persistent_buffers_count_and_computed_ones_do_not(model):
    model.register_buffer("stored", torch.arange(4))
    model.register_buffer("computed", torch.arange(4), persistent=False)
    check = BaseCheck(model)
    check.exact()
    model.computed = torch.zeros(3)
    assert seen_by(check) == ["", ""]
    model.stored.data[2] = 7
    assert all("'stored' changed" in said for said in seen_by(check))


def test_a_tied_head_is_one_tensor_and_untying_is_seen(make_random_lm):
    model = make_random_lm("llama, tied head").model
    check = BaseCheck(model)
    check.exact()
    model.lm_head.weight = torch.nn.Parameter(
        model.lm_head.weight.detach().clone(), requires_grad=False
    )
    cheap, exact = seen_by(check)
    assert cheap == exact
    assert "'lm_head.weight' was added" in exact


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_all_precisions_are_checked_by_their_bits(model, dtype):
    model.to(dtype)
    model.register_buffer("flag", torch.tensor(True))
    model.register_buffer("nothing", torch.zeros(0, 3))
    check = BaseCheck(model)
    check.exact()
    for tensor in (model.lm_head.weight, model.flag):
        flip_the_last_bit(tensor)
        assert seen_by(check)[1]
        flip_the_last_bit(tensor)
    assert seen_by(check) == ["", ""]


def test_weights_that_do_not_lie_in_a_row_are_checked(model):
    model.lm_head.weight = torch.nn.Parameter(
        model.lm_head.weight.detach().t().contiguous().t(), requires_grad=False
    )
    assert not model.lm_head.weight.is_contiguous()
    check = BaseCheck(model)
    check.exact()
    assert seen_by(check) == ["", ""]
    model.lm_head.weight.data[7, 7] += 1
    assert "lm_head" in seen_by(check)[1]
    model.lm_head.weight.data.mul_(2)
    assert "lm_head" in seen_by(check)[0]


def test_a_model_loaded_in_inference_mode_is_checked():
    with torch.inference_mode():
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=17,
                hidden_size=8,
                intermediate_size=8,
                num_hidden_layers=1,
                num_attention_heads=1,
            )
        )
        check = BaseCheck(model)
        check.exact()
        assert seen_by(check) == ["", ""]
        model.lm_head.weight.mul_(2)
    assert all(seen_by(check))


def test_models_that_compute_otherwise_have_other_fingerprints(make_random_lm):
    prints = [BaseCheck(make_random_lm(shape).model).fingerprint for shape in ("gpt2", "gpt-neox")]
    model = make_random_lm("gpt2").model
    assert BaseCheck(model).fingerprint == prints[0]
    model.config._name_or_path = "elsewhere"
    model.config.use_cache = False
    assert BaseCheck(model).fingerprint == prints[0]
    model.config.activation_function = "relu"  # the same weights
    prints.append(BaseCheck(model).fingerprint)
    assert len(set(prints)) == 3
    assert BaseCheck(model.to(torch.bfloat16)).fingerprint == prints[-1]  # the same, rounded


def test_a_first_fingerprint_is_refused_of_a_model_that_has_changed(model):
    check = BaseCheck(model)
    model.lm_head.weight.data.mul_(2)
    with pytest.raises(AnswerError, match=r"'lm_head.weight' changed.*load it again"):
        assert check.fingerprint
    with pytest.raises(AnswerError, match="lm_head"):
        check.exact()


def test_weights_that_are_not_in_memory_are_refused(model):
    model.to("meta")
    with pytest.raises(InvalidInputError, match="not in memory"):
        BaseCheck(model)


@pytest.mark.gpu
def test_the_fingerprint_is_the_same_on_a_gpu(model):
    check = BaseCheck(model)
    check.exact()
    model.to("cuda")
    check.exact()
    there = BaseCheck(model)
    assert there.fingerprint == check.fingerprint
    there.cheap()
    model.lm_head.weight.data.mul_(2)
    assert all(seen_by(there))
