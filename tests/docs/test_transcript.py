"""The transcript is of the commands that its script runs, and shows nothing of one machine."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "transcript.md"


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs/scripts")
        return import_module("record_transcript")


@pytest.fixture(scope="module")
def page():
    return PAGE.read_text(encoding="utf-8")


def steps_of(script):
    return [step for section in script.SECTIONS for step in section.steps]


def test_the_page_has_the_commands_of_the_script(script, page):
    shown = re.findall(r"^\$ (.*)$", page, re.MULTILINE)
    shown = [command for command in shown if not command.startswith("cd ")]
    assert shown == [step.command for step in steps_of(script)]


def test_the_page_has_the_words_and_exit_codes_of_the_script(script, page):
    for section in script.SECTIONS:
        assert f"## {section.title}\n\n{section.text}" in page
    codes = [int(code) for code in re.findall(r"^Exit code (\d+), ", page, re.MULTILINE)]
    assert codes == [step.exit_code for step in steps_of(script)]


def test_the_page_shows_no_path_and_no_colour_code_of_a_machine(page):
    assert "\x1b" not in page
    assert not re.search(r"/(tmp|home|root|work)/", page)


def test_the_commands_that_must_be_seen_are_in_it(script):
    commands = {step.command.split()[1] for step in steps_of(script) if "sift" in step.command}
    assert {"doctor", "index", "search", "ask", "diagnose"} <= commands


def test_a_path_of_this_machine_is_replaced(script, tmp_path):
    output = f"\n{tmp_path}/docs and {script.ROOT}/a  \n\n"
    assert script.cleaned(output, tmp_path) == ["~/docs and REPOSITORY/a"]


def test_only_the_middle_of_a_long_output_is_left_out(script):
    step = script.Step(command="x", head=2, tail=1)
    lines = [str(i) for i in range(8)]
    assert script.shortened(lines, step) == ["0", "1", "[… 5 more lines]", "7"]
    assert script.shortened(lines[:4], step) == lines[:4]


def test_a_command_that_ends_otherwise_than_it_should_is_not_recorded(script, tmp_path):
    step = script.Step(command="exit 3", folder=".")
    with pytest.raises(SystemExit, match="exit code 3"):
        script.run(step, tmp_path, {"PATH": "/usr/bin:/bin"})


def test_missing_data_is_said(script, tmp_path):
    with pytest.raises(SystemExit, match=r"pages\.jsonl\.gz"):
        script.write_pages(tmp_path, tmp_path)


def test_every_page_that_the_script_names_is_in_the_data(script, tmp_path):
    if not script.DATA.is_dir():
        pytest.skip("no shared data here")
    n_pages = script.write_pages(script.DATA, tmp_path)
    assert {f"{name}.md" for name in script.TUTORIAL} <= {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.md")
    }
    assert n_pages >= 50
