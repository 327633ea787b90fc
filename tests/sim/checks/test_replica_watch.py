"""What is written to the store of a simulated cluster is looked at, and what must not be is found."""

from dataclasses import replace
from uuid import UUID

import pytest

from respool.cluster import keys
from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId, LeaderEpoch, TopicId
from respool.sim.checks.cluster_observer import ClusterObserver
from respool.sim.checks.history import History
from respool.sim.checks.replica_watch import ReplicaWatch
from respool.sim.faults.restarter import Restarter
from respool.sim.net.simulated_store import SimStore
from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_sources import rng_of
from support.sim_clock import SimClock

KEY = keys.partition_key(TopicId(UUID(int=1)), 0)
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
LED = PartitionImage(
    replicas=(ONE, TWO, THREE), isr=(ONE, TWO), leader=ONE, leader_epoch=LeaderEpoch(4)
)


def rules_broken_by(*images: PartitionImage) -> list[str]:
    store, history = SimStore(clock=SimClock()), History()
    observer, loop = ClusterObserver(store), SimLoop(1)
    restarter = Restarter(
        loop=loop, machines=[], rng=rng_of("test", 1), observer=observer, is_synced=True
    )
    ReplicaWatch(
        machines=[],
        store=store,
        observer=observer,
        has_everything=restarter.has_everything,
        history=history,
        is_synced=True,
    )
    for image in images:
        store.transact((), {KEY: keys.encode_partition(image)}, (), None)
    loop.close()
    return [one.rule for one in history.violations]


def test_a_leader_elected_from_the_isr_is_fine_and_so_is_one_that_was_eligible() -> None:
    by_two = replace(LED, leader=TWO, leader_epoch=LeaderEpoch(5), isr=(TWO,), elr=(ONE,))
    by_one = replace(by_two, leader=ONE, leader_epoch=LeaderEpoch(6), isr=(ONE, TWO), elr=())
    assert rules_broken_by(LED, by_two, by_one) == []


@pytest.mark.parametrize(
    ("image", "rules"),
    [
        pytest.param(replace(LED, leader=TWO), ["C1"], id="two leaders in one epoch"),
        pytest.param(replace(LED, leader_epoch=LeaderEpoch(3)), ["C2"], id="an older epoch"),
        pytest.param(
            replace(LED, leader=THREE, isr=(THREE,), leader_epoch=LeaderEpoch(5)),
            ["C2"],
            id="an unclean election",
        ),
        pytest.param(replace(LED, isr=(TWO,)), ["C2"], id="a leader that is not in sync"),
        pytest.param(
            replace(LED, replicas=(ONE, THREE)), ["C2"], id="in sync without being a replica"
        ),
    ],
)
def test_what_must_not_be_written_is_found(image: PartitionImage, rules: list[str]) -> None:
    assert rules_broken_by(LED, image) == rules
