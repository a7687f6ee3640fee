"""The tables that `pytest -v` ends with: what the tests of sources and faults found."""

from dataclasses import dataclass

MARKS = {"passed": ".", "failed": "F", "skipped": "s"}


@dataclass(frozen=True, kw_only=True)
class FaultAnswer:
    """What one call of a client met with under a fault; None for what did not come."""

    outcome: str
    seconds: float | None = None
    words: str | None = None


def contract_table(marks):
    """Return the lines of a table: a source a row, a numbered test a column."""
    tests = list(dict.fromkeys(test for row in marks.values() for test in row))
    width = max(map(len, marks))
    yield " " * width + "".join(f"{number:4}" for number in range(1, len(tests) + 1))
    for source, row in marks.items():
        yield f"{source:{width}}" + "".join(f"{row.get(test, ' '):>4}" for test in tests)
    yield "`.` holds, `F` fails, `E` error around the test, `s` skipped, blank: not run"
    for number, test in enumerate(tests, start=1):
        yield f"{number:4}  {test.removeprefix('test_').replace('_', ' ')}"


def fault_table(answers):
    """Return the lines of a table: a fault and client a row, seconds of each call, words."""
    calls = list(dict.fromkeys(call for row in answers.values() for call in row))
    width = max(len(fault) for fault, _ in answers)
    yield f"{'':{width}}       " + "".join(f"{call:>12}" for call in calls) + "  error"
    for (fault, client), row in answers.items():
        cells = [told(row[call]) if call in row else "" for call in calls]
        words = next((answer.words for answer in row.values() if answer.words), "")
        yield f"{fault:{width}}  {client:5}" + "".join(f"{c:>12}" for c in cells) + f"  {words}"
    yield (
        "seconds until the error (async: of `afetch` and `afetch_batch`); F: the test failed, "
        "`-`: no right error came; blank: not asked"
    )


def told(answer):
    """Return a cell of the fault table."""
    seconds = "-" if answer.seconds is None else f"{answer.seconds:.2f}"
    return seconds if answer.outcome == "passed" else f"{MARKS[answer.outcome]} {seconds}"
