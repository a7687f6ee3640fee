import contextlib
import os
import signal
import subprocess
import sys
import threading
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
from sift_core.evaluation.running.results_file import ResultsFile
from sift_core.evaluation.running.run import run_tasks
from tests.evaluation.workers import Choice, Chooser, key_of, make_broken, make_logged

pytest.importorskip("tqdm")
ray = pytest.importorskip("ray", reason="needs Ray")

pytestmark = pytest.mark.slow


def choices(n, **settings):
    return [Choice(name=f"prompt {i}", **settings) for i in range(n)]


def ray_processes():
    """Return process id → command of what belongs to a Ray."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_text()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z" and any(name in command for name in ("raylet", "gcs_server", "ray::")):
            found[int(folder.name)] = command.replace("\0", " ")[:80]
    return found


@pytest.fixture
def file(tmp_path):
    return ResultsFile(tmp_path / "rows.jsonl")


@pytest.fixture(scope="module")
def local_ray():
    """Ray's start takes seconds: most tests share one, which `run_tasks` leaves as it is."""
    ray.init("local", num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def ray_processes_after(seconds):
    """Those that are left once a Ray that was just shut down has had time to go."""
    deadline = time.monotonic() + seconds
    while (left := ray_processes()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def test_a_local_ray_gives_what_one_process_gives_and_is_ended(file, tmp_path, capfd):
    assert not ray_processes_after(30)  # another test's
    handler, environment = signal.getsignal(signal.SIGTERM), dict(os.environ)
    tasks = choices(5)
    make_worker = partial(make_logged, str(tmp_path / "log"))
    assert run_tasks(tasks, make_worker, file=file, workers=2, ray_address="local") == 15

    serial = ResultsFile(tmp_path / "serial.jsonl")
    run_tasks(tasks, Chooser, file=serial)
    assert {row["key"]: row for row in file.rows()} == {row["key"]: row for row in serial.rows()}

    made = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert len({process for process, _ in made}) == len(made) == 2
    assert {n_threads for _, n_threads in made} == {"1"}

    assert not ray.is_initialized()
    assert not ray_processes_after(30)
    assert signal.getsignal(signal.SIGTERM) is handler
    assert dict(os.environ) == environment
    out, errors = capfd.readouterr()
    assert out == ""
    # gRPC, where another test has loaded it, speaks of every fork.
    assert [line for line in errors.splitlines() if "fork_posix.cc" not in line] == []


@pytest.mark.parametrize("address", ["nonsense://here", ""])
def test_an_address_without_a_ray_is_refused(file, address):
    with pytest.raises(InvalidInputError, match="`ray_address`"):
        run_tasks(choices(1), Chooser, file=file, ray_address=address)


def test_ray_is_named_where_it_is_missing():
    program = (
        "import sys; sys.modules['ray'] = None\n"
        "from sift_core.evaluation.running.run import run_tasks\n"
        "from sift_core.evaluation.running.results_file import ResultsFile\n"
        "run_tasks([], None, file=ResultsFile('none.jsonl'), ray_address='local')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "MissingDependencyError: `ray` could not be imported" in done.stderr
    assert "sift-rerank[ray]" in done.stderr
    assert MissingDependencyError("ray", extra="ray")


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize(
    ("trouble", "kind", "message"),
    [
        ("ours", NumericalError, r"^σ² of the prompt is NaN$"),
        ("missing", MissingDependencyError, r"^`peft` .* 'sift-rerank\[fine-tune\]'`$"),
        ("theirs", ExperimentError, r"(?s)task 2 of 4 \(prompt 1\).*nothing to divide by"),
        ("killed", ExperimentError, r"(?s)died while task 2 of 4 \(prompt 1\).*second run"),
    ],
)
def test_an_error_of_a_worker_comes_through_and_a_second_run_goes_on(file, trouble, kind, message):
    tasks = choices(4)
    tasks[1] = Choice(name="prompt 1", trouble=trouble)
    with pytest.raises(kind, match=message) as caught:
        run_tasks(tasks, Chooser, file=file, workers=2, ray_address="auto")
    assert type(caught.value) is kind
    assert {key_of(tasks[1], 1), key_of(tasks[1], 2)} <= file.keys()
    assert ray.is_initialized()

    run_tasks(choices(4), Chooser, file=file, workers=2, ray_address="auto")
    assert file.keys() == {key_of(task, n) for task in choices(4) for n in (1, 2, 3)}


@pytest.mark.usefixtures("local_ray")
def test_an_error_while_the_model_is_loaded_comes_through(file):
    with pytest.raises(ExperimentError, match=r"(?s)its worker was made.*nothing to divide by"):
        run_tasks(choices(2), partial(make_broken, "theirs"), file=file, ray_address="auto")


@pytest.mark.usefixtures("local_ray")
def test_what_cannot_be_pickled_is_named(file):
    make_worker = partial(make_logged, threading.Lock())
    with pytest.raises(InvalidInputError, match="`make_worker` must be picklable"):
        run_tasks(choices(2), make_worker, file=file, workers=2, ray_address="auto")


@pytest.mark.usefixtures("local_ray")
def test_more_workers_than_cpus_leave_the_work_to_those_that_find_room(file):
    assert run_tasks(choices(8), Chooser, file=file, workers=4, ray_address="auto") == 24


PROGRAM = """
import sys
from sift_core.evaluation.running.results_file import ResultsFile
from sift_core.evaluation.running.run import run_tasks
from tests.evaluation.workers import Choice, Chooser
tasks = [Choice(name=f"prompt {i}", n_rows=20, seconds=0.1) for i in range(4)]
run_tasks(tasks, Chooser, file=ResultsFile(sys.argv[1]), workers=2, ray_address="local")
"""


@pytest.fixture
def nothing_of_ray_left():
    """A driver that is killed cannot end its Ray, parts of which outlive it by minutes."""
    before = ray_processes()
    yield
    for process in ray_processes().keys() - before.keys():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


@pytest.mark.usefixtures("nothing_of_ray_left")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupt", "kill"])
def test_a_run_that_is_stopped_keeps_its_rows_and_ends_ray(file, how):
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(file.path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while len(file.keys()) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert 4 <= len(file.keys()) < 80
    os.killpg(program.pid, how) if how == signal.SIGINT else program.kill()
    began = time.monotonic()
    program.wait(timeout=30)
    assert time.monotonic() - began < 10
    if how == signal.SIGINT:
        errors = program.stderr.read()
        assert errors.count("Traceback") == errors.count("KeyboardInterrupt") == 1
    program.stderr.close()
    assert 4 <= len(file.keys()) < 80
    assert file.append({"key": "after"})
