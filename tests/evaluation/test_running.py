import io
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from sift_core.errors import (
    ExperimentError,
    InvalidInputError,
    MissingDependencyError,
    NumericalError,
)
from sift_core.evaluation.running.process_tasks import environment, n_threads
from sift_core.evaluation.running.results_file import ResultsFile
from sift_core.evaluation.running.run import run_tasks
from tests.evaluation.workers import Choice, Chooser, key_of, make_broken, make_logged, make_odd

pytest.importorskip("tqdm")

PATIENCE_S = 240.0  # only a failure waits so long: others may keep the cores busy
SERIAL_AND_PROCESSES = pytest.mark.parametrize("workers", [1, 2], ids=["serial", "processes"])


def choices(n, **settings):
    return [Choice(name=f"prompt {i}", **settings) for i in range(n)]


def keys_of(tasks):
    return {key_of(task, n) for task in tasks for n in range(1, task.n_rows + 1)}


def by_key(file):
    return sorted(file.rows(), key=lambda row: row["key"])


@pytest.fixture
def file(tmp_path):
    return ResultsFile(tmp_path / "rows.jsonl")


def children():
    """Return the processes of workers that are alive."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            command = (folder / "cmdline").read_text()
        except OSError:
            continue
        if "spawn_main" in command and parent == str(os.getpid()):
            found.add(int(folder.name))
    return found


@pytest.fixture(autouse=True)
def no_process_is_left():
    yield
    assert not children()


@SERIAL_AND_PROCESSES
def test_every_row_is_written_and_its_values_are_the_worker_s(file, workers):
    tasks = choices(5)
    assert run_tasks(tasks, Chooser, file=file, workers=workers) == 15
    expected = [row for task in tasks for row in Chooser()(task)]
    assert by_key(file) == sorted(expected, key=lambda row: row["key"])


def test_a_model_is_loaded_once_a_worker_and_not_more_often_than_there_are_tasks(file, tmp_path):
    make_worker = partial(make_logged, str(tmp_path / "log"))
    run_tasks(choices(6), make_worker, file=file, workers=2)
    processes = [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()]
    assert len(set(processes)) == len(processes) == 2
    assert str(os.getpid()) not in processes

    run_tasks(choices(7)[6:], make_worker, file=file, workers=2)
    assert len((tmp_path / "log").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("wanted", "expected"), [(None, "share"), ("1", "1"), ("100", "share"), ("two", "share")]
)
def test_a_process_finds_its_share_of_the_cores(file, tmp_path, monkeypatch, wanted, expected):
    if wanted is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", wanted)
    run_tasks(choices(2), partial(make_logged, str(tmp_path / "log")), file=file, workers=2)
    n_cores = len(os.sched_getaffinity(0))
    share = str(max(1, n_cores // 2)) if expected == "share" else expected
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line.split()[1] for line in lines] == [share, share]
    assert os.environ.get("OMP_NUM_THREADS") == wanted


def test_more_workers_than_cores_have_one_thread_each(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert n_threads(10_000) == 1
    assert n_threads(1) == len(os.sched_getaffinity(0))


def test_the_environment_is_as_before_after_an_error(monkeypatch):
    monkeypatch.setenv("SIFT_TEST_ONE", "1")
    set_meanwhile = environment(SIFT_TEST_ONE="2", SIFT_TEST_TWO="2")
    with pytest.raises(ZeroDivisionError), set_meanwhile:
        raise ZeroDivisionError(os.environ["SIFT_TEST_ONE"] + os.environ["SIFT_TEST_TWO"])
    assert os.environ["SIFT_TEST_ONE"] == "1"
    assert "SIFT_TEST_TWO" not in os.environ


@pytest.mark.parametrize("workers", [1, 3])
def test_no_tasks_start_nothing(file, workers):
    assert run_tasks([], make_broken, file=file, workers=workers) == 0
    assert not file.path.exists()


@SERIAL_AND_PROCESSES
def test_rows_that_are_there_already_are_not_written_again(file, workers):
    tasks = choices(3)
    run_tasks(tasks[:2], Chooser, file=file)
    before = file.path.read_bytes()
    assert run_tasks(tasks, Chooser, file=file, workers=workers) == 3
    assert run_tasks(tasks, Chooser, file=file, workers=workers) == 0
    assert file.path.read_bytes()[: len(before)] == before
    assert len(file.path.read_text().splitlines()) == 9


@SERIAL_AND_PROCESSES
@pytest.mark.parametrize(
    ("trouble", "kind", "message"),
    [
        ("ours", NumericalError, r"^σ² of the prompt is NaN$"),
        ("missing", MissingDependencyError, r"^`peft` .* 'sift-rerank\[fine-tune\]'`$"),
        (
            "theirs",
            ExperimentError,
            r"(?s)task 2 of 4 \(prompt 1\).*ZeroDivisionError: nothing to divide by",
        ),
    ],
)
def test_an_error_of_a_worker_comes_through(file, workers, trouble, kind, message):
    tasks = choices(4)
    tasks[1] = Choice(name="prompt 1", trouble=trouble)
    with pytest.raises(kind, match=message) as caught:
        run_tasks(tasks, Chooser, file=file, workers=workers)
    assert type(caught.value) is kind
    assert {key_of(tasks[1], 1), key_of(tasks[1], 2)} <= file.keys()
    if workers == 1:  # a second worker may have been ended in the middle of the first task
        assert keys_of(tasks[:1]) <= file.keys()

    healthy = choices(4)
    run_tasks(healthy, Chooser, file=file, workers=workers)
    assert file.keys() == keys_of(healthy)


def test_the_traceback_of_another_process_is_shown(file):
    with pytest.raises(NumericalError) as caught:
        run_tasks(choices(2, trouble="ours"), Chooser, file=file, workers=2)
    assert 'raise NumericalError("σ² of the prompt is NaN")' in str(caught.value.__cause__)


def test_an_error_of_ours_that_cannot_be_pickled_comes_as_text(file):
    with pytest.raises(ExperimentError, match="Unpicklable: a b"):
        run_tasks(choices(2, trouble="unpicklable"), Chooser, file=file, workers=2)


@SERIAL_AND_PROCESSES
@pytest.mark.parametrize("trouble", ["ours", "theirs"])
def test_an_error_while_the_model_is_loaded_comes_through(file, workers, trouble):
    kind, message = {
        "ours": (NumericalError, "NaN"),
        "theirs": (ExperimentError, r"(?s)its worker was made.*nothing to divide by"),
    }[trouble]
    with pytest.raises(kind, match=message):
        run_tasks(choices(2), partial(make_broken, trouble), file=file, workers=workers)


@SERIAL_AND_PROCESSES
@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ("text", "must yield dictionaries, got str"),
        ("none", "must yield dictionaries, got NoneType"),
        ("function", "`function` must be of JSON|a row must be picklable"),
    ],
)
def test_what_is_no_row_is_refused(file, workers, odd, message):
    with pytest.raises(InvalidInputError, match=message):
        run_tasks(choices(3), partial(make_odd, odd), file=file, workers=workers)


@pytest.mark.parametrize(
    ("trouble", "message"), [("killed", r"SIGKILL: .*out of memory"), ("exit", "exit code 3")]
)
def test_a_worker_that_dies_is_named_and_a_second_run_goes_on(file, trouble, message):
    tasks = choices(4)
    tasks[2] = Choice(name="prompt 2", trouble=trouble)
    with pytest.raises(ExperimentError, match=rf"{message}.*task 3 of 4 \(prompt 2\).*second run"):
        run_tasks(tasks, Chooser, file=file, workers=2)
    assert {key_of(tasks[2], 1), key_of(tasks[2], 2)} <= file.keys()

    run_tasks(choices(4), Chooser, file=file, workers=2)
    assert file.keys() == keys_of(choices(4))


def test_a_worker_that_dies_while_it_loads_is_named(file):
    with pytest.raises(ExperimentError, match=r"SIGKILL.*its worker was made.*__main__"):
        run_tasks(choices(2), partial(make_broken, "killed"), file=file, workers=2)


def test_a_death_ends_the_other_workers_and_keeps_their_rows(file):
    tasks = [*choices(1, n_rows=1000, seconds=0.02), Choice(name="dies", trouble="killed")]
    tasks[1] = Choice(name="dies", trouble="killed", seconds=0.3)
    with pytest.raises(ExperimentError, match="SIGKILL"):
        run_tasks(tasks, Chooser, file=file, workers=2)
    assert 1 <= len(file.keys() & keys_of(tasks[:1])) < 1000


@pytest.mark.parametrize("workers", [2], ids=["processes"])
@pytest.mark.parametrize(
    ("tasks", "make_worker", "what"),
    [
        (choices(2), lambda: Chooser(), "`make_worker` must be picklable"),
        ([lambda: None, lambda: None], Chooser, "a task must be picklable"),
    ],
    ids=["make_worker", "task"],
)
def test_what_cannot_be_pickled_is_named(file, tasks, make_worker, what, workers):
    for task in tasks:
        if not isinstance(task, Choice):
            task.n_rows = 1
    with pytest.raises(InvalidInputError, match=what):
        run_tasks(tasks, make_worker, file=file, workers=workers)


@pytest.mark.parametrize("workers", [0, -1, 1.5, None])
def test_workers_must_be_a_count(file, workers):
    with pytest.raises(InvalidInputError, match="`workers`"):
        run_tasks(choices(1), Chooser, file=file, workers=workers)


def test_a_file_that_another_run_writes_is_refused_before_anything_is_measured(file):
    with file, pytest.raises(ExperimentError, match="another run"):
        run_tasks(choices(1), partial(make_broken, "theirs"), file=ResultsFile(file.path))


def test_a_file_that_is_held_stays_held(file):
    with file:
        run_tasks(choices(1), Chooser, file=file)
        with pytest.raises(ExperimentError, match="another run"):
            ResultsFile(file.path).append({"key": "a"})


PROGRAM = """
import sys
from sift_core.evaluation.running.results_file import ResultsFile
from sift_core.evaluation.running.run import run_tasks
from tests.evaluation.workers import Choice, Chooser
if __name__ == "__main__":
    _, path, workers, n_tasks, n_rows, seconds = sys.argv
    tasks = [Choice(name=f"prompt {i}", n_rows=int(n_rows), seconds=float(seconds))
             for i in range(int(n_tasks))]
    run_tasks(tasks, Chooser, file=ResultsFile(path), workers=int(workers))
"""


def started(tmp_path, file, *, workers, n_tasks=4, n_rows=10, seconds=0.1, program=PROGRAM):
    script = tmp_path / "script.py"
    script.write_text(program)
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, (file.path, workers, n_tasks, n_rows, seconds))],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


def session(leader):
    """Return the living processes of a session."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.add(int(folder.name))
    return found


@SERIAL_AND_PROCESSES
@pytest.mark.parametrize("to", ["the-program", "all-of-them"])
def test_an_interrupt_keeps_what_was_measured_and_ends_the_workers(tmp_path, file, workers, to):
    program = started(tmp_path, file, workers=workers)
    wait_for(lambda: len(file.keys()) >= 6)
    # A terminal sends Ctrl-C to all processes, `kill` to one.
    (os.killpg if to == "all-of-them" else os.kill)(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == -signal.SIGINT
    assert errors.count("Traceback") == errors.count("KeyboardInterrupt") == 1
    wait_for(lambda: not session(program.pid))
    assert 6 <= len(file.keys()) < 40

    run_tasks(choices(4, n_rows=10), Chooser, file=file, workers=workers)
    assert file.keys() == keys_of(choices(4, n_rows=10))
    assert file.path.read_bytes().count(b"\n") == 40


@SERIAL_AND_PROCESSES
def test_a_run_that_is_killed_leaves_no_worker_and_goes_on_from_its_rows(tmp_path, file, workers):
    program = started(tmp_path, file, workers=workers, seconds=0.2)
    wait_for(lambda: len(file.keys()) >= 4)
    program.kill()
    program.communicate(timeout=PATIENCE_S)
    wait_for(lambda: not session(program.pid))
    kept = file.rows()
    assert 4 <= len(kept) < 40

    run_tasks(choices(4, n_rows=10), Chooser, file=file, workers=workers)
    assert file.rows()[: len(kept)] == kept
    assert file.keys() == keys_of(choices(4, n_rows=10))
    assert file.path.read_bytes().count(b"\n") == 40


def test_a_worker_that_somebody_kills_ends_the_run(tmp_path, file):
    program = started(tmp_path, file, workers=2)
    wait_for(lambda: len(file.keys()) >= 4)
    workers = []
    for pid in session(program.pid):
        if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text():
            workers.append(pid)
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    _, errors = program.communicate(timeout=PATIENCE_S)
    assert re.search(r"ExperimentError: a worker died \(SIGKILL.* task [12] of 4", errors)
    wait_for(lambda: not session(program.pid))


def test_a_script_without_a_main_part_is_told_so(tmp_path, file):
    careless = PROGRAM.replace('if __name__ == "__main__":', "if True:")
    program = started(tmp_path, file, workers=2, program=careless)
    _, errors = program.communicate(timeout=PATIENCE_S)
    assert "does the script start its work below `if __name__ == '__main__':`?" in errors


FULL = PROGRAM.replace(
    "    run_tasks(",
    """
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
    run_tasks(""",
)


@SERIAL_AND_PROCESSES
def test_a_full_disk_ends_the_run_and_keeps_the_rows_before(tmp_path, file, workers):
    pytest.importorskip("resource")
    program = started(tmp_path, file, workers=workers, seconds=0, program=FULL)
    _, errors = program.communicate(timeout=PATIENCE_S)
    assert "ExperimentError: could not write to the results file" in errors
    wait_for(lambda: not session(program.pid))
    n_kept = len(file.keys())
    assert 5 < n_kept < 40
    assert file.path.stat().st_size <= 3000
    run_tasks(choices(4, n_rows=10), Chooser, file=file, workers=workers)
    assert file.keys() == keys_of(choices(4, n_rows=10))


class Terminal(io.StringIO):
    def isatty(self):
        return True


@SERIAL_AND_PROCESSES
def test_the_bar_begins_where_the_file_ends_and_its_speed_is_that_of_this_run(
    file, monkeypatch, workers
):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # the disk's time, not ours
    run_tasks(choices(90, n_rows=10), Chooser, file=file)
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    tasks = [Choice(name=f"new {i}", n_rows=5, seconds=0.05) for i in range(4)]
    run_tasks(tasks, Chooser, file=file, workers=workers)
    counts = [int(count) for count in re.findall(r"(\d+)/920 ", shown.getvalue())]
    assert (counts[0], counts[-1]) == (900, 920)
    speeds = re.findall(r"([\d.]+) rows/s|([\d.]+)s/ rows", shown.getvalue())
    fast, slow = speeds[-1]
    assert (float(fast) if fast else 1 / float(slow)) < 20 * workers


def test_the_bar_can_be_told_where_it_begins(file, monkeypatch):
    run_tasks(choices(2, n_rows=10), Chooser, file=file)
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    run_tasks([Choice(name="new")], Chooser, file=file, n_done=4)
    assert "4/7 " in shown.getvalue()
    assert "7/7 " in shown.getvalue()


def test_no_bar_is_shown_where_none_is_wanted(file, monkeypatch):
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    run_tasks(choices(1), Chooser, file=file, progress=False)
    assert not shown.getvalue()


def test_a_bar_without_tqdm_is_refused_before_anything_is_measured(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(MissingDependencyError, match=r"`tqdm`.*\[eval\]"):
        run_tasks(choices(1), partial(make_broken, "theirs"), file=file)
    assert run_tasks(choices(1), Chooser, file=file, progress=False) == 3


def test_thousands_of_rows_go_through_two_processes(file, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # the disk's time, not ours
    tasks = choices(200, n_rows=10)
    assert run_tasks(tasks, Chooser, file=file, workers=2) == 2000
    assert file.keys() == keys_of(tasks)


def test_tasks_of_the_tests_can_be_pickled():
    assert pickle.loads(pickle.dumps(Choice(name="a"))) == Choice(name="a")
