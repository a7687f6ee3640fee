import pytest
import torch

from benchmarks import fine_tuning_gpu
from benchmarks import fine_tuning_rivals as rivals
from benchmarks.bars import load_bars
from benchmarks.fine_tuning_memory import Job, cost_in_own_process, why_not
from benchmarks.fine_tuning_shapes import llama
from benchmarks.report import Report


@pytest.fixture(autouse=True)
def _one_thread():
    """Two threads on a busy machine wait for each other far longer than they compute."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture
def shape():
    return llama(
        "little",
        window=64,
        vocabulary=300,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=2,
    )


def test_floating_point_operations_of_a_token_by_hand():
    little = llama(
        "one layer",
        vocabulary=10,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
    # Four 8 × 8 of attention, three 8 × 16 of the MLP, the head 10 × 8.
    frozen = 4 * 64 + 3 * 128 + 80
    lora = 3 * (4 * 16 + 3 * 24)
    assert fine_tuning_gpu.flops_a_token(little.model(), 3) == 4 * frozen + 6 * lora


no_trainer = rivals.why_no_trainer()  # the Trainer needs accelerate, and nothing else here does


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(rivals.plain_peft, id="plain"),
        pytest.param(
            rivals.trained,
            id="trainer",
            marks=pytest.mark.skipif(bool(no_trainer), reason=no_trainer),
        ),
    ],
)
def test_a_rival_learns_takes_every_step_and_leaves_the_model_as_it_was(shape, way):
    language_model = shape.language_model()
    before = {key: value.clone() for key, value in language_model.model.state_dict().items()}
    text = shape.texts(1, 60)[0]
    untouched = language_model.bits_per_byte(text)
    with way(language_model, [text] * 8) as (model, ends):
        learned = rivals.bits_per_byte(model, language_model, text)
    assert len(ends) == 8
    assert ends == sorted(ends)
    assert learned < 0.999 * untouched
    after = language_model.model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert not hasattr(language_model.model, "peft_config")
    assert rivals.bits_per_byte(language_model.model, language_model, text) == pytest.approx(
        untouched, rel=1e-6
    )


def test_without_a_gpu_the_report_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = Report(bar_numbers=load_bars("fine_tuning"))
    fine_tuning_gpu.measure(report)
    assert report.bars == []
    assert report.rows == [{"case": "GPU", "skipped": "no CUDA device"}]


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not()), reason="peaks cannot be reset here")
def test_the_peak_of_a_process_is_what_the_job_took_and_not_what_was_there_before():
    cost = cost_in_own_process(Job(way="context", n_chunks=1, n_tokens=900, n_new=1, rounds=1))
    # Keys and values of 900 tokens in 8 layers of width 256, float32, are 14 MiB; torch, its
    # libraries and the model are hundreds.
    assert 14 < cost.peak_mib < 200
    assert cost.seconds > 0
