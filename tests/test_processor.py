"""How many CPUs there are for this process, and what the processor can compute."""

import os
import subprocess
import sys

import pytest

from sift_core import processor
from sift_core.processor import (
    instructions_in,
    n_threads,
    thread_variable,
    usable_cpus,
)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in processor.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def many_cpus(monkeypatch):
    """A process that is bound to 64 CPUs."""
    monkeypatch.setattr(processor, "_bound_cpus", lambda: 64)


def system(folder, own, limits):
    """Make the files in which Linux tells a process's control group and each group's limit."""
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/cgroup").write_text(own, encoding="utf-8", errors="surrogateescape")
    for group, limit in limits.items():
        place = folder / "sys/fs/cgroup" / group
        place.mkdir(parents=True, exist_ok=True)
        (place / "cpu.max").write_text(limit)
    return folder


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        ("0::/\n", {"": "200000 100000\n"}, 2),
        ("0::/\n", {"": "150000 100000\n"}, 2),  # a share of a CPU is rounded up
        ("0::/\n", {"": "max 100000\n"}, 64),
        ("0::/\n", {"": "9900000 100000\n"}, 64),  # a limit above what there is
        ("0::/a/b\n", {"a": "300000 100000\n", "a/b": "max 100000\n"}, 3),  # a group above
        ("4:cpu:/\n0::/a\n", {"a": "50000 10000\n"}, 5),  # both versions at once
        ("4:cpu:/\n", {"": "100000 100000\n"}, 64),  # version 1 alone
        ("0::/../else\n", {"": "200000 100000\n"}, 2),  # seen from within a namespace
        ("0::/\n", {}, 64),
        ("0::/\n", {"": "nonsense\n"}, 64),
        ("0::/\n", {"": "100000 0\n"}, 64),
        ("0::/\udcff\n", {"": "300000 100000\n"}, 3),  # a name that is no UTF-8
    ],
)
def test_a_containers_limit_counts(many_cpus, tmp_path, own, limits, expected):
    assert usable_cpus(system(tmp_path, own, limits)) == expected


def test_where_no_group_is_told_the_bound_cpus_count(many_cpus, tmp_path):
    assert usable_cpus(tmp_path) == 64


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process")
def test_a_process_that_is_bound_to_one_cpu_uses_one():
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from sift_core.processor import n_threads; print(n_threads())"
    )
    variables = {k: v for k, v in os.environ.items() if k not in processor.THREAD_VARIABLES}
    printed = subprocess.check_output([sys.executable, "-c", code], env=variables, text=True)
    assert printed == "1\n"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "4,2"}, 4),
        ({"MKL_NUM_THREADS": "5"}, 5),
        ({"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "5"}, 5),
        ({"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "many"}, 3),
        ({"OMP_NUM_THREADS": "0"}, None),
        ({"OMP_NUM_THREADS": "many"}, None),
        ({}, None),
    ],
)
def test_the_variables_of_threads_win(monkeypatch, variables, expected):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert n_threads() == (expected or usable_cpus())
    assert (thread_variable() is None) == (expected is None)


@pytest.mark.slow
@pytest.mark.parametrize("variables", [("2", "1"), ("1", "1"), ("1", "")])
def test_pytorch_takes_the_same_number(variables):
    pytest.importorskip("torch")
    code = (
        "import torch; from sift_core.processor import n_threads; "
        "print(torch.get_num_threads() == n_threads())"
    )
    names = dict(zip(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), variables, strict=True))
    asked = {**os.environ, **{name: value for name, value in names.items() if value}}
    assert subprocess.check_output([sys.executable, "-c", code], env=asked, text=True) == "True\n"


def test_torch_gets_no_more_threads_than_cpus(monkeypatch):
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(7)
        monkeypatch.setattr(processor, "usable_cpus", lambda: 3)
        processor.limit_torch_threads()
        assert torch.get_num_threads() == 3
        torch.set_num_threads(2)  # somebody wanted fewer
        processor.limit_torch_threads()
        assert torch.get_num_threads() == 2
        monkeypatch.setenv("OMP_NUM_THREADS", "7")
        torch.set_num_threads(7)
        processor.limit_torch_threads()
        assert torch.get_num_threads() == 7
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512_bf16\n", {"fpu", "avx2", "avx512_bf16"}),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", {"fp", "asimd", "bf16"}),
        ("flags : first\nflags : second\n", {"first"}),
        ("processor : 0\nmodel name : something\n", None),
        ("", None),
    ],
)
def test_instructions_are_read_as_linux_tells_them(tmp_path, text, expected):
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    assert instructions_in(path) == expected


def test_a_system_that_does_not_tell_its_instructions_is_no_error(tmp_path):
    assert instructions_in(tmp_path / "nowhere") is None
