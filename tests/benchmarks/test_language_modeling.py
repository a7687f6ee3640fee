"""The paper's experiment: its tables by hand, and a run from texts to rows."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("joblib")
torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from benchmarks import results_page  # noqa: E402
from benchmarks.language_modeling import __main__ as benchmark  # noqa: E402
from benchmarks.language_modeling import experiment as experiments  # noqa: E402
from benchmarks.language_modeling.adaptive_tables import adaptive_table, stop_step  # noqa: E402
from benchmarks.language_modeling.arms import BASE, MainSettings, arms_of  # noqa: E402
from benchmarks.language_modeling.context_tables import (  # noqa: E402
    best_mode_table,
    context_table,
)
from benchmarks.language_modeling.experiment import (  # noqa: E402
    LanguageModelingExperiment,
    PreparedExperiment,
    run_language_modeling,
)
from benchmarks.language_modeling.measuring import ChosenArm, PromptTask  # noqa: E402
from benchmarks.language_modeling.part_tables import tables_of  # noqa: E402
from benchmarks.language_modeling.results import results_of  # noqa: E402
from benchmarks.language_modeling.running import ResultsFile  # noqa: E402
from benchmarks.language_modeling.statistics import pearson, spearman  # noqa: E402
from benchmarks.language_modeling.tables import main_table  # noqa: E402
from sift_core.answering import LanguageModel, fine_tuned  # noqa: E402
from sift_core.errors import ExperimentError, InvalidInputError  # noqa: E402
from sift_core.evaluation.statistics import Estimate  # noqa: E402
from sift_core.testing import HashingEmbedder  # noqa: E402
from sift_core.types import CandidatePool  # noqa: E402
from tests.answering.shapes import ALL_SHAPES, byte_tokenizer  # noqa: E402

MAIN = MainSettings()
SIFT, NN = MAIN.learning("SIFT"), MAIN.learning("NN")
RESULTS = Path(results_page.RESULTS)


def row(prompt, arm, bits, *, domain="books", steps=None, n_bytes=100, **more):
    bits = bits if isinstance(bits, list) else [bits]
    return {
        "kind": "result",
        "key": f"{arm} {prompt}",
        "experiment": "e1",
        "prompt": {"id": prompt, "domain": domain, "n_bytes": n_bytes, "near_duplicate": None},
        "arm": arm.as_record(),
        "steps": steps or list(range(len(bits))),
        "bits_per_byte": bits,
        "chosen": [],
        "similarities": [],
        "variances": [],
        "report": None,
    } | more


def cell(table, line, head):
    (cells,) = [cells for cells in table.rows if cells[0].text == line]
    return cells[table.heads.index(head)]


def value(table, line, head):
    found = cell(table, line, head).value
    return found.value if isinstance(found, Estimate) else found


def results_of_percents(columns, domains="aabb"):
    """Return results in which the base model has 2 bits per byte."""
    rows = [row(f"p{i}", BASE, 2.0, domain=one) for i, one in enumerate(domains)]
    rows += [
        row(f"p{i}", arm, [2.0, percent / 50], domain=domains[i], steps=[0, 2])
        for arm, percents in columns.items()
        for i, percent in enumerate(percents)
        if percent is not None
    ]
    return results_of(rows)


COLUMNS = {SIFT: [80, 84, 90, 92], NN: [84, 88, 95, 91], MAIN.learning("NN-F"): [99, 99, None, 99]}


def test_the_main_table_by_hand():
    table = main_table(results_of_percents(COLUMNS))
    assert table.heads == ("", "n", "base", "NN", "NN-F", "SIFT(0.1)", "Δ")
    # Domain a: SIFT (80 + 84) / 2 = 82 with deviations ±2, so SE = √8 / √2 = 2; NN 86.
    assert cell(table, "a", "SIFT(0.1)").text == "82.0 (2.0)"
    assert value(table, "a", "Δ") == pytest.approx(82 - 86)
    assert cell(table, "a", "SIFT(0.1)").is_bold
    assert not cell(table, "a", "NN-F").is_bold
    # p2 lacks NN-F, so that domain b and the last line leave it out: (80 + 84 + 92) / 3.
    assert [value(table, line, "n") for line in ("a", "b", "All")] == [2, 1, 3]
    assert value(table, "All", "SIFT(0.1)") == pytest.approx(256 / 3)
    assert cell(table, "b", "Δ").text == "+1.0 [–]"


def test_a_second_noise_variance_is_in_the_main_table_where_every_prompt_has_it():
    paper = {MAIN.learning("SIFT", noise_variance=0.01): [70, 70, None, 70]}
    table = main_table(results_of_percents(COLUMNS | paper))
    assert table.heads == ("", "n", "base", "NN", "NN-F", "SIFT(0.01)", "SIFT(0.1)", "Δ")
    # Δ is of the main λ still, and p2, which lacks NN-F too, is left out.
    assert value(table, "a", "Δ") == pytest.approx(82 - 86)
    assert value(table, "All", "n") == 3
    few = {MAIN.learning("SIFT", noise_variance=0.01): [70, None, None, 70]}
    assert main_table(results_of_percents(COLUMNS | few)) == main_table(
        results_of_percents(COLUMNS)
    )


def test_the_context_tables_by_hand():
    columns = {
        SIFT: [80, 105],
        MAIN.reading("SIFT", 1024): [70, 120],
        MAIN.reading("SIFT", 4096): [60, 110],
        replace(SIFT, mode="both", context_tokens=4096): [65, 95],
        MAIN.reading("SIFT context", 4096): [50, 100],
    }
    results = results_of_percents(columns, domains="ab")
    table = context_table(results)
    assert [value(table, room, "context SIFT") for room in ("1,024", "4,096")] == [95, 85]
    assert [value(table, room, "fine_tune SIFT") for room in ("1,024", "4,096")] == [92.5, 92.5]
    assert cell(table, "1,024", "both SIFT").text == "–"
    assert value(table, "4,096", "context default") == 75
    # Of 4,096 tokens: p0 reads best (60), p1 does both (95): the base is at 100.
    best = best_mode_table(results)
    shares = [value(best, "4,096", f"{mode}, %") for mode in ("base", "context", "both")]
    assert shares == [0, 50, 50]
    assert value(best, "4,096", "the best of all") == pytest.approx(77.5)
    # Of 1,024: p1 is best left alone.
    assert value(best, "1,024", "base, %") == 50


def test_correlations_are_numpys_and_drawn_by_prompt():
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((2, 40))
    prompts = np.repeat(np.arange(20), 2)
    found = pearson(x, y, prompts)
    assert found.value == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert found.low < found.value < found.high
    assert found.n == 20
    assert spearman(np.exp(x), y, prompts).value == spearman(x, y, prompts).value
    assert math.isnan(pearson(x, np.ones(40), prompts).value)


def test_adaptive_sift_stops_by_hand():
    # σ = 1, .5, .5, .1: before step 1 at α = 1: .5 * 1 > 1 is false; step 2: .5 * 2 > 1 false;
    # step 3: .1 * 3 > 1 false. At α = 1.5 step 2 is refused: .5 * 1.5 * 2 = 1.5 > 1.
    variances = np.array([1.0, 0.25, 0.25, 0.01])
    assert stop_step(variances, 1.0) == 3
    assert stop_step(variances, 1.5) == 1
    rows = [row("p", BASE, 2.0), row("q", BASE, 2.0)]
    more = {"variances": [1.0, 0.9, 0.9], "chosen": ["a", "b"]}
    rows += [row(name, SIFT, [2.0, 1.0], steps=[0, 2], **more) for name in "pq"]
    table = adaptive_table(results_of(rows))
    # σ_1 = .95, so α = 1 stops before step 2: one step, half way from 100 % to 50 %.
    assert value(table, "1.000", "steps") == 1
    assert value(table, "1.000", "% of base") == 75
    assert value(table, "0.030", "forced") == 2


@pytest.mark.slow
def test_the_committed_rows_give_the_committed_tables(tmp_path):
    written = tmp_path / "tables.md"
    options = ["--results", str(RESULTS / "language_modeling.jsonl"), "--markdown", str(written)]
    benchmark.main([*options, "--plots", str(tmp_path), "--json", str(tmp_path / "rows.json")])
    assert written.read_text() == (RESULTS / "language_modeling.md").read_text()
    rows, committed = (
        json.loads(path.read_text())["rows"]
        for path in (tmp_path / "rows.json", RESULTS / "language_modeling.json")
    )
    assert len(rows) == len(committed)
    assert rows[0] == pytest.approx(committed[0])
    assert {path.name for path in tmp_path.glob("*.png")} == {
        path.name for path in (RESULTS / "language_modeling").iterdir()
    }


# From here on with a model.

CHUNKS = ("a river of stones", "stones of a house", "a cat and a river")
PROMPT = "stones in a river"
TUNED = replace(NN, n_steps=3, learning_rate=5e-3)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """A random model with a window of 64 tokens, a token a byte."""
    folder = tmp_path_factory.mktemp("model") / "random_lm"
    ALL_SHAPES["llama, own head"]().save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def experiment(tmp_path_factory, model_folder):
    folder = tmp_path_factory.mktemp("texts")
    words = "river stone cloud market engine proof violin harbour cipher garden".split()

    def written(name, n, domains):
        rows = [
            {
                "id": f"{name}{i}",
                "domain": domains[i % 2],
                "text": " ".join(np.random.default_rng([len(name), i]).choice(words, 12)),
            }
            for i in range(n)
        ]
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
        return path

    return LanguageModelingExperiment(
        data_space=written("space", 6, "xy"),
        prompts=written("prompt", 4, "ab"),
        base_model=str(model_folder),
        chunk_tokens=40,
        prompt_tokens=30,
        score_after=(0, 1),
        rank=2,
        device="cpu",
        dtype="float32",
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("embeddings")


@pytest.fixture(autouse=True)
def hashing(monkeypatch):
    class Raw(HashingEmbedder):
        name = "all-MiniLM-L6-v2, not normalized"

    monkeypatch.setattr(experiments, "SentenceTransformerEmbedder", lambda name, normalize: Raw())


def measured(experiment, *arms):
    measurer = replace(experiment, score_after=(0, 1, 2, 3)).load_measurer()
    embedder = HashingEmbedder()
    embeddings = embedder.embed_documents(CHUNKS)
    chosen = [
        ChosenArm(
            arm=arm,
            key=str(number),
            positions=() if arm == BASE else (2, 0, 1),
            variances=(1.0, 0.5, 0.25, 0.125),
            select_s=0.0,
        )
        for number, arm in enumerate(arms)
    ]
    pool = CandidatePool(
        document_ids=["c0", "c1", "c2"],
        texts=CHUNKS,
        embeddings=embeddings,
        similarities=embeddings @ embedder.embed_query(PROMPT),
    )
    task = PromptTask(prompt={"id": "p"}, text=PROMPT, experiment="e", pool=pool, arms=chosen)
    return sorted(measurer(task), key=lambda one: one["key"])


def test_rows_are_what_fine_tuning_and_scoring_give(experiment, model_folder):
    lm = LanguageModel.from_pretrained(model_folder, device="cpu", dtype="float32")
    reversed_order = replace(TUNED, order="reversed")
    base, tuned, both, backwards = measured(
        experiment, BASE, TUNED, replace(TUNED, mode="both"), reversed_order
    )
    assert base["bits_per_byte"] == [pytest.approx(lm.bits_per_byte(PROMPT), abs=1e-6)]
    assert tuned["steps"] == [0, 1, 2, 3]
    settings = replace(experiment.load_measurer()._settings, learning_rate=5e-3)
    texts = [CHUNKS[i] for i in (2, 0, 1)]
    for n in (1, 2, 3):
        with fine_tuned(lm, texts[:n], settings):
            expected = lm.bits_per_byte(PROMPT)
        assert tuned["bits_per_byte"][n] == pytest.approx(expected, abs=2e-6)
    with fine_tuned(lm, texts, settings):
        expected = lm.bits_per_byte(PROMPT, context=f"{CHUNKS[0]}\n\n{CHUNKS[2]}")  # what fits
    assert both["bits_per_byte"] == [pytest.approx(expected, abs=2e-6)]
    with fine_tuned(lm, texts[::-1], settings):
        expected = lm.bits_per_byte(PROMPT)
    assert backwards["bits_per_byte"][-1] == pytest.approx(expected, abs=2e-6)


@pytest.mark.slow
def test_a_run_goes_on_from_its_rows(experiment, cache, tmp_path):
    arms = arms_of(["context", "normalized"], replace(MAIN, n_steps=2))
    path = tmp_path / "rows.jsonl"
    rows = run_language_modeling(experiment, arms, path=path, cache_folder=cache)
    assert len(rows) == 1 + 4 * (1 + len(arms))
    whole = path.read_bytes()
    # Killed in the middle of a row: what is whole is kept, the rest measured again.
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:9]) + lines[9][:30])
    again = run_language_modeling(experiment, arms, path=path, cache_folder=cache)
    assert path.read_bytes().startswith(b"".join(lines[:9]))
    assert {one["key"]: one["bits_per_byte"] for one in again[1:]} == {
        one["key"]: one["bits_per_byte"] for one in rows[1:]
    }
    assert set(tables_of(results_of(again), ["context", "normalized"])) == {"context", "normalized"}
    with ResultsFile(path), pytest.raises(ExperimentError, match="another run"):
        run_language_modeling(experiment, arms, path=path, cache_folder=cache)


@pytest.mark.slow
@pytest.mark.parametrize("ray_address", [None, "local"], ids=["joblib", "Ray"])
def test_workers_give_what_one_process_gives(experiment, cache, tmp_path, ray_address):
    if ray_address:
        pytest.importorskip("ray")
    arms = [TUNED, MAIN.reading("SIFT")]
    found = [
        run_language_modeling(
            experiment, arms, path=tmp_path / f"{n}.jsonl", cache_folder=cache, workers=n, **more
        )
        for n, more in ((1, {}), (2, {"ray_address": ray_address}))
    ]
    one, two = ({row["key"]: row["bits_per_byte"] for row in rows[1:]} for rows in found)
    assert one == two


def test_the_control_is_sifts_choice_for_another_prompt(experiment, cache):
    prepared = PreparedExperiment(experiment, cache_folder=cache)
    arms = [replace(MAIN.reading(name), n_steps=3) for name in ("SIFT", "other prompt", "NN-F")]
    tasks = prepared.tasks(arms, set())
    chosen = [
        [[task.pool.document_ids[p] for p in one.positions] for one in task.arms[1:]]
        for task in tasks
    ]
    assert sorted(control for _, control, _ in chosen) == sorted(own for own, _, _ in chosen)
    assert all(own != control for own, control, _ in chosen)
    assert all(len(set(repeated)) == 1 for _, _, repeated in chosen)


def test_prompts_from_the_data_space_are_refused(experiment, cache):
    with pytest.raises(InvalidInputError, match="6 sources are in both"):
        PreparedExperiment(replace(experiment, prompts=experiment.data_space), cache_folder=cache)
