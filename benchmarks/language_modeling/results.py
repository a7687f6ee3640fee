"""The rows of a results file as data frames: prompts, arms, rows, and per cents of the base model.

A results file has one JSON object a line: "experiment" rows hold the configuration, "result"
rows one measured (prompt, arm). An arm is the mapping of settings under "arm"; two rows belong
to one column of a table where these mappings are equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from sift_core.errors import InvalidInputError

SELECTORS = ("SIFT", "NN", "NN-F", "US", "HullFT", "other prompt")
OF_THE_SELECTOR = ("selector", "noise_variance")


@dataclass(frozen=True, kw_only=True, eq=False)
class Results:
    """The rows of one experiment. Arms and prompts are in order of first appearance.

    Args:
        experiment: The digest of the configuration.
        prompts: By prompt id: domain, n_bytes, near_duplicate (share of its 8-grams that the
            data space has; NaN where nobody measured it).
        arms: By number: the settings, and `label`.
        rows: One a (prompt, arm number): steps and bits_per_byte as arrays, `last` (bits per byte
            after the last step).
    """

    experiment: str
    prompts: pd.DataFrame
    arms: pd.DataFrame
    rows: pd.DataFrame

    @cached_property
    def last(self) -> pd.DataFrame:
        """Bits per byte after the last step, prompts × arms; NaN where not measured."""
        return self.rows["last"].unstack("arm").reindex(self.prompts.index)[self.arms.index]

    @cached_property
    def base(self) -> pd.Series:
        """Bits per byte of the model as it is, by prompt."""
        bases = self.arms.index[self.arms["mode"] == "base"]
        if bases.empty:
            raise InvalidInputError("no row of the base model, of which everything is a share")
        return self.last[bases].bfill(axis=1).iloc[:, 0]

    @cached_property
    def percent(self) -> pd.DataFrame:
        """100 × last bits per byte over the base model's, prompts × arms; NaN where missing."""
        return (100 * self.last).div(self.base, axis=0)

    def of_prompts(self, keep: pd.Series) -> Results:
        """Return the results of the prompts of which `keep` says True."""
        prompts = self.prompts[keep]
        if prompts.empty:
            raise InvalidInputError("no prompt of that kind was measured")
        rows = self.rows[self.rows.index.get_level_values("prompt").isin(prompts.index)]
        measured = rows.index.get_level_values("arm").unique()
        return replace(
            self, prompts=prompts, rows=rows, arms=self.arms[self.arms.index.isin(measured)]
        )

    def where(self, **settings: Any) -> pd.DataFrame:
        """Return the arms with these settings; maybe none."""
        keep = np.ones(len(self.arms), dtype=bool)
        for name, value in settings.items():
            keep &= np.array([one == value for one in self.arms[name]], dtype=bool)
        return self.arms[keep]

    def rows_of(self, arm: int) -> pd.DataFrame:
        """Return the rows of an arm by prompt, those that the base model has too."""
        rows = self.rows.xs(arm, level="arm")
        order = self.prompts.index[self.prompts.index.isin(rows.index) & self.base.notna()]
        return rows.loc[order]

    def main_arms(self) -> dict[str, int]:
        """Return by selector its fine-tuned arm at the main settings; SIFT first.

        The main settings are those under which the most selectors were fine-tuned. Where a
        selector was measured with several λ, the one that was measured first counts.
        """
        tuned = self.where(mode="fine_tune")
        if tuned.empty:
            raise InvalidInputError("no fine-tuned arm among the rows")
        shared = settings_without(tuned, OF_THE_SELECTOR)
        widest = tuned.groupby(shared, sort=False)["selector"].nunique().idxmax()
        main = tuned[shared == widest]
        chosen = {}
        for selector in sorted(main["selector"].unique(), key=_place):
            chosen[selector] = int(main.index[main["selector"] == selector][0])
        return chosen

    def curve(self, arm: int) -> pd.DataFrame:
        """Return bits per byte in % of the base model, prompts × steps.

        The steps are those that every longest row has. A row that ended before, since there
        were no more chunks, keeps its last value; between two measured steps bits per byte lie
        on the straight line.
        """
        rows = self.rows_of(arm)
        last = max(steps[-1] for steps in rows["steps"])
        common = set.intersection(*(set(steps) for steps in rows["steps"] if steps[-1] == last))
        steps = sorted(int(step) for step in common)
        curves = zip(rows["steps"], rows["bits_per_byte"], strict=True)
        bits = [np.interp(steps, *pair) for pair in curves]
        frame = pd.DataFrame(np.array(bits), index=rows.index, columns=steps)
        return (100 * frame).div(self.base[rows.index], axis=0)


def settings_without(arms: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    """Return one text an arm, equal for arms that differ in nothing but `names`."""
    rest = arms.drop(columns=["label", *names], errors="ignore").to_dict("records")
    return pd.Series([json.dumps(one, sort_keys=True) for one in rest], arms.index, dtype=object)


def results_of(
    rows: Iterable[Mapping[str, Any]],
    experiment: str | None = None,
    arms: Sequence[Mapping[str, Any]] | None = None,
) -> Results:
    """Return the results of one experiment; of equal (prompt, arm) the last row counts.

    Raises:
        InvalidInputError: If there is no row, or of several experiments none is named.
    """
    rows = list(rows)
    found = [row for row in rows if row["kind"] == "result"]
    if arms is not None:
        found = [row for row in found if row["arm"]["mode"] == "base" or row["arm"] in arms]
    names = list(dict.fromkeys(row["experiment"] for row in found))
    experiment = experiment or (names[0] if len(names) == 1 else None)
    if experiment not in names:
        raise InvalidInputError(f"name one experiment of those measured: {names}, got {experiment}")
    found = [row for row in found if row["experiment"] == experiment]
    keys = [json.dumps(row["arm"], sort_keys=True) for row in found]
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    settings = pd.DataFrame([json.loads(key) for key in number], dtype=object)
    if "context_tokens" not in settings:  # rows from before it could be said read what fits
        settings["context_tokens"] = None
    settings = settings.astype(object).where(settings.notna(), None)
    settings["label"] = [label(arm) for arm in settings.to_dict("records")]
    frame = pd.DataFrame(
        {
            "prompt": [row["prompt"]["id"] for row in found],
            "arm": [number[key] for key in keys],
            "steps": [np.array(row["steps"]) for row in found],
            "bits_per_byte": [np.array(row["bits_per_byte"]) for row in found],
            "last": [row["bits_per_byte"][-1] for row in found],
        }
    ).drop_duplicates(["prompt", "arm"], keep="last")
    prompts = pd.DataFrame([row["prompt"] for row in found])
    # A share may have been named in a later run alone, so the first that is known counts.
    prompts = prompts.groupby("id", sort=False)[["domain", "n_bytes", "near_duplicate"]].first()
    prompts["near_duplicate"] = prompts["near_duplicate"].astype(float)
    return Results(
        experiment=experiment,
        prompts=prompts,
        arms=settings,
        rows=frame.set_index(["prompt", "arm"]),
    )


def label(arm: Mapping[str, Any]) -> str:
    """Return the arm in a few letters: "base", "NN", "SIFT(0.1)"; "context SIFT(0.1)" and so on."""
    if arm["mode"] == "base":
        return "base"
    return ("" if arm["mode"] == "fine_tune" else f"{arm['mode']} ") + selector_label(arm)


def selector_label(arm: Mapping[str, Any]) -> str:
    """Return the arm's selector, with λ where it is SIFT: "NN", "SIFT(0.1)"."""
    selector = str(arm["selector"])
    return f"SIFT({arm['noise_variance']:g})" if selector == "SIFT" else selector


def _place(selector: str) -> int:
    return SELECTORS.index(selector) if selector in SELECTORS else len(SELECTORS)
