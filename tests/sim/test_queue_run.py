"""Whole runs with share groups, and the proof that a run finds what is broken in them."""

import os

import pytest

from respool.sim.run import simulate
from respool.sim.sim_plan import draw_sim_plan
from sim.planted_bugs import Plant
from sim.planted_queue_bugs import QUEUE_PLANTS

# A seed that found a bug joins them: 10 found that nobody heard why a stopped coordinator did not answer.
SMOKE = (10,)
# By the number of brokers. More happens in these.
LONG_SMOKE = ((1, 15), (3, 15), (3, 60))
# The others take as long as all of these.
QUICK = frozenset({"a_release_is_not_stored", "what_is_finished_is_forgotten_when_it_is_loaded"})

is_long = pytest.mark.skipif(
    os.environ.get("RESPOOL_FUZZ") != "long", reason="takes minutes: make fuzz"
)
QUICK_PLANTS = [one for one in QUEUE_PLANTS if one.__name__ in QUICK]
LONG_PLANTS = [one for one in QUEUE_PLANTS if one not in QUICK_PLANTS]


@pytest.mark.parametrize("seed", SMOKE)
def test_each_record_is_accepted_or_a_dead_letter(seed: int) -> None:
    check(1, seed)


@pytest.mark.long
@is_long
@pytest.mark.parametrize(("brokers", "seed"), LONG_SMOKE)
def test_each_record_is_accepted_or_a_dead_letter_for_long(brokers: int, seed: int) -> None:
    check(brokers, seed)


def check(brokers: int, seed: int) -> None:
    report = simulate(seed, broker_count=brokers)
    assert report.violations == [], f"replay it with: make sim SEED={seed} BROKERS={brokers}"
    assert report.counts["queues: deliveries"]


@pytest.mark.parametrize("plant", QUICK_PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_of_share_groups_is_found(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    find(plant, monkeypatch)


@pytest.mark.long
@is_long
@pytest.mark.parametrize("plant", LONG_PLANTS, ids=lambda plant: plant.__name__)
def test_every_planted_bug_of_share_groups_is_found(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    find(plant, monkeypatch)


def find(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    finder = QUEUE_PLANTS[plant]
    assert draw_sim_plan(finder.seed, broker_count=finder.brokers).has_queues
    with monkeypatch.context() as patch:
        plant(patch)
        violations = simulate(finder.seed, broker_count=finder.brokers).violations
    assert violations
