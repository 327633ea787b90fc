"""Whole runs: a few seeds each time, and the proof that a run finds what is broken."""

import os
import subprocess
import sys

import pytest

from respool.sim.__main__ import main
from respool.sim.run import simulate
from sim import planted_bugs
from sim.planted_bugs import PLANTS, Plant

# Chosen for having much happen in little time; a seed that found a bug joins them.
SMOKE = (4, 5, 15, 17, 20, 23, 26, 31, 39, 44, 49, 78)
# How many seeds each planted bug may take to be found.
SEEDS_MAX = 500


@pytest.mark.parametrize("seed", SMOKE)
def test_a_broker_alone_keeps_its_promises(seed: int) -> None:
    report = simulate(seed, broker_count=1)
    assert report.violations == [], f"replay it with: make sim SEED={seed} BROKERS=1"
    assert report.counts["requests"]
    assert report.faults


def test_a_trace_changes_nothing() -> None:
    lines: list[str] = []
    shown = simulate(15, show=lines.append, broker_count=1)
    assert shown.digest == simulate(15, broker_count=1).digest
    assert any("healed" in line for line in lines)


def is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> bool:
    with monkeypatch.context() as patch:
        plant(patch)
        return any(simulate(seed, broker_count=1).violations for seed in range(SEEDS_MAX))


@pytest.mark.parametrize(
    "plant",
    [
        planted_bugs.open_transactions_are_stable,
        planted_bugs.offsets_count_before_the_marker,
        planted_bugs.acks_1_is_answered_before_it_is_synced,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_found(plant, monkeypatch)


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="takes minutes: make fuzz")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_every_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_found(plant, monkeypatch)


def test_seeds_are_counted_and_failing_ones_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--seeds", "1", "--first", "15", "--workers", "1", "--brokers", "1"]) == 0
    assert "1 seeds in" in capsys.readouterr().out
    planted_bugs.high_watermark_starts_again(monkeypatch)
    assert main(["--seeds", "1", "--first", "15", "--workers", "1", "--brokers", "1"]) == 1
    assert "make sim SEED=15 BROKERS=1" in capsys.readouterr().out


def test_seeds_run_in_several_processes() -> None:
    command = [
        sys.executable,
        "-m",
        "respool.sim",
        "--seeds",
        "2",
        "--first",
        "5",
        "--workers",
        "2",
        "--brokers",
        "1",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "2 seeds in" in ran.stdout


def test_one_seed_is_replayed_with_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "15", "--brokers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "healed" in shown
    assert "is answered" in shown
