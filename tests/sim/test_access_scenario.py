"""Whole runs with users whose rights come and go, and the proof that a run finds what is broken in them."""

import os

import pytest

from respool.sim.run import simulate
from respool.sim.sim_plan import draw_sim_plan
from sim.planted_access_bugs import ACCESS_PLANTS
from sim.planted_bugs import Plant

# Chosen for having much happen in little time.
ALONE = (7,)
CLUSTERS = (7,)


@pytest.mark.parametrize(
    ("brokers", "seed"), [*((1, seed) for seed in ALONE), *((3, seed) for seed in CLUSTERS)]
)
def test_nobody_acts_on_a_right_a_lease_after_it_went(brokers: int, seed: int) -> None:
    report = simulate(seed, broker_count=brokers)
    assert report.violations == [], f"replay it with: make sim SEED={seed} BROKERS={brokers}"
    assert report.counts["users: wrote"]
    assert report.counts["users: denied"] + report.counts["logins refused"]


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
@pytest.mark.parametrize("plant", ACCESS_PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_of_rights_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = ACCESS_PLANTS[plant]
    assert draw_sim_plan(seed, broker_count=1).has_users
    with monkeypatch.context() as patch:
        plant(patch)
        violations = simulate(seed, broker_count=1).violations
    assert violations
