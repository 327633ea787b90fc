"""Whole runs with a group that retries, and the proof that a run finds what is broken in retrying."""

import pytest

from respool.sim.run import simulate
from respool.sim.sim_plan import draw_sim_plan
from sim.planted_bugs import Plant
from sim.planted_retry_bugs import RETRY_PLANTS

# Chosen for having much happen in little time.
ALONE = (39, 101)
CLUSTERS = (6,)


@pytest.mark.parametrize(
    ("brokers", "seed"), [*((1, seed) for seed in ALONE), *((3, seed) for seed in CLUSTERS)]
)
def test_each_message_is_handled_or_buried_once(brokers: int, seed: int) -> None:
    report = simulate(seed, broker_count=brokers)
    assert report.violations == [], f"replay it with: make sim SEED={seed} BROKERS={brokers}"
    assert report.counts["retries: done"]


@pytest.mark.parametrize("plant", RETRY_PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_of_retries_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = RETRY_PLANTS[plant]
    assert draw_sim_plan(seed, broker_count=1).has_retries
    with monkeypatch.context() as patch:
        plant(patch)
        violations = simulate(seed, broker_count=1).violations
    assert violations
