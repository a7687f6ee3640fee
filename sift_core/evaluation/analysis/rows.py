"""The rows of a results file as `Results`: indexed by arm and prompt, one experiment at a time.

A results file has one JSON object a line: "experiment" rows hold the configuration, "result"
rows one measured (prompt, arm).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.result_row import (
    ArmKey,
    ArmLike,
    ArmRecord,
    Floats,
    Ints,
    Prompt,
    ResultRow,
    arm_key,
    arm_label,
    arm_record,
    read_row,
    selector_label,
)

__all__ = [
    "NEAR_DUPLICATE",
    "ArmLike",
    "ArmRecord",
    "Curve",
    "Prompt",
    "ResultRow",
    "Results",
    "arm_label",
    "arm_record",
    "selector_label",
]

# Guess: the share of 8-grams above which a reader would call a text a copy.
NEAR_DUPLICATE = 0.3


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """Bits per byte of one arm over the steps, one line a prompt.

    Args:
        steps: Shape (m,), increasing.
        prompt_ids: The n prompts, in order of the rows below.
        percent: In % of the base model, shape (n, m).
        bits_per_byte: Shape (n, m).
    """

    steps: Ints
    prompt_ids: tuple[str, ...]
    percent: Floats
    bits_per_byte: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Results:
    """The rows of one experiment.

    Make it with `from_rows`. The filters return a smaller `Results`; arms keep their order.

    Args:
        experiment: The digest of the configuration.
        configuration: What the "experiment" row says; empty where there was none.
        prompts: By prompt id, in order of first appearance.
        table: Rows by arm key and prompt id; use `rows_of`.
        records: The arm mapping of every key of `table`.
    """

    experiment: str
    configuration: Mapping[str, Any]
    prompts: Mapping[str, Prompt]
    table: Mapping[ArmKey, Mapping[str, ResultRow]]
    records: Mapping[ArmKey, ArmRecord]

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]], experiment: str | None = None) -> Results:
        """Return the results of one experiment; of equal (prompt, arm) the last row counts.

        Args:
            rows: The objects of a results file, "experiment" and "result" rows in any order.
            experiment: The digest; it may be left out where the rows have one experiment.

        Raises:
            InvalidInputError: If there is no result row, the experiment is not among them or
                is not named where there are several, or a row cannot be read.
        """
        rows = list(rows)
        results = [row for row in rows if row.get("kind") == "result"]
        experiment = _choose_experiment([str(row.get("experiment")) for row in results], experiment)
        configuration: Mapping[str, Any] = {}
        for row in rows:
            if row.get("kind") == "experiment" and row.get("experiment") == experiment:
                configuration = row
        prompts: dict[str, Prompt] = {}
        table: dict[ArmKey, dict[str, ResultRow]] = {}
        records: dict[ArmKey, ArmRecord] = {}
        for number, row in enumerate(results):
            if str(row.get("experiment")) != experiment:
                continue
            prompt, result = read_row(row, number)
            known = prompts.setdefault(prompt.prompt_id, prompt)
            if known.near_duplicate is None:  # shares may be named in a later run alone
                prompts[prompt.prompt_id] = replace(known, near_duplicate=prompt.near_duplicate)
            key = arm_key(result.arm)
            records.setdefault(key, result.arm)
            table.setdefault(key, {})[prompt.prompt_id] = result
        return cls(
            experiment=experiment,
            configuration=configuration,
            prompts=prompts,
            table=table,
            records=records,
        )

    @property
    def arms(self) -> tuple[ArmRecord, ...]:
        """The arms that have at least one row, in order of first appearance."""
        return tuple(self.records.values())

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains of the prompts, in order of first appearance."""
        return tuple(dict.fromkeys(prompt.domain for prompt in self.prompts.values()))

    @property
    def has_near_duplicates(self) -> bool:
        """Whether the near-duplicate share was measured for at least one prompt."""
        return any(prompt.near_duplicate is not None for prompt in self.prompts.values())

    def arms_where(self, **settings: Any) -> tuple[ArmRecord, ...]:
        """Return the arms with these settings, for instance `mode="fine_tune"`; maybe none."""
        return tuple(
            arm
            for arm in self.arms
            if all(arm.get(name) == value for name, value in settings.items())
        )

    def rows_of(self, arm: ArmLike) -> dict[str, ResultRow]:
        """Return the arm's rows by prompt id, in the order of `prompts`.

        Raises:
            InvalidInputError: If nobody measured the arm.
        """
        rows = self.table.get(arm_key(arm_record(arm)))
        if not rows:
            there = ", ".join(dict.fromkeys(arm_label(other) for other in self.arms)) or "nothing"
            raise InvalidInputError(
                f"no row of the arm {dict(arm_record(arm))}; measured were: {there}. "
                "`sift eval` measures the arms that are missing in its results file"
            )
        return {prompt_id: rows[prompt_id] for prompt_id in self.prompts if prompt_id in rows}

    def base(self) -> dict[str, ResultRow]:
        """Return the rows of the model as it is, by prompt id.

        Raises:
            InvalidInputError: If there is none.
        """
        bases = self.arms_where(mode="base")
        if not bases:
            modes = sorted({str(arm.get("mode")) for arm in self.arms})
            raise InvalidInputError(
                f"no base row, only of the modes {modes}; per cents of the base model need "
                "mode 'base', which every part of `sift eval` measures first"
            )
        return {key: row for arm in bases for key, row in self.rows_of(arm).items()}

    def percent_of_base(self, arm: ArmLike) -> dict[str, float]:
        """Return 100 × last bits per byte / the base model's, by prompt id.

        Prompts without a base row are left out.

        Raises:
            InvalidInputError: If nobody measured the arm, or there is no base row for any of
                its prompts, or a base model has 0 bits per byte.
        """
        rows = self._paired_with_base(arm)
        return {key: 100 * row.last_bits_per_byte / base for key, (row, base) in rows.items()}

    def curve(self, arm: ArmLike) -> Curve:
        """Return the arm's bits per byte over the steps.

        The steps are those that every longest row has. A row that ended before, since there
        were no more chunks, keeps its last value; one without a step gets the value on the
        straight line between its neighbours.

        Raises:
            InvalidInputError: As `percent_of_base`.
        """
        pairs = self._paired_with_base(arm)
        rows = [row for row, _ in pairs.values()]
        last = max(int(row.steps[-1]) for row in rows)
        common = set.intersection(*(set(r.steps.tolist()) for r in rows if r.steps[-1] == last))
        steps = np.array(sorted(common), dtype=np.int64)
        bits = np.stack([np.interp(steps, row.steps, row.bits_per_byte) for row in rows])
        bases = np.array([base for _, base in pairs.values()])
        return Curve(
            steps=steps,
            prompt_ids=tuple(pairs),
            percent=100 * bits / bases[:, None],
            bits_per_byte=bits,
        )

    def of_domains(self, domains: Sequence[str]) -> Results:
        """Return the results of the prompts of these domains.

        Raises:
            InvalidInputError: If a domain has no prompt.
        """
        missing = sorted(set(domains) - set(self.domains))
        if missing:
            raise InvalidInputError(
                f"no prompt of the domains {missing}; there are {sorted(self.domains)}"
            )
        return self.filtered(lambda prompt: prompt.domain in domains)

    def with_near_duplicates(self, at_least: float = NEAR_DUPLICATE) -> Results:
        """Return the results of prompts whose near-duplicate share is `at_least` or more.

        Raises:
            InvalidInputError: If there is none.
        """
        return self._by_share(lambda share: share >= at_least, f"of {at_least} or more")

    def without_near_duplicates(self, below: float = NEAR_DUPLICATE) -> Results:
        """Return the results of prompts whose near-duplicate share is measured and is `below`.

        Raises:
            InvalidInputError: If there is none.
        """
        return self._by_share(lambda share: share < below, f"below {below}")

    def filtered(self, keep: Callable[[Prompt], bool]) -> Results:
        """Return the results of the prompts that `keep` says True of; maybe of none."""
        prompts = {key: prompt for key, prompt in self.prompts.items() if keep(prompt)}
        table = {
            key: {prompt_id: row for prompt_id, row in rows.items() if prompt_id in prompts}
            for key, rows in self.table.items()
        }
        table = {key: rows for key, rows in table.items() if rows}
        records = {key: record for key, record in self.records.items() if key in table}
        return replace(self, prompts=prompts, table=table, records=records)

    def _by_share(self, keep: Callable[[float], bool], what: str) -> Results:
        kept = self.filtered(lambda p: p.near_duplicate is not None and keep(p.near_duplicate))
        if not kept.prompts:
            n = sum(prompt.near_duplicate is not None for prompt in self.prompts.values())
            raise InvalidInputError(
                f"no prompt has a near-duplicate share {what}; "
                f"it was measured for {n} of {len(self.prompts)} prompts"
            )
        return kept

    def _paired_with_base(self, arm: ArmLike) -> dict[str, tuple[ResultRow, float]]:
        base = self.base()
        rows = self.rows_of(arm)
        pairs = {
            key: (row, base[key].last_bits_per_byte) for key, row in rows.items() if key in base
        }
        if not pairs:
            raise InvalidInputError(
                f"none of the {len(rows)} prompts of {arm_label(arm)} has a base row; "
                "run `sift eval` on the same file once more, it adds what is missing"
            )
        silent = [key for key, (_, bits) in pairs.items() if not bits > 0]
        if silent:
            raise InvalidInputError(f"0 bits per byte of the base model for the prompts {silent}")
        return pairs


def _choose_experiment(present: Sequence[str], experiment: str | None) -> str:
    names = list(dict.fromkeys(present))
    if not names:
        raise InvalidInputError("no row of kind 'result'; `sift eval` writes them")
    if experiment is None:
        if len(names) > 1:
            counts = ", ".join(f"{name} ({present.count(name)} rows)" for name in names)
            raise InvalidInputError(f"rows of {len(names)} experiments; name one of: {counts}")
        return names[0]
    if experiment not in names:
        raise InvalidInputError(f"no row of experiment {experiment!r}; there are {names}")
    return experiment
