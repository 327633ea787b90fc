"""Whole runs of clusters: a few seeds each time, and the proof that a run finds what is broken."""

import os
from collections.abc import Iterable

import pytest

from replication import planted_bugs
from respool.sim.run import simulate
from sim import planted_cluster_bugs
from sim.planted_bugs import Plant
from sim.planted_cluster_bugs import CLUSTER_PLANTS

# Chosen for having much happen in little time; a seed that found a bug joins them.
SMOKE = (0, 1, 5, 8, 17, 39)
# More happens in these, and they take as long as all of the others. The last one found that a replica whose first
# segment's name was lost began after it, and took the leader's records before that with it.
LONG_SMOKE = (20, 26, 96100010)
# How many seeds each planted bug may take to be found.
SEEDS_MAX = 300
# The first two find all that are tried in every run; others, if the code changes, are tried after them.
QUICK_SEEDS = (0, 2, 1, *range(3, 10))

# What goes wrong without these is seen in whole brokers by chance. Others need more luck than seeds there are to spare:
# `tests/replication` has stories that lead to them.
RULES = (
    planted_bugs.counts_own_durable_end,
    planted_bugs.keeps_high_watermark,
    planted_bugs.steps_down,
    planted_bugs.truncates_by_epoch,
    planted_bugs.joins_at_high_watermark,
    planted_bugs.answers_when_committed,
    planted_bugs.tells_durable_end,
    planted_bugs.caps_high_watermark,
    planted_bugs.counts_leavers,
)

is_long = pytest.mark.skipif(
    os.environ.get("RESPOOL_FUZZ") != "long", reason="takes minutes: make fuzz"
)


@pytest.mark.parametrize("seed", SMOKE)
def test_a_cluster_keeps_its_promises(seed: int) -> None:
    _check_cluster(seed)


@pytest.mark.long
@is_long
@pytest.mark.parametrize("seed", LONG_SMOKE)
def test_a_cluster_keeps_its_promises_for_long(seed: int) -> None:
    _check_cluster(seed)


def _check_cluster(seed: int) -> None:
    report = simulate(seed, broker_count=3)
    assert report.violations == [], f"replay it with: make sim SEED={seed} BROKERS=3"
    assert report.counts["sends acknowledged"]
    assert report.faults


@pytest.mark.parametrize(
    "seed",
    [
        # The operator's: a partition only on a disk that stands in for another, which others wait for.
        80001996,
        # The nemesis': who stopped while it registered waited for one that was not started before it had stopped.
        80004887,
        80007844,
    ],
)
def test_what_failed_once(seed: int) -> None:
    assert simulate(seed).violations == []


@pytest.mark.long
@is_long
@pytest.mark.parametrize(
    "seed",
    [
        # The watch's: one that registered anew while it was stopped was taken for the one after it.
        80004425,
        # The nemesis': who registered though it was being stopped counted as one that stays.
        90002720,
        90003685,
        # The broker's: which folder it has was never written down where the disk was full at its first start.
        80007031,
    ],
)
def test_what_failed_once_in_a_long_run(seed: int) -> None:
    assert simulate(seed).violations == []


@pytest.mark.parametrize("broker_count", [5, pytest.param(3, marks=[pytest.mark.long, is_long])])
def test_a_seed_is_the_same_run_again(broker_count: int) -> None:
    """Whatever ran before it in the same process."""
    lines: list[str] = []
    shown = simulate(5, show=lines.append, broker_count=broker_count)
    simulate(8, broker_count=broker_count)
    assert shown.digest == simulate(5, broker_count=broker_count).digest
    assert any("/controller" in line for line in lines)


def is_found(
    *,
    plant: Plant,
    monkeypatch: pytest.MonkeyPatch,
    seeds: Iterable[int],
) -> bool:
    with monkeypatch.context() as patch:
        plant(patch)
        return any(simulate(seed, broker_count=3).violations for seed in seeds)


@pytest.mark.parametrize(
    "plant",
    [
        planted_cluster_bugs.sent_is_taken_for_received,
        planted_cluster_bugs.anyone_is_elected,
        planted_cluster_bugs.leases_never_run_out,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_found(plant=plant, monkeypatch=monkeypatch, seeds=QUICK_SEEDS)


@pytest.mark.parametrize(
    "rule",
    [planted_bugs.counts_own_durable_end, planted_bugs.steps_down],
    ids=lambda rule: rule.__name__,
)
def test_a_broken_rule_is_found(rule: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_found(plant=rule, monkeypatch=monkeypatch, seeds=QUICK_SEEDS)


@pytest.mark.long
@is_long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("plant", CLUSTER_PLANTS, ids=lambda plant: plant.__name__)
def test_every_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_found(plant=plant, monkeypatch=monkeypatch, seeds=range(SEEDS_MAX))


@pytest.mark.long
@is_long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_broken_rule_is_found(rule: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_found(plant=rule, monkeypatch=monkeypatch, seeds=range(SEEDS_MAX))
