"""Whole runs with readers of views, and the proof that a run finds what is broken in reading them."""

import pytest

from respool.sim.run import simulate
from respool.sim.sim_plan import draw_sim_plan
from sim.planted_bugs import Plant
from sim.planted_view_bugs import VIEW_PLANTS

# Chosen for having much happen in little time.
ALONE = (1, 21)
CLUSTERS = (6, 13)


@pytest.mark.parametrize(
    ("brokers", "seed"), [*((1, seed) for seed in ALONE), *((3, seed) for seed in CLUSTERS)]
)
def test_readers_of_views_are_shown_what_matches(brokers: int, seed: int) -> None:
    report = simulate(seed, broker_count=brokers)
    assert report.violations == [], f"replay it with: make sim SEED={seed} BROKERS={brokers}"
    assert report.counts["polls of views"]


@pytest.mark.parametrize("plant", VIEW_PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_of_views_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = VIEW_PLANTS[plant]
    assert draw_sim_plan(seed, broker_count=1).has_views
    with monkeypatch.context() as patch:
        plant(patch)
        violations = simulate(seed, broker_count=1).violations
    assert violations
    assert {one.rule for one in violations} <= {"V1", "V2", "V3", "A6", "A7"}
