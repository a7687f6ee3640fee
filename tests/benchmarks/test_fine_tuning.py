from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra fine-tune")
pytest.importorskip("peft", reason="needs the extra fine-tune")

from benchmarks import fine_tuning_gpu, fine_tuning_plot, fine_tuning_quality  # noqa: E402
from benchmarks import fine_tuning_rivals as rivals  # noqa: E402
from benchmarks.bars import load_bars  # noqa: E402
from benchmarks.fine_tuning_cases import SETTINGS, Effort, against_all, with_reuse  # noqa: E402
from benchmarks.fine_tuning_memory import Cost, Job, cost_in_own_process, why_not  # noqa: E402
from benchmarks.fine_tuning_shapes import gpt2, llama, llama_1b, llama_3b  # noqa: E402
from benchmarks.fine_tuning_timing import alternate  # noqa: E402
from benchmarks.report import Report  # noqa: E402

TINY_LM = fine_tuning_quality.TINY_LM


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


def test_a_text_has_the_tokens_it_was_asked_for_from_the_whole_vocabulary(shape):
    language_model = shape.language_model()
    texts = shape.texts(20, 50)
    assert [language_model.n_tokens(text) for text in texts] == [50] * 20
    ids = {token for text in texts for token in language_model.token_ids(text)}
    assert min(ids) >= 1
    assert max(ids) > 270
    assert len(set(texts)) == 20
    assert texts != shape.texts(20, 50, seed=1)


def test_a_model_has_the_same_weights_each_time_and_leaves_the_generator_alone(shape):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second = shape.model().state_dict(), shape.model().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("make", "millions"),
    [(gpt2, 124), (llama_1b, 1236), (llama_3b, 3213)],
    ids=["gpt2", "llama_1b", "llama_3b"],
)
def test_shapes_have_the_sizes_of_their_names(make, millions):
    with torch.device("meta"):
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_config(make().config)
    assert round(model.num_parameters() / 1e6) == millions


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


def test_rivals_see_the_tokens_of_the_engines_passes(shape):
    language_model = shape.language_model()
    [inputs] = rivals.model_inputs(language_model, ["w5 w6 w7"])
    assert inputs == [0, 5, 6]  # three tokens to predict, three read
    assert [len(ids) for ids in rivals.model_inputs(language_model, shape.texts(2, 64))] == [64, 64]


WAYS = {"plain": rivals.plain_peft, "trainer": rivals.trained}


@pytest.mark.parametrize("name", WAYS)
def test_a_rival_learns_takes_every_step_and_leaves_the_model_as_it_was(shape, name):
    if name == "trainer" and rivals.why_no_trainer():
        pytest.skip(rivals.why_no_trainer())
    language_model = shape.language_model()
    before = {key: value.clone() for key, value in language_model.model.state_dict().items()}
    text = shape.texts(1, 60)[0]
    untouched = language_model.bits_per_byte(text)
    with WAYS[name](language_model, [text] * 8) as (model, ends):
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


def test_a_step_is_timed_without_the_first_one():
    assert rivals.seconds_a_step(lambda texts: [10.0, 12.0, 15.0], ["a", "b", "c"]) == 2.5


def test_ours_and_a_rival_alternate_and_ratios_are_of_neighbours():
    visits = []
    ours = iter([1.0, 1.0, 2.0, 4.0, 1.0])  # the first warms up

    def visit_ours(round_):
        visits.append(("ours", round_))
        return next(ours)

    def visit(name, factor):
        def run(round_):
            visits.append((name, round_))
            return factor * round_

        return run

    measured = alternate(
        "ours", {"ours": visit_ours, "a": visit("a", 3.0), "b": visit("b", 8.0)}, rounds=2
    )
    assert visits == [
        *[("ours", 0), ("a", 0), ("b", 0)],
        *[("ours", 1), ("a", 1), ("ours", 1), ("b", 1)],
        *[("ours", 2), ("a", 2), ("ours", 2), ("b", 2)],
    ]
    assert measured.seconds == {"ours": 1.5, "a": 4.5, "b": 12.0}
    # a: 3 / 1 and 6 / 4; b: 8 / 2 and 16 / 1
    assert measured.over_ours == {"ours": 1.0, "a": 2.25, "b": 10.0}


def test_every_scope_is_measured(shape):
    measured = against_all(shape, 16, 2, rounds=1)
    assert set(measured.seconds) == {
        '"all"',
        "top:3, chunks seen before",
        "top:3, new chunks",
        "head, chunks seen before",
        "head, new chunks",
        "full",
    }
    assert all(seconds > 0 for seconds in measured.seconds.values())
    assert set(with_reuse(shape, 16, 2, rounds=1).seconds) == {
        "a gradient a step",
        "reuse_gradients",
    }


def test_without_a_gpu_the_report_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = Report(bar_numbers=load_bars("fine_tuning"))
    fine_tuning_gpu.measure(report)
    assert report.bars == []
    assert report.rows == [{"case": "GPU", "skipped": "no CUDA device"}]


def test_without_data_the_report_says_so(tmp_path):
    report = Report(bar_numbers=load_bars("fine_tuning"))
    fine_tuning_quality.measure(report, tmp_path, threads=1, n_documents=1, n_chunks=1)
    assert [set(row) for row in report.rows] == [{"case", "skipped"}]


def test_a_document_is_cut_into_chunks_and_what_follows_them(monkeypatch):
    from sift_core.answering import LanguageModel

    monkeypatch.setattr(fine_tuning_quality, "N_TOKENS", 6)
    monkeypatch.setattr(fine_tuning_quality, "N_HELD_OUT", 8)
    language_model = LanguageModel.from_pretrained(TINY_LM, device="cpu")
    text = Path(TINY_LM, "README.md").read_text(encoding="utf-8")[200:400]
    lesson = fine_tuning_quality.lesson_of(language_model, "docs", text, 3)
    assert len(lesson.chunks) == 3
    assert text.startswith("".join(lesson.chunks) + lesson.held_out)
    sizes = [language_model.n_tokens(part) for part in [*lesson.chunks, lesson.held_out]]
    assert sizes == pytest.approx([6, 6, 6, 8], abs=2)  # a word may be cut where a token ends
    assert fine_tuning_quality.lesson_of(language_model, "docs", text[:30], 3) is None


def test_all_ways_to_learn_are_those_that_the_bars_are_about():
    names = [name for name, _, _ in fine_tuning_quality.our_ways(None, None)]
    assert {'"all", fp32', '"all", bf16 base', "top:3", "head", "full"} <= set(names)


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not()), reason="peaks cannot be reset here")
def test_the_peak_of_a_process_is_what_the_job_took_and_not_what_was_there_before():
    cost = cost_in_own_process(Job(way="context", n_chunks=1, n_tokens=900, n_new=1, rounds=1))
    # Keys and values of 900 tokens in 8 layers of width 256, float32, are 14 MiB; torch, its
    # libraries and the model are hundreds.
    assert 14 < cost.peak_mib < 200
    assert cost.seconds > 0


def test_a_context_ends_where_the_window_is_full():
    # 3 chunks of 256, BOS, 32 of the question, 32 new: 833; a fourth makes 1,089
    assert fine_tuning_plot.fits(3)
    assert not fine_tuning_plot.fits(4)


def test_the_figure_is_drawn_with_a_dashed_line_beyond_the_window(tmp_path):
    curves = {
        name: {n: Cost(peak_mib=10.0 * n, seconds=0.1 + n) for n in (0, 1, 2, 5)}
        for name in fine_tuning_plot.WAYS
    }
    fine_tuning_plot.draw(curves, tmp_path / "deep" / "figure.png", "a title")
    assert (tmp_path / "deep" / "figure.png").stat().st_size > 10_000


def test_quick_is_less():
    quick, full = Effort.quick(), Effort()
    assert quick.rounds < full.rounds
    assert quick.n_steps >= 2  # a step is timed between two ends
    assert quick.n_chunks % 2 == full.n_chunks % 2 == 0  # each is learned twice
    assert SETTINGS.rank == 64
