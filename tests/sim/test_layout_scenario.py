"""Whole runs with a topic that is shrunk, grown and retired, and the proof that a run finds what is broken in that."""

import os

import pytest

from respool.sim.run import simulate
from respool.sim.sim_plan import draw_sim_plan
from sim.planted_bugs import Plant
from sim.planted_layout_bugs import LAYOUT_PLANTS, QUICK_PLANT

# Chosen for having much happen in little time; a seed that found a bug joins them: 14 and 70 showed records of a key
# too early, when holds of readers were forgotten at the next change.
QUICK = (14,)
ALONE = (16, 24, 70)
CLUSTERS = (11,)

needs_time = pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")


@pytest.mark.parametrize("seed", QUICK)
def test_nothing_is_lost_doubled_or_reordered_when_partitions_come_and_go(seed: int) -> None:
    check(seed, brokers=1)


@pytest.mark.long
@needs_time
@pytest.mark.parametrize(
    ("brokers", "seed"), [*((1, seed) for seed in ALONE), *((3, seed) for seed in CLUSTERS)]
)
def test_the_same_in_longer_runs_and_in_clusters(brokers: int, seed: int) -> None:
    check(seed, brokers=brokers)


def test_two_sequences_of_one_producer_in_one_log_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find(QUICK_PLANT, monkeypatch)


@pytest.mark.long
@needs_time
@pytest.mark.parametrize("plant", LAYOUT_PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_of_layouts_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    find(plant, monkeypatch)


def check(seed: int, *, brokers: int) -> None:
    report = simulate(seed, broker_count=brokers)
    assert report.violations == [], f"replay it with: make sim SEED={seed} BROKERS={brokers}"
    assert report.counts["shrunk topics: shrink"]
    assert report.counts["shrunk topics: records appended to heirs"]


def find(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    finder = LAYOUT_PLANTS[plant]
    assert draw_sim_plan(finder.seed, broker_count=finder.brokers).has_layouts
    with monkeypatch.context() as patch:
        plant(patch)
        violations = simulate(finder.seed, broker_count=finder.brokers).violations
    assert violations
