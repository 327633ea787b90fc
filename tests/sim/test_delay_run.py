"""Whole runs with delayed records, and the proof that a run finds what is broken in delivering them."""

import pytest

from respool.sim.run import simulate
from respool.sim.sim_plan import draw_sim_plan
from sim.planted_bugs import Plant
from sim.planted_delay_bugs import DELAY_PLANTS

# Chosen for having much happen in little time; a seed that found a bug joins them: 197 and 155 delivered records twice
# that became due while they were carried, 261 counted carried ones twice.
ALONE = (19, 26, 40, 55)
CLUSTERS = (197, 155, 261)


@pytest.mark.parametrize(
    ("brokers", "seed"), [*((1, seed) for seed in ALONE), *((3, seed) for seed in CLUSTERS)]
)
def test_delayed_records_are_delivered_once(brokers: int, seed: int) -> None:
    report = simulate(seed, broker_count=brokers)
    assert report.violations == [], f"replay it with: make sim SEED={seed} BROKERS={brokers}"
    assert report.counts["delay topics: records delivered"]


@pytest.mark.parametrize("plant", DELAY_PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_of_delays_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    finder = DELAY_PLANTS[plant]
    assert draw_sim_plan(finder.seed, broker_count=finder.brokers).has_delays
    with monkeypatch.context() as patch:
        plant(patch)
        violations = simulate(finder.seed, broker_count=finder.brokers).violations
    assert violations
