"""The demo and the examples, run once for the tests of both; tables of what the tests found."""

from __future__ import annotations

import pytest

from tests.example_runs import ExampleRuns
from tests.sources.outcome_tables import MARKS, FaultAnswer, contract_table, fault_table

VERBS = ("zip", "unzip", "walk", "list", "copy", "move", "count", "pack", "hash", "drop")
MODULE = '"""Work with folders."""\n\n' + "\n".join(
    f"def {verb}_folder(folder, limit={n}):\n"
    f'    """{verb.title()} the files of a folder.\n\n    The folder is walked once, from top to '
    f"bottom, at most *limit* files are touched.\n    Return a list with one name a file; an empty "
    f"folder gives an empty list. Raise ValueError\n    where *limit* is negative, and OSError "
    f'where there is no such folder.\n    """\n'
    for n, verb in enumerate(VERBS)
)


@pytest.fixture(scope="session")
def example_runs(tmp_path_factory):
    """The demo over ten documented functions and then every example, started in the background."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "docs").mkdir()
    (folder / "docs/folders.py").write_text(MODULE, encoding="utf-8")
    (folder / "docs/broken.py").write_text("def f(:\n", encoding="utf-8")
    runs = ExampleRuns(folder)
    yield runs
    runs.stop()


# Here and not in tests/sources: of several processes the first one reads no other conftest.
contract_marks: dict[str, dict[str, str]] = {}  # source -> test -> worst mark of its cases
fault_answers: dict[tuple[str, str], dict[str, FaultAnswer]] = {}  # fault, client -> call


def pytest_itemcollected(item):
    callspec = getattr(item, "callspec", None)
    if item.path.name == "test_contract.py" and callspec and "store" in callspec.params:
        item.user_properties.append(("contract", (callspec.params["store"], item.originalname)))


def pytest_runtest_logreport(report):
    if report.when != "call" and report.passed:
        return
    properties = dict(report.user_properties)
    if "contract" in properties:
        source, test = properties["contract"]
        mark = MARKS[report.outcome] if report.when == "call" or report.skipped else "E"
        marks = contract_marks.setdefault(source, {})
        marks[test] = max(marks.get(test, "."), mark, key=".sFE".index)
    if "fault" in properties:
        fault, client, call = properties["fault"]
        seconds, words = properties.get("fault answer", (None, None))
        answer = FaultAnswer(outcome=report.outcome, seconds=seconds, words=words)
        fault_answers.setdefault((fault, client), {})[call] = answer


def pytest_terminal_summary(terminalreporter, config):
    if config.get_verbosity() <= 0:
        return
    if contract_marks:
        terminalreporter.section("contract: sources × cases")
        terminalreporter.write("\n".join(contract_table(contract_marks)) + "\n")
    if fault_answers:
        terminalreporter.section("faults × clients: the error, and seconds until it came")
        terminalreporter.write("\n".join(fault_table(fault_answers)) + "\n")
