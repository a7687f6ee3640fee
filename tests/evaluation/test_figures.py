from __future__ import annotations

import subprocess
import sys
from functools import cache

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.arm_grids import main_arms, mode_arms, varied
from sift_core.evaluation.analysis.rows import Results
from sift_core.evaluation.figures import ablations as figures_ablations
from sift_core.evaluation.figures import adaptive as figures_adaptive
from sift_core.evaluation.figures import language_modeling as figures_language_modeling
from sift_core.evaluation.figures import retrieval as figures_retrieval
from sift_core.evaluation.figures import uncertainty as figures_uncertainty
from sift_core.evaluation.figures import unique as figures_unique
from sift_core.evaluation.figures.style import as_bytes, columns_that_fit, save, styles_for
from sift_core.evaluation.language_modeling.arms import learning, reading
from tests.evaluation.synthetic import prompt, results_of_percents, row, rows_of_percents

SIFT, NN, NN_F = learning("SIFT", 0.1), learning("NN"), learning("NN-F")
OTHER = learning("other prompt", 0.1)
PROMPTS = [prompt(f"b{i}") for i in range(4)] + [prompt(f"c{i}", "code") for i in range(3)]
PERCENTS = {
    SIFT: [80, 82, 84, 86, 90, 91, 92],
    NN: [82, 84, 86, 88, 94, 95, 96],
    NN_F: [101, 99, 100, 100, 98, 99, 97],
}


def results(extra=None):
    return results_of_percents(PROMPTS, {**PERCENTS, **(extra or {})})


def shifted(points):
    return [percent + points for percent in PERCENTS[SIFT]]


@cache
def many_settings():
    return results(
        {
            OTHER: shifted(20),
            reading("SIFT", 0.1): shifted(10),
            learning("SIFT", 0.1, mode="both"): shifted(-1),
            reading("SIFT context"): shifted(8),
            learning("SIFT", 0.01): shifted(2),
            learning("SIFT", 1.0): shifted(3),
            learning("SIFT", 0.1, n_candidates=50): shifted(1),
            learning("SIFT", 0.1, learning_rate=5e-5): shifted(5),
            learning("SIFT", 0.1, scope="head", learning_rate=5e-3): shifted(6),
            learning("SIFT", 0.1, scope="head"): shifted(7),
            learning("SIFT", 0.1, order="reversed"): shifted(0.5),
            learning("SIFT", 0.1, chunks_per_step=5): shifted(1.5),
            learning("SIFT", 0.1, is_normalized=False): shifted(2.5),
        }
    )


def with_variances(n_prompts=12):
    """σ² falls with every choice, and bits per byte fall with it."""
    rows = rows_of_percents([prompt(f"p{i}") for i in range(n_prompts)], {})
    for i in range(n_prompts):
        sigma = 1 / (1 + (i + 1) * np.arange(5) / 10)
        rows.append(
            row(
                prompt(f"p{i}"),
                SIFT,
                (2 * (0.5 + sigma / 2)).tolist(),
                chosen=[f"d{j % (i + 1)}" for j in range(4)],
                variances=(sigma**2).tolist(),
            )
        )
    return Results.from_rows(rows)


def retrieval_rows(
    conditions=("as is", "duplicates 4"), methods=("nn", "sift", "mmr .5", "mmr .7")
):
    return [
        {
            "set": name,
            "condition": condition,
            "method": method,
            "recall@10": 0.5 + 0.1 * i,
            "ci": {"recall@10": [0.45 + 0.1 * i, 0.55 + 0.1 * i]},
            "n_queries": 40,
        }
        for name in ("squad", "musique")
        for condition in conditions
        for i, method in enumerate(methods)
    ]


def curves_of(axes):
    """By label, the x and y of what was drawn with error bars."""
    return {
        one.get_label(): one.lines[0].get_xydata()
        for one in axes.containers
        if isinstance(one, ErrorbarContainer)
    }


def bars_of(axes, label):
    """The ends of the error bars of one label, shape (n, 2, 2)."""
    (own,) = [one for one in axes.containers if one.get_label() == label]
    return np.array(own.lines[2][0].get_segments())


FIGURES = {
    "learning_curves": lambda: figures_language_modeling.learning_curves(many_settings()),
    "domain_dots": lambda: figures_language_modeling.domain_dots(many_settings()),
    "mode_dots": lambda: figures_language_modeling.mode_dots(many_settings()),
    "noise_variance_curve": lambda: figures_ablations.noise_variance_curve(many_settings()),
    "n_candidates_curve": lambda: figures_ablations.n_candidates_curve(many_settings()),
    "learning_rate_curve": lambda: figures_ablations.learning_rate_curve(many_settings()),
    "scope_dots": lambda: figures_ablations.scope_dots(many_settings()),
    "setting_dots": lambda: figures_ablations.setting_dots(many_settings()),
    "unique_picks": lambda: figures_unique.unique_picks(with_variances()),
    "uncertainty_scatter": lambda: figures_uncertainty.uncertainty_scatter(with_variances()),
    "reliability_diagram": lambda: figures_uncertainty.reliability_diagram(with_variances()),
    "adaptive_curve": lambda: figures_adaptive.adaptive_curve(with_variances()),
    "retrieval_dots": lambda: figures_retrieval.retrieval_dots(retrieval_rows()),
    "copies_curve": lambda: figures_retrieval.copies_curve(
        retrieval_rows(["duplicates 1", "duplicates 2"])
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_fits_says_what_it_shows_and_is_the_same_bytes_each_time(name):
    first, second = FIGURES[name](), FIGURES[name]()
    assert as_bytes(first, "svg") == as_bytes(second, "svg")
    assert len(first.caption) > 40
    assert len(first.alt) > 40
    assert first.axes[-1].get_xlabel()
    width, height = first.get_size_inches() * first.dpi
    boxes = [axes.get_tightbbox() for axes in first.axes if axes.get_visible()]
    boxes += [legend.get_window_extent() for legend in first.legends]
    for box in boxes:
        assert min(box.x0, box.y0, width - box.x1, height - box.y1) >= 0


def test_png_files_are_the_same_bytes_at_twice_the_size():
    first, second = (figures_uncertainty.uncertainty_scatter(with_variances()) for _ in range(2))
    content = as_bytes(first, "png")
    assert content == as_bytes(second, "png")
    assert content.startswith(b"\x89PNG")
    assert int.from_bytes(content[16:20], "big") == 1400


def test_learning_curves_have_a_line_a_selector_a_base_and_a_level_for_context():
    extra = {reading("SIFT", 0.1): shifted(10)}
    (axes,) = figures_language_modeling.learning_curves(results(extra)).axes
    lines = curves_of(axes)
    assert set(lines) == {"SIFT(0.1)", "NN", "NN-F"}
    # The means of the rows above: (80 + 82 + 84 + 86 + 90 + 91 + 92) / 7.
    np.testing.assert_allclose(lines["SIFT(0.1)"], [[0, 100], [2, 605 / 7]])
    levels = {line.get_label(): line.get_ydata()[0] for line in axes.lines}
    assert levels["base"] == 100
    assert levels["SIFT(0.1) in context"] == pytest.approx(605 / 7 + 10)
    assert axes.get_xlabel() == "chunks learned"
    assert axes.get_ylabel() == "bits per byte, % of base (mean, 90 % CI)"


def test_a_band_of_a_learning_curve_is_as_wide_as_the_interval():
    (axes,) = figures_language_modeling.learning_curves(results()).axes
    band = axes.collections[0].get_paths()[0].vertices
    at_the_end = band[band[:, 0] == 2][:, 1]
    assert 80 < at_the_end.min() < 605 / 7 < at_the_end.max() < 92


def test_domains_are_lines_and_selectors_marks():
    main, gap = figures_language_modeling.domain_dots(results()).axes
    assert [label.get_text() for label in main.get_yticklabels()] == [
        "all domains",
        "books",
        "code",
    ]
    marks = curves_of(main)
    np.testing.assert_allclose(marks["SIFT(0.1)"][:, 0], [605 / 7, 83, 91])
    np.testing.assert_allclose(marks["NN"][:, 0], [625 / 7, 85, 95])
    bars = bars_of(main, "SIFT(0.1)")
    assert np.all(bars[:, 0, 0] < marks["SIFT(0.1)"][:, 0])
    assert np.all(bars[:, 1, 0] > marks["SIFT(0.1)"][:, 0])
    # SIFT is 2 below NN on each of the books and 4 below it on the code: no uncertainty there.
    ((_, differences),) = curves_of(gap).items()
    np.testing.assert_allclose(differences[1:, 0], [-2, -4])


def test_a_control_is_no_baseline():
    _, gap = figures_language_modeling.domain_dots(results({OTHER: [1] * 7})).axes
    ((_, differences),) = curves_of(gap).items()
    assert np.all(differences[:, 0] < 0)


def test_means_are_over_the_prompts_that_all_selectors_have():
    extra = {OTHER: [50, None, None, None, 60, None, None]}
    main, _ = figures_language_modeling.domain_dots(results(extra)).axes
    np.testing.assert_allclose(curves_of(main)["NN"][:, 0], [88, 82, 94])


def test_a_single_prompt_has_marks_without_error_bars():
    one = results_of_percents([prompt("p")], {SIFT: [80], NN: [90]})
    main, _ = figures_language_modeling.domain_dots(one).axes
    bars = bars_of(main, "NN")
    assert np.all(bars[:, 0] == bars[:, 1])


def test_modes_are_marks():
    (axes,) = figures_language_modeling.mode_dots(many_settings()).axes
    marks = curves_of(axes)
    assert list(marks) == ["in context", "fine-tuned", "both", "SIFT context in context"]
    overall = [marks[label][0, 0] - 605 / 7 for label in marks]
    np.testing.assert_allclose(overall, [10, 0, -1, 8], atol=1e-9)


def test_noise_variances_are_a_curve_and_neighbours_are_levels():
    (axes,) = figures_ablations.noise_variance_curve(many_settings()).axes
    np.testing.assert_allclose(
        curves_of(axes)["SIFT"], [[0.01, 605 / 7 + 2], [0.1, 605 / 7], [1, 605 / 7 + 3]]
    )
    assert {line.get_label() for line in axes.lines if line.get_label()[0] != "_"} == {"NN", "NN-F"}
    assert axes.get_xscale() == "log"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.01", "0.1", "1"]
    assert bars_of(axes, "SIFT").shape == (3, 2, 2)


def test_learning_rates_are_a_line_a_scope():
    (axes,) = figures_ablations.learning_rate_curve(many_settings()).axes
    lines = curves_of(axes)
    np.testing.assert_allclose(lines["LoRA, all layers"][:, 0], [5e-5, 5e-4])
    np.testing.assert_allclose(lines["head"], [[5e-4, 605 / 7 + 7], [5e-3, 605 / 7 + 6]])


def test_scopes_stand_at_their_best_learning_rate():
    (axes,) = figures_ablations.scope_dots(many_settings()).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["LoRA, all layers (0.0005)", "head (0.005)"]
    ((_, marks),) = curves_of(axes).items()
    np.testing.assert_allclose(marks[:, 0], [605 / 7, 605 / 7 + 6])


def test_only_settings_that_were_varied_have_a_panel():
    figure = figures_ablations.setting_dots(
        results({learning("SIFT", 0.1, order="reversed"): shifted(1)})
    )
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "order of steps"
    assert [text.get_text() for text in axes.get_yticklabels()] == ["as chosen", "reversed"]


@pytest.mark.parametrize(
    "draw",
    [
        figures_language_modeling.mode_dots,
        figures_ablations.noise_variance_curve,
        figures_ablations.n_candidates_curve,
        figures_ablations.learning_rate_curve,
        figures_ablations.scope_dots,
        figures_ablations.setting_dots,
        figures_uncertainty.uncertainty_scatter,
        figures_adaptive.adaptive_curve,
    ],
)
def test_what_was_not_measured_cannot_be_drawn(draw):
    with pytest.raises(InvalidInputError):
        draw(results())


def test_unique_picks_need_what_was_chosen():
    with pytest.raises(InvalidInputError, match="what was chosen"):
        figures_unique.unique_picks(results())


def test_unique_picks_are_counted():
    rows = rows_of_percents(PROMPTS, {NN: PERCENTS[NN]})
    for i, of in enumerate(PROMPTS):
        bits = [2.0, 2 * PERCENTS[SIFT][i] / 100]
        rows.append(row(of, SIFT, bits, chosen=["a", "a"] if i < 4 else ["a", "b"]))
    left, right = figures_unique.unique_picks(Results.from_rows(rows)).axes
    heights = [patch.get_height() for patch in left.patches]
    np.testing.assert_allclose(heights, [400 / 7, 300 / 7])
    assert [text.get_text() for text in right.get_yticklabels()] == ["all", "1", "2 to 10"]
    ones = curves_of(right)["NN"][1, 0]
    assert ones == pytest.approx(100 * np.mean([80 / 82, 82 / 84, 84 / 86, 86 / 88]))


def test_uncertainty_has_a_mark_a_prompt_and_step():
    left, right = figures_uncertainty.uncertainty_scatter(with_variances()).axes
    points = {line.get_label(): line.get_xydata() for line in left.lines}
    assert points["every measured n"].shape == (60, 2)
    assert points["last n"].shape == (12, 2)
    # bpb = 2 (0.5 + σ / 2) = 1 + σ: the fit is that line.
    np.testing.assert_allclose(points["linear fit"][:, 1], 1 + points["linear fit"][:, 0])
    assert (left.get_xlabel(), right.get_xlabel()) == ("σₙ", "σₙ · bpb₀")


def test_reliability_has_a_mark_and_an_interval_a_bin():
    left, _ = figures_uncertainty.reliability_diagram(with_variances(), n_bins=5).axes
    (container,) = left.containers
    assert len(container.lines[0].get_xdata()) == 5
    assert np.ptp(np.array(container.lines[2][0].get_segments())[0, :, 1]) > 0


def test_adaptive_stops_make_shares_of_a_hundred_per_cent():
    left, right = figures_adaptive.adaptive_curve(with_variances(), alphas=(0.1, 0.5, 2)).axes
    assert len(curves_of(left)["stopped by α"]) == 3
    shares = right.images[0].get_array()
    np.testing.assert_allclose(shares.sum(axis=1), 100)
    assert [text.get_text() for text in right.get_yticklabels()] == ["0.1", "0.5", "2"]


def test_retrieval_draws_the_best_setting_of_a_family_with_its_interval():
    figure = figures_retrieval.retrieval_dots(retrieval_rows())
    assert len(figure.axes) == 2
    marks = curves_of(figure.axes[0])
    assert list(marks) == ["nn", "sift", "mmr .7"]
    np.testing.assert_allclose(marks["mmr .7"][:, 0], [80, 80])
    bars = bars_of(figure.axes[0], "mmr .7")
    np.testing.assert_allclose(bars[:, :, 0], [[75, 85], [75, 85]])
    assert "mmr .7 of 2" in figure.caption


def test_retrieval_without_intervals_says_so():
    rows = [{k: v for k, v in one.items() if k != "ci"} for one in retrieval_rows()]
    assert "not measured" in figures_retrieval.retrieval_dots(rows).caption


def test_copies_are_a_curve_a_method():
    rows = retrieval_rows(["as is", "duplicates 2", "duplicates 8", "duplicates 4"])
    (axes,) = figures_retrieval.copies_curve(rows).axes
    lines = {one.get_label(): one[0].get_xydata() for one in axes.containers}
    np.testing.assert_allclose(lines["nn"], [[2, 50], [4, 50], [8, 50]])


def test_the_error_of_a_mean_over_sets_is_that_of_independent_ones():
    cis = {"a": [0.47, 0.53], "b": [0.46, 0.58]}
    rows = [
        {"set": name, "condition": f"duplicates {n}", "method": "nn", "recall@10": 0.5,
         "ci": {"recall@10": ci}, "n_queries": 9}
        for name, ci in cis.items()
        for n in (2, 4)
    ]  # fmt: skip
    (axes,) = figures_retrieval.copies_curve(rows).axes
    _, _, (bars,) = axes.containers[0]
    # below: sqrt(3² + 4²) / 2 = 2.5; above: sqrt(3² + 8²) / 2 = 4.27
    for segment in bars.get_segments():
        np.testing.assert_allclose(segment[:, 1], [47.5, 50 + 73**0.5 / 2])


@pytest.mark.parametrize(("rows", "metric"), [([], "recall@10"), (retrieval_rows(), "precision")])
def test_retrieval_names_what_is_missing(rows, metric):
    with pytest.raises(InvalidInputError):
        figures_retrieval.retrieval_dots(rows, metric)


def test_saving_makes_folders_and_refuses_other_formats(tmp_path):
    figure = figures_language_modeling.learning_curves(results())
    path = save(figure, tmp_path / "new" / "a.png")
    assert path.read_bytes() == as_bytes(figure, "png")
    assert save(figure, tmp_path / "a.svg").read_text().startswith("<?xml")
    with pytest.raises(InvalidInputError, match=r"png or \.svg"):
        save(figure, tmp_path / "a.gif")


def test_the_callers_settings_neither_change_nor_matter():
    plain = as_bytes(figures_language_modeling.learning_curves(results()), "svg")
    with mpl.rc_context({"font.size": 30, "axes.grid": False, "lines.linewidth": 9}):
        before = dict(mpl.rcParams)
        other = as_bytes(figures_language_modeling.learning_curves(results()), "svg")
        assert dict(mpl.rcParams) == before
    assert other == plain


def test_drawing_loads_no_pyplot():
    probe = (
        "import sys; from sift_core.evaluation.report import write; "
        "sys.exit('matplotlib.pyplot' in sys.modules or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", probe]).returncode == 0


def test_names_with_dollar_signs_are_no_formulas():
    odd = results_of_percents([prompt("a", "$x_{"), prompt("b", "c" * 60)], {SIFT: [80, 90]})
    (axes,) = figures_language_modeling.domain_dots(odd).axes
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == ["all domains", "$x_{", "c" * 27 + "…"]
    as_bytes(axes.figure, "png")


def test_styles_differ_by_mark_and_by_line_and_stay_with_the_name():
    names = ["SIFT", "NN", "NN-F", "US", "HullFT", "other prompt", "context"]
    styles = styles_for(names)
    for what in ("marker", "line", "color"):
        assert len({getattr(style, what) for style in styles}) == len(names)
    assert styles_for(["NN", "SIFT"]) == [styles[1], styles[0]]
    first, second = styles_for(["SIFT", "SIFT"])
    assert (first.color, first.marker) == (second.color, "o")
    assert second.marker != "o"
    assert len(set(styles_for(["new", "newer"]))) == 2


def test_a_legend_has_as_many_columns_as_fit():
    assert columns_that_fit(["NN", "US"]) == 2
    assert columns_that_fit(["a name of forty letters, which takes room"] * 4) < 4
    assert columns_that_fit(["x" * 200]) == 1


def test_main_arms_are_those_at_the_settings_with_most_selectors():
    arms = main_arms(many_settings())
    assert list(arms) == ["SIFT", "NN", "NN-F", "other prompt"]
    assert arms["SIFT"] == SIFT.as_record()
    assert list(mode_arms(many_settings())) == ["context", "fine_tune", "both"]
    assert mode_arms(results()) == {"fine_tune": SIFT.as_record()}


def test_varied_arms_differ_in_nothing_else():
    groups = varied(many_settings(), "noise_variance")
    assert list(groups) == ["SIFT"]
    assert [arm["noise_variance"] for arm in groups["SIFT"]] == [0.01, 0.1, 1.0]
    assert varied(results(), "learning_rate") == {}


def test_main_arms_need_fine_tuning():
    with pytest.raises(InvalidInputError, match="no fine-tuned arm"):
        main_arms(results_of_percents(PROMPTS, {reading("NN"): PERCENTS[NN]}))
