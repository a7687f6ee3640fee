"""Templates of software: release notes, error codes and copies of one function."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from benchmarks.word_sets.building import N_CHUNKS, KeyedQuestion, Record
from benchmarks.word_sets.vocabulary import format_date, numbers, pick, pick_several, random_date

COMPONENTS = (
    "backup job", "bar chart", "calendar view", "CSV importer", "dashboard", "date picker",
    "export dialog", "file upload", "full-text search", "invoice printer", "keyboard shortcuts",
    "login page", "mail gateway", "map widget", "mobile client", "notification service",
    "password reset", "PDF preview", "permission editor", "report generator", "scheduler",
    "session store", "settings page", "spell checker", "sync engine", "tag filter",
    "template editor", "undo history", "user import", "webhook sender",
)  # fmt: skip
FAULTS = (
    "crashed on empty files", "dropped the last line", "forgot the chosen language",
    "froze while it was offline", "ignored the time zone", "leaked memory after an hour",
    "lost umlauts in names", "opened twice on a double click", "printed a blank second page",
    "rejected addresses with a plus sign", "rounded amounts down", "showed deleted entries",
    "sorted numbers as text", "sent every message twice", "stopped at 10,000 rows",
    "timed out behind a proxy",
)  # fmt: skip
SUBSYSTEMS = (
    ("queue", "message queue"), ("cache", "cache"), ("store", "object store"),
    ("auth", "login server"),
    ("mail", "mail relay"), ("index", "search index"), ("ledger", "ledger database"),
    ("render", "renderer"), ("billing", "billing service"), ("gateway", "payment gateway"),
)  # fmt: skip
FAILURES = (
    ("refused the connection", "Check that its port is open", "port"),
    ("did not answer in time", "Raise the limit", "timeout_s"),
    ("ran out of space", "Delete old entries or raise the quota", "quota_mb"),
    ("rejected the certificate", "Renew the certificate in the folder", "certificate_folder"),
    ("received a request that is too large", "Send smaller batches, as set by", "batch_rows"),
    ("lost its leader", "Wait for the next election, or shorten", "election_s"),
    ("found a checksum that differs", "Restore the newest snapshot under", "snapshot_folder"),
)  # fmt: skip
OBJECTS = (
    "orders invoices customers parcels tickets payments contracts vouchers reviews sensors trucks "
    "shifts lessons recipes tenants meters flights bookings claims samples grants members"
).split()
PLACES = (
    "archive branch central depot export harbour legacy mobile partner regional retail warehouse"
).split()


def versions(rng: np.random.Generator) -> list[str]:
    """Return distinct versions of three numbers, from old to new."""
    every = list(product(range(1, 9), range(15), range(12)))
    return [".".join(map(str, one)) for one in sorted(pick_several(rng, every, N_CHUNKS))]


def make_line_records(rng: np.random.Generator) -> Iterator[Record]:
    """Yield release notes of one line."""
    every = pick_several(rng, list(product(COMPONENTS, FAULTS)), N_CHUNKS)
    issues = numbers(rng, N_CHUNKS, 1000, 9999)
    for version, (component, fault), issue in zip(versions(rng), every, issues, strict=True):
        yield Record(
            title="",
            text=f"Version {version} fixes a bug: the {component} {fault} (#{issue}).",
            questions=[
                KeyedQuestion(text=f"What changed in {version}?", answer=fault, keys=(version,)),
                KeyedQuestion(
                    text=f"Which part of the program was repaired in release {version}?",
                    answer=component,
                    keys=(version,),
                ),
                KeyedQuestion(
                    text=f"In which release was ticket {issue} closed?",
                    answer=version,
                    keys=(f"#{issue}",),
                ),
            ],
        )


def make_note_records(rng: np.random.Generator) -> Iterator[Record]:
    """Yield release notes of two fixes each."""
    issues = numbers(rng, 2 * N_CHUNKS, 1000, 9999)
    for i, version in enumerate(versions(rng)):
        (one, two), (first, second) = pick_several(rng, COMPONENTS, 2), pick_several(rng, FAULTS, 2)
        day, old, new = format_date(random_date(rng, 2019, 2025)), *issues[2 * i : 2 * i + 2]
        yield Record(
            title=f"Release {version}",
            text=(
                f"Release {version} of {day} brings two fixes. The {one} {first}; this was "
                f"reported as #{old}. The {two} {second}; this was reported as #{new}. "
                "Please update soon."
            ),
            questions=[
                KeyedQuestion(
                    text=f"Which bugs does {version} repair?", answer=first, keys=(version,)
                ),
                KeyedQuestion(text=f"When did {version} come out?", answer=day, keys=(version,)),
                KeyedQuestion(
                    text=f"Which update do I need to get rid of bug {old}?",
                    answer=version,
                    keys=(f"#{old}",),
                ),
                KeyedQuestion(
                    text=f"What was issue {new} about?", answer=second, keys=(f"#{new}",)
                ),
                KeyedQuestion(
                    text=f"Since when is it mended that the {two} {second}?",
                    answer=version,
                    keys=(f"{two} {second}",),
                ),
            ],
        )


def make_error_records(rng: np.random.Generator) -> Iterator[Record]:
    """Yield a reference of error codes. About three codes share each cause."""
    codes = numbers(rng, N_CHUNKS, 1000, 9999)
    for code in codes:
        (short, long), (failure, cure, option) = pick(rng, SUBSYSTEMS), pick(rng, FAILURES)
        tries, level = int(rng.integers(2, 9)), pick(rng, ("warning", "error", "fatal"))
        written = f"E{code}"
        yield Record(
            title=f"E{code}",
            text=(
                f"E{code} ({level}): the {long} {failure}, after {tries} attempts. {cure} "
                f"`{short}.{option}` in the configuration, then restart the {short} worker."
            ),
            questions=[
                KeyedQuestion(text=f"What does {written} mean?", answer=failure, keys=(written,)),
                KeyedQuestion(
                    text=f"I get error {written} in my log. Which setting should I change?",
                    answer=f"{short}.{option}",
                    keys=(written,),
                ),
                KeyedQuestion(
                    text=f"How often is it tried before {written} appears?",
                    answer=str(tries),
                    keys=(written,),
                ),
                KeyedQuestion(
                    text=f"How do I make {written} go away?",
                    answer=f"{cure} `{short}.{option}`",
                    keys=(written,),
                ),
            ],
        )


def make_fork_records(rng: np.random.Generator) -> Iterator[Record]:
    """Yield copies of one function that differ in name and numbers."""
    names = pick_several(rng, list(product(PLACES, OBJECTS)), N_CHUNKS)
    for place, noun in names:
        name, tries = f"fetch_{place}_{noun}", int(rng.integers(2, 12))
        timeout, wait = int(rng.integers(5, 120)), f"{rng.uniform(0.1, 3):.2f}"
        error = pick(rng, ("ConnectionError", "OSError", "TimeoutError", "ValueError"))
        yield Record(
            title=f"{place}/{noun}.py",
            text=(
                f"def {name}(client, since):\n"
                f'    """Return the {noun} that changed since a date."""\n'
                f"    for attempt in range({tries}):\n"
                f"        try:\n"
                f'            path = "/{place}/{noun}"\n'
                f"            return client.get(path, since=since, timeout={timeout})\n"
                f"        except {error}:\n"
                f"            time.sleep({wait} * 2**attempt)\n"
                f'    raise RuntimeError("no {noun} from {place}")'
            ),
            questions=[
                KeyedQuestion(
                    text=f"How often does {name} retry?", answer=str(tries), keys=(name,)
                ),
                KeyedQuestion(
                    text=f"What is the timeout of {name}?", answer=str(timeout), keys=(name,)
                ),
                KeyedQuestion(
                    text=f"Which exception makes the download of {place} {noun} try again?",
                    answer=error,
                    keys=(f"{place}_{noun}",),
                ),
                KeyedQuestion(
                    text=f"How long do we wait before asking for the {noun} of {place} again?",
                    answer=wait,
                    keys=(f"{place}_{noun}",),
                ),
            ],
        )
