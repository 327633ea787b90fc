"""What a run of the tests records, and the order in which it starts them, seen in a small run with two workers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.durations import FOLDER, Durations, without_group

TESTS = Path(__file__).parents[1]
SOME_TESTS = """
import pytest

@pytest.fixture
def slow_to_make():
    return 1

def test_short(): pass

@pytest.mark.crash
def test_with_a_process(): pass

@pytest.mark.xdist_group("other")
def test_grouped(): pass

@pytest.mark.parametrize("address", ["a@b"])
@pytest.mark.xdist_group("spark")
def test_in_the_longest_group(slow_to_make, address): pass
"""

GROUPED_TESTS = """
import os
import pytest

@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("number", range(8))
def test_grouped(number):
    with open("workers", "a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + " ")
"""

SHARING_TESTS = """
import os
import pytest

@pytest.fixture(scope="module")
def worker():
    return os.environ["PYTEST_XDIST_WORKER"]

@pytest.mark.parametrize("number", range(8))
def test_sharing(worker, number):
    with open("workers", "a") as file:
        file.write(worker + " ")
"""
LEAKING_TESTS = """
import gc
import socket

def test_guilty():
    both = [socket.socket()]
    both.append(both)

def test_innocent():
    gc.collect()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Some tests under the conftest of ours."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    crash: kills\n")
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "test_some.py").write_text(SOME_TESTS)
    return tmp_path


def run(project: Path, *arguments: str, fails: bool = False) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == int(fails), done.stdout
    return done.stdout


@pytest.mark.parametrize("workers", ["0", "2"])
def test_every_run_records_how_long_each_file_and_case_took(project: Path, workers: str) -> None:
    run(project, "-n", workers, "--dist", "loadgroup", "--no-loadscope-reorder")
    cases = (project / FOLDER / "cases.tsv").read_text().splitlines()
    assert sorted(line.split("\t")[1] for line in cases) == [
        "test_some.py::test_grouped",
        "test_some.py::test_in_the_longest_group[a@b]",
        "test_some.py::test_short",
        "test_some.py::test_with_a_process",
    ]
    (file,) = (project / FOLDER / "files.tsv").read_text().splitlines()
    assert file.endswith("\ttest_some.py")
    assert float(file.split("\t")[0]) >= 0


def test_long_groups_start_first_and_short_cases_last(project: Path) -> None:
    listed = run(project, "--collect-only", "-q").splitlines()
    assert [line.partition("::")[2] for line in listed if "::" in line] == [
        "test_in_the_longest_group[a@b]",
        "test_grouped",
        "test_with_a_process",
        "test_short",
    ]


@pytest.mark.parametrize("tests", [GROUPED_TESTS, SHARING_TESTS], ids=["group", "shared fixture"])
def test_cases_of_a_group_run_on_one_worker(project: Path, tests: str) -> None:
    """With pytest 9.2, xdist 3.8.0 distributed them one by one: each worker started a Spark of its own."""
    (project / "test_some.py").write_text(tests)
    run(project, "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder")
    assert len((project / "workers").read_text().split()) == 8
    assert len(set((project / "workers").read_text().split())) == 1


def test_a_socket_left_open_fails_the_test_that_opened_it(project: Path) -> None:
    (project / "test_some.py").write_text(LEAKING_TESTS)
    said = run(project, "-W", "error", "-rA", fails=True)
    assert "ERROR test_some.py::test_guilty" in said
    assert "2 passed, 1 error in" in said


def test_three_workers_share_a_core_unless_all_they_do_is_compute(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def workers() -> object:
        return pytestconfig.hook.pytest_xdist_auto_num_workers(config=pytestconfig)

    monkeypatch.setattr(os, "cpu_count", lambda: 300)
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    monkeypatch.delenv("RESPOOL_FUZZ", raising=False)
    assert workers() == 900
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "7")
    assert workers() == 7
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS")
    monkeypatch.setenv("RESPOOL_FUZZ", "long")
    assert workers() != 900


def test_the_slowest_are_told_and_the_fast_are_not() -> None:
    durations = Durations()
    durations.cases |= {"a.py::one": 2.0, "a.py::two": 0.5, "b.py::three": 40.0}
    durations.workers |= {"gw1": 40.0, "gw0": 2.5}
    assert durations.summary() == [
        "slowest files (all: .durations/files.tsv)",
        "    40.0 s  b.py",
        "     2.5 s  a.py",
        "slowest cases (all: .durations/cases.tsv)",
        "    40.0 s  b.py::three",
        "     2.0 s  a.py::one",
        "in tests: gw0 2 s, gw1 40 s",
    ]


def test_a_run_without_anything_slow_says_nothing() -> None:
    durations = Durations()
    durations.cases |= {"a.py::one": 0.2}
    assert durations.summary() == []


@pytest.mark.parametrize(
    ("nodeid", "case"),
    [
        ("a.py::test", "a.py::test"),
        ("a.py::test@spark", "a.py::test"),
        ("a.py::test[x@y]", "a.py::test[x@y]"),
        ("a.py::test[x@y]@spark", "a.py::test[x@y]"),
    ],
)
def test_a_case_is_named_without_its_group(nodeid: str, case: str) -> None:
    assert without_group(nodeid) == case
