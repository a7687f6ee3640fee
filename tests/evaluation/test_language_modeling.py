import io
import json
import math
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra fine-tune")
pytest.importorskip("sentence_transformers", reason="embeds with MiniLM")
pytest.importorskip("tqdm")

from sift_core.answering import (  # noqa: E402
    FineTuningSettings,
    LanguageModel,
    fine_tuned,
)
from sift_core.errors import InvalidInputError  # noqa: E402
from sift_core.evaluation.language_modeling.arms import BASE, Arm, learning, reading  # noqa: E402
from sift_core.evaluation.language_modeling.experiment import (  # noqa: E402
    LanguageModelingExperiment,
    PreparedExperiment,
    run_language_modeling,
)
from sift_core.evaluation.language_modeling.measuring import (  # noqa: E402
    ChosenArm,
    Measurer,
    PromptTask,
    Scoring,
)
from sift_core.evaluation.running.results_file import ExperimentError, ResultsFile  # noqa: E402
from sift_core.evaluation.running.run import run_tasks  # noqa: E402
from sift_core.testing import HashingEmbedder  # noqa: E402
from sift_core.types import CandidatePool  # noqa: E402
from tests.answering.plain_peft import lora  # noqa: E402
from tests.answering.shapes import ALL_SHAPES, byte_tokenizer  # noqa: E402

CHUNKS = ("a river of stones", "stones of a house", "a cat and a river", "music, loud", "Größe 😀")
PROMPT = "stones in a river"
SETTINGS = FineTuningSettings(lora=lora(4), seed=3)
RATE = 5e-3


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """A random model with a window of 64 tokens, a token a byte."""
    folder = tmp_path_factory.mktemp("model") / "random_lm"
    ALL_SHAPES["llama, own head"]().save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def lm(model_folder):
    return LanguageModel.from_pretrained(model_folder, device="cpu")


def tuning(selector="NN", noise_variance=None, **settings):
    return learning(selector, noise_variance, **{"learning_rate": RATE, "n_steps": 3, **settings})


def task_of(*arms, text=PROMPT, positions=(2, 0, 1)):
    embedder = HashingEmbedder(dimension=64)
    embeddings = embedder.embed_documents(CHUNKS)
    chosen = [
        ChosenArm(
            arm=arm,
            key=str(number),
            positions=() if arm.mode == "base" else positions,
            variances=(1.0, 0.5, 0.25, 0.125),
            select_s=0.0,
        )
        for number, arm in enumerate(arms)
    ]
    return PromptTask(
        prompt={"id": "p"},
        text=text,
        experiment="e",
        pool=CandidatePool(
            document_ids=[f"c{i}" for i in range(len(CHUNKS))],
            texts=CHUNKS,
            embeddings=embeddings,
            similarities=embeddings @ embedder.embed_query(PROMPT),
        ),
        arms=chosen,
    )


def measure(lm, *arms, after=(0, 1, 2, 3), **settings):
    """Return a row an arm, in the order of the arms."""
    measurer = Measurer(lm, Scoring(after=after, settings=SETTINGS))
    rows = sorted(measurer(task_of(*arms, **settings)), key=lambda row: int(row["key"]))
    assert [row["arm"] for row in rows] == [arm.as_record() for arm in arms]
    return rows


def bits_after(lm, texts, *, context="", **settings):
    """What is to be measured, by the library's public functions."""
    settings = replace(SETTINGS, **{"learning_rate": RATE, **settings})
    with fine_tuned(lm, texts, settings):
        return lm.bits_per_byte(PROMPT, context=context)


def test_the_base_is_scored_as_it_is(lm):
    (row,) = measure(lm, BASE)
    assert row["steps"] == [0]
    assert row["bits_per_byte"] == [pytest.approx(lm.bits_per_byte(PROMPT), abs=1e-6)]
    assert row["chosen"] == row["similarities"] == []
    assert row["report"] is None


@pytest.mark.parametrize(
    ("positions", "read"),
    [((0, 1), [1, 0]), ((0, 0, 1), [1, 0]), ((2, 0, 1), [0, 2]), ((4,), [4])],
)
def test_what_is_read_stands_before_the_prompt_the_first_choice_next_to_it(lm, positions, read):
    (row,) = measure(lm, reading("NN"), positions=positions)
    context = "\n\n".join(CHUNKS[position] for position in read)
    assert len(PROMPT.encode()) + len(context.encode()) + 3 <= lm.window == 64
    assert row["steps"] == [len(read)]
    assert row["bits_per_byte"] == [
        pytest.approx(lm.bits_per_byte(PROMPT, context=context), abs=1e-6)
    ]
    assert row["chosen"] == [f"c{position}" for position in positions]


@pytest.mark.parametrize("scope", ["all", "head", "full", "top:1"])
def test_learning_gives_what_fine_tuning_and_scoring_give(lm, scope):
    arm = tuning(scope=scope)
    base, row = measure(lm, BASE, arm)
    texts = [CHUNKS[i] for i in (2, 0, 1)]
    expected = [bits_after(lm, texts[:n], scope=scope) for n in (1, 2, 3)]
    assert row["steps"] == [0, 1, 2, 3]
    assert row["bits_per_byte"][0] == pytest.approx(base["bits_per_byte"][0], abs=1e-6)
    assert row["bits_per_byte"][1:] == pytest.approx(expected, abs=2e-6)
    assert row["bits_per_byte"][3] < row["bits_per_byte"][0] - 1e-4
    assert row["report"] == {"stop_reason": "done", "n_refused": 0}


@pytest.mark.parametrize(
    ("after", "steps"),
    [((), [0, 3]), ((0, 2), [0, 2, 3]), ((3, 1, 50), [0, 1, 3]), ((10,), [0, 3])],
)
def test_the_first_and_the_last_are_always_scored(lm, after, steps):
    (row,) = measure(lm, tuning(), after=after)
    every = measure(lm, tuning())[0]["bits_per_byte"]
    assert row["steps"] == steps
    assert row["bits_per_byte"] == pytest.approx([every[n] for n in steps], abs=1e-6)


def test_the_last_choice_may_be_learned_first(lm):
    chosen, backwards = measure(lm, tuning(), tuning(order="reversed"))
    assert backwards["chosen"] == chosen["chosen"] == ["c2", "c0", "c1"]
    expected = bits_after(lm, [CHUNKS[i] for i in (1, 0, 2)])
    assert backwards["bits_per_byte"][-1] == pytest.approx(expected, abs=2e-6)
    assert backwards["bits_per_byte"][1] != chosen["bits_per_byte"][1]


def test_chunks_of_one_step_count_each(lm):
    (row,) = measure(lm, tuning(chunks_per_step=2))
    assert row["steps"] == [0, 2, 3]
    texts = [CHUNKS[i] for i in (2, 0, 1)]
    expected = [bits_after(lm, texts[:n], chunks_per_step=2) for n in (2, 3)]
    assert row["bits_per_byte"][1:] == pytest.approx(expected, abs=2e-6)


def test_reading_and_learning_share_a_fine_tuning(lm):
    both, alone = tuning(mode="both"), tuning()
    together = measure(lm, both, alone)
    separate = [measure(lm, arm)[0] for arm in (both, alone)]
    for row, other in zip(together, separate, strict=True):
        assert row["bits_per_byte"] == other["bits_per_byte"]
        assert row["steps"] == other["steps"]
    assert together[0]["seconds"] == together[1]["seconds"]
    texts = [CHUNKS[i] for i in (2, 0, 1)]
    expected = bits_after(lm, texts, context=f"{CHUNKS[0]}\n\n{CHUNKS[2]}")
    assert together[0]["steps"] == [3]
    assert together[0]["bits_per_byte"] == [pytest.approx(expected, abs=2e-6)]


@pytest.mark.parametrize("mode", ["fine_tune", "both"])
@pytest.mark.parametrize("scope", ["all", "full", "head"])
@pytest.mark.parametrize("rate", [1e30, 1e20, 1e3])
def test_a_rate_that_diverges_gives_a_row_that_says_so(lm, scope, mode, rate):
    (row,) = measure(lm, tuning(scope=scope, learning_rate=rate, mode=mode))
    assert all(map(math.isfinite, row["bits_per_byte"]))
    assert row["steps"] == sorted(set(row["steps"]))
    assert len(row["steps"]) == len(row["bits_per_byte"]) > 0
    if rate == 1e30:
        (base,) = measure(lm, BASE if mode == "fine_tune" else reading("NN"))
        assert row["report"]["stop_reason"] == "diverged"
        assert row["bits_per_byte"][-1] == pytest.approx(base["bits_per_byte"][0], abs=1e-6)
    json.dumps(row, allow_nan=False)


@pytest.mark.parametrize("scope", ["all", "full"])
def test_the_model_and_what_is_in_force_are_as_before(lm, scope):
    before = {name: value.clone() for name, value in lm.model.state_dict().items()}
    base = lm.bits_per_byte(PROMPT)
    measurer = Measurer(lm, Scoring(after=(1,), settings=SETTINGS))
    for row in measurer(task_of(tuning(scope=scope), tuning(scope=scope, mode="both"), BASE)):
        assert lm.bits_per_byte(PROMPT) == base, row["arm"]
    for name, value in lm.model.state_dict().items():
        assert torch.equal(value, before[name]), name


# From here on with files, MiniLM and the selectors.

WORDS = "river stone cloud market engine proof violin harbour cipher garden".split()
ARMS = [
    tuning("SIFT", 0.1),
    tuning("SIFT", 0.1, mode="both"),
    tuning("SIFT", 0.1, is_normalized=False),
    tuning("NN", n_candidates=2, order="reversed"),
    tuning("NN-F", chunks_per_step=2),
    tuning("US", 0.1, scope="head"),
    tuning("HullFT"),
    tuning("other prompt", 0.1),
    reading("SIFT context", n_steps=3),
]

FEW_ARMS = [ARMS[1], ARMS[5], ARMS[8]]  # learned and read, the head learned, read


def sentence(seed, n=14):
    return " ".join(WORDS[i] for i in np.random.default_rng(seed).integers(len(WORDS), size=n))


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("embeddings")


@pytest.fixture(scope="module")
def experiment(tmp_path_factory, model_folder):
    folder = tmp_path_factory.mktemp("texts")
    space = [{"id": f"s{i}", "domain": "xy"[i % 2], "text": sentence(i)} for i in range(6)]
    prompts = [{"id": f"p{i}", "domain": "ab"[i % 2], "text": sentence(100 + i)} for i in range(4)]
    return LanguageModelingExperiment(
        data_space=write(folder / "space.jsonl", space),
        prompts=write(folder / "prompts.jsonl", prompts),
        base_model=str(model_folder),
        chunk_tokens=40,
        prompt_tokens=50,
        score_after=(0, 1),
        rank=2,
        device="cpu",
    )


@pytest.fixture(scope="module")
def prepared(experiment, cache):
    return PreparedExperiment(experiment, cache_folder=cache)


@pytest.fixture(scope="module")
def finished(experiment, cache, tmp_path_factory):
    """The file of a run that nothing interrupted."""
    file = ResultsFile(tmp_path_factory.mktemp("finished") / "rows.jsonl")
    run_language_modeling(experiment, ARMS, file=file, cache_folder=cache)
    return file


def assert_same_results(rows, others):
    """All but times is equal; cosines up to rounding, which the size of a pool may change."""
    found, expected = ({row["key"]: dict(row) for row in one[1:]} for one in (rows, others))
    assert set(found) == set(expected)
    for key, row in found.items():
        other = expected[key]
        assert row.pop("similarities") == pytest.approx(other.pop("similarities"), abs=2e-5)
        assert set(row.pop("seconds")) == set(other.pop("seconds"))
        assert row == other


def of_arms(rows, arms):
    """The experiment's row and those of some arms and the base."""
    records = [arm.as_record() for arm in [BASE, *arms]]
    return [rows[0], *(row for row in rows[1:] if row["arm"] in records)]


def choices(prepared, *arms):
    """Return by prompt what each arm chose: a list of rows of the pool's ids, and variances."""
    return {
        task.prompt["id"]: [
            ([task.pool.document_ids[p] for p in one.positions], list(one.variances))
            for one in task.arms
            if one.arm != BASE
        ]
        for task in prepared.tasks(arms, set())
    }


def test_rows_are_as_the_tables_expect_them(finished, experiment, lm):
    record, *rows = finished.rows()
    assert record["kind"] == "experiment"
    assert len(rows) == 4 * (len(ARMS) + 1)
    lines = experiment.prompts.read_text(encoding="utf-8").splitlines()
    texts = {row["id"]: row["text"] for row in map(json.loads, lines)}
    for row in rows:
        text = texts[row["prompt"]["id"]].encode()[:50].decode()
        assert row["experiment"] == record["experiment"]
        assert row["prompt"]["n_tokens"] == row["prompt"]["n_bytes"] == 50
        assert len(row["chosen"]) == len(row["similarities"]) == max(0, len(row["variances"]) - 1)
        if row["arm"] == BASE.as_record():
            expected = lm.bits_per_byte(text)
            assert row["bits_per_byte"] == [pytest.approx(expected, abs=1e-6)]
        assert Arm.from_record(row["arm"]) in [BASE, *ARMS]


def test_the_record_tells_nothing_of_the_machine_s_folders(finished, model_folder):
    record = finished.rows()[0]
    configuration = json.dumps(record["configuration"])
    assert "/" not in configuration
    assert str(model_folder) not in json.dumps(record)
    assert model_folder.name in configuration


def test_a_second_run_measures_nothing(finished, experiment, cache):
    before = finished.path.read_bytes()
    rows = run_language_modeling(experiment, ARMS, file=finished, cache_folder=cache)
    assert rows == finished.rows()
    assert finished.path.read_bytes() == before


class Interrupted:
    """Measures so many rows and then fails, as a worker may."""

    def __init__(self, make_worker, n_rows):
        self.worker, self.left = make_worker(), n_rows

    def __call__(self, task):
        for row in self.worker(task):
            if not self.left:
                raise ZeroDivisionError("a cable was pulled")
            self.left -= 1
            yield row


@pytest.mark.parametrize("n_rows", [1, 8])
def test_an_interrupted_run_goes_on_to_the_same_rows(
    n_rows, finished, prepared, experiment, cache, tmp_path
):
    file = ResultsFile(tmp_path / "rows.jsonl")
    file.append(prepared.record())
    with pytest.raises(ExperimentError, match="a cable was pulled"):
        run_tasks(
            prepared.tasks(FEW_ARMS, set()),
            partial(Interrupted, prepared.make_worker(), n_rows),
            file=file,
        )
    with file.path.open("ab") as raw:
        raw.write(finished.path.read_bytes().splitlines()[-1][:-30])
    begun = file.rows()
    assert len(begun) == 1 + n_rows
    rows = run_language_modeling(experiment, FEW_ARMS, file=file, cache_folder=cache)
    assert rows[: len(begun)] == begun
    assert_same_results(rows, of_arms(finished.rows(), FEW_ARMS))


@pytest.mark.slow
def test_two_workers_give_what_one_gives(finished, experiment, cache, tmp_path):
    file = ResultsFile(tmp_path / "rows.jsonl")
    rows = run_language_modeling(experiment, FEW_ARMS, file=file, workers=2, cache_folder=cache)
    assert_same_results(rows, of_arms(finished.rows(), FEW_ARMS))


@pytest.mark.slow
def test_ray_gives_what_one_process_gives(finished, experiment, cache, tmp_path):
    pytest.importorskip("ray", reason="needs Ray")
    file = ResultsFile(tmp_path / "rows.jsonl")
    rows = run_language_modeling(
        experiment, FEW_ARMS, file=file, workers=2, ray_address="local", cache_folder=cache
    )
    assert_same_results(rows, of_arms(finished.rows(), FEW_ARMS))


def test_prompts_and_arms_are_added_to_what_is_there(finished, experiment, cache, tmp_path):
    file = ResultsFile(tmp_path / "rows.jsonl")
    run = partial(run_language_modeling, file=file, cache_folder=cache)
    first = run(replace(experiment, prompts_per_domain=1), ARMS[:2])
    assert len(first) == 1 + 2 * 3
    second = run(experiment, ARMS[:2])
    assert second[: len(first)] == first
    assert len(second) == 1 + 4 * 3
    assert_same_results(run(experiment, ARMS[:3]), of_arms(finished.rows(), ARMS[:3]))


def test_another_chunk_length_is_another_experiment_in_the_same_file(experiment, cache, tmp_path):
    file = ResultsFile(tmp_path / "rows.jsonl")
    one = replace(experiment, prompts_per_domain=1)
    first = run_language_modeling(one, ARMS[3:4], file=file, cache_folder=cache)
    other = replace(one, chunk_tokens=20)
    second = run_language_modeling(other, ARMS[3:4], file=file, cache_folder=cache)
    assert file.rows() == first + second
    assert {row["experiment"] for row in first} == {first[0]["experiment"]}
    assert first[0]["experiment"] != second[0]["experiment"]
    assert not {row.get("key") for row in first[1:]} & {row.get("key") for row in second[1:]}


def test_samples_of_prompts_and_the_device_are_no_part_of_the_identity(
    prepared, experiment, cache, tmp_path
):
    shares = write(tmp_path / "shares.jsonl", [{"id": "p0", "gram8_covered": 0.25}])
    other = PreparedExperiment(
        replace(
            experiment, prompts_per_domain=1, skipped_per_domain=1, near_duplicates=shares, alpha=16
        ),
        cache_folder=cache,
    )
    assert other.digest == prepared.digest
    told = {task.prompt["id"]: task.prompt["near_duplicate"] for task in other.tasks([], set())}
    assert len(told) == 2
    assert told == {document_id: 0.25 if document_id == "p0" else None for document_id in told}


def test_shares_of_other_prompts_are_refused(experiment, cache, tmp_path):
    shares = write(tmp_path / "shares.jsonl", [{"id": "elsewhere", "gram8_covered": 0.25}])
    with pytest.raises(InvalidInputError, match=r"shares\.jsonl has a share of none of the 4"):
        PreparedExperiment(replace(experiment, near_duplicates=shares), cache_folder=cache)


def test_a_file_that_another_run_writes_is_refused_before_anything_is_read(experiment, tmp_path):
    file = ResultsFile(tmp_path / "rows.jsonl")
    missing = replace(experiment, prompts=tmp_path / "none.jsonl")
    with file, pytest.raises(ExperimentError, match="another run"):
        run_language_modeling(missing, ARMS, file=ResultsFile(file.path))


@pytest.mark.parametrize("progress", [True, False])
def test_bars_are_shown_where_they_are_wanted(experiment, tmp_path, monkeypatch, progress):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    one = replace(experiment, prompts_per_domain=1)
    file = ResultsFile(tmp_path / "rows.jsonl")
    run_language_modeling(one, [], file=file, progress=progress, cache_folder=tmp_path / "new")
    assert len(file.rows()) == 1 + 2
    for bar in ("embedding the data space: 100%", "measured: 100%"):
        assert (bar in shown.getvalue()) is progress


def test_the_first_neighbour_over_and_over_is_one_document(prepared):
    for (nearest, _), (again, _) in choices(prepared, reading("NN"), reading("NN-F")).values():
        assert again == nearest[:1] * 50


def test_the_control_gets_what_sift_chose_for_another_prompt(prepared):
    found = choices(prepared, ARMS[0], ARMS[7])
    own = {prompt: tuple(sift[0]) for prompt, (sift, _) in found.items()}
    control = {prompt: tuple(other[0]) for prompt, (_, other) in found.items()}
    assert sorted(control.values()) == sorted(own.values())
    assert all(control[prompt] != own[prompt] for prompt in own)


def test_the_variance_begins_at_one_and_falls_most_where_sift_chose(prepared):
    for (_, sift), (_, nearest), (_, control) in choices(
        prepared, ARMS[0], tuning(n_steps=3), ARMS[7]
    ).values():
        for variances in (sift, nearest, control):
            assert variances[0] == 1.0
            assert (np.diff(variances) <= 1e-9).all()
        assert sift[1] <= nearest[1] + 1e-6
        assert sift[-1] < control[-1]


def test_embeddings_of_other_lengths_choose_or_know_otherwise(prepared):
    raw = replace(ARMS[0], is_normalized=False)
    found = choices(prepared, ARMS[0], raw)
    assert all(one[1][0] == raw_one[1][0] == 1.0 for one, raw_one in found.values())
    assert any(one[1] != pytest.approx(raw_one[1], abs=1e-3) for one, raw_one in found.values())


def test_few_candidates(prepared):
    n_chunks = len(prepared.chunks)
    assert n_chunks < 20
    sift, nearest, uncertain = (
        reading("SIFT", 0.1, n_candidates=2, n_steps=5),
        reading("NN", n_candidates=2, n_steps=5),
        reading("NN", n_candidates=200, n_steps=50),
    )
    for few, two, every in choices(prepared, sift, nearest, uncertain).values():
        assert len(few[0]) == 5
        assert set(few[0]) <= set(two[0])
        assert len(two[0]) == 2
        assert len(set(every[0])) == len(every[0]) == n_chunks


def test_prompts_from_the_data_space_are_refused(experiment, cache, tmp_path):
    rows = [{"id": "new", "text": "a text"}, {"id": "cut", "doc": "s1", "text": "another"}]
    prompts = write(tmp_path / "prompts.jsonl", rows)
    with pytest.raises(InvalidInputError, match=r"1 sources.*'s1'"):
        PreparedExperiment(replace(experiment, prompts=prompts), cache_folder=cache)


def test_no_prompt_left_is_refused(experiment, cache):
    with pytest.raises(InvalidInputError, match="no prompt is left"):
        PreparedExperiment(replace(experiment, skipped_per_domain=2), cache_folder=cache)


def test_one_prompt_has_no_control_and_all_else(experiment, cache, tmp_path):
    """It has one token, too."""
    prompts = write(tmp_path / "prompts.jsonl", [{"text": "x"}])
    file = ResultsFile(tmp_path / "rows.jsonl")
    run = partial(run_language_modeling, replace(experiment, prompts=prompts), cache_folder=cache)
    rows = run([ARMS[0], ARMS[8]], file=file)
    assert len(rows) == 4
    assert {row["prompt"]["n_tokens"] for row in rows[1:]} == {1}
    with pytest.raises(InvalidInputError, match="second prompt"):
        run([ARMS[7]], file=file)
    assert file.rows() == rows


def test_a_prompt_longer_than_the_window(experiment, cache, lm, tmp_path):
    text = sentence(7, 40)
    prompts = write(tmp_path / "prompts.jsonl", [{"text": text}])
    long = replace(experiment, prompts=prompts, prompt_tokens=150)
    file = ResultsFile(tmp_path / "rows.jsonl")
    _, *rows = run_language_modeling(long, [ARMS[0], ARMS[8]], file=file, cache_folder=cache)
    assert len(rows) == 3
    assert {row["prompt"]["n_tokens"] for row in rows} == {150}
    base = next(row for row in rows if row["arm"]["mode"] == "base")
    assert base["bits_per_byte"] == [pytest.approx(lm.bits_per_byte(text[:150]), abs=1e-6)]


def test_a_tokenizer_that_knows_no_places_is_refused(experiment, cache, tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=384, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "slow")
    transformers.ByT5Tokenizer().save_pretrained(tmp_path / "slow")
    with pytest.raises(InvalidInputError, match="fast tokenizer"):
        PreparedExperiment(
            replace(experiment, base_model=str(tmp_path / "slow")), cache_folder=cache
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"chunk_tokens": 0}, "chunk_tokens"),
        ({"prompt_tokens": 0}, "prompt_tokens"),
        ({"rank": 0}, "rank"),
        ({"alpha": -1.0}, "alpha"),
        ({"seed": -1}, "seed"),
        ({"score_after": (-1,)}, "score_after"),
        ({"prompts_per_domain": 0}, "prompts_per_domain"),
        ({"chunks_per_document": 0}, "chunks_per_document"),
        ({"skipped_per_domain": -1}, "skipped_per_domain"),
    ],
)
def test_numbers_out_of_range_are_refused_before_anything_is_read(experiment, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        replace(experiment, **settings)
