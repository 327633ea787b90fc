"""Where nothing is promised to be synced, the last one that has it must not be struck."""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast
from uuid import UUID

import pytest

from respool.broker.broker import Broker
from respool.cluster import keys
from respool.model.cluster import BrokerEndpoint, PartitionImage
from respool.model.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition
from respool.model.settings import Settings
from respool.ports.metadata_store import StoreUnavailable
from respool.sim.checks.cluster_observer import ClusterObserver
from respool.sim.clients.operator import Operator
from respool.sim.faults.restarter import Restarter
from respool.sim.machine import Machine
from respool.sim.net.simulated_network import SimNetwork
from respool.sim.net.simulated_store import SimStore
from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_sources import NodeClock, rng_of

TOPIC = TopicId(UUID(int=1))
ONE, TWO = BrokerId(1), BrokerId(2)
BOTH = PartitionImage(replicas=(ONE, TWO), isr=(ONE, TWO), leader=ONE, leader_epoch=LeaderEpoch(0))


class World:
    def __init__(self, loop: SimLoop, *, is_synced: bool = False) -> None:
        self.loop = loop
        network = SimNetwork(loop, rng_of("network", 1))
        self.store = SimStore(clock=NodeClock(loop))
        self.machines = [
            Machine(
                loop=loop,
                network=network,
                store=self.store,
                settings=Settings.from_flat(broker_id=number, listen=f"127.0.0.{number}:9092"),
                seed=number,
            )
            for number in (1, 2)
        ]
        self.restarter = Restarter(
            loop=loop,
            machines=self.machines,
            rng=rng_of("test", 1),
            observer=ClusterObserver(self.store),
            is_synced=is_synced,
        )
        record = keys.TopicRecord(id=TOPIC, overrides={}, partition_count=1)
        self.put(keys.topic_key("rides"), keys.encode_topic(record))

    def put(self, key: str, value: bytes) -> None:
        self.store.transact((), {key: value}, (), None)

    def put_partition(self, image: PartitionImage) -> None:
        self.put(keys.partition_key(TOPIC, 0), keys.encode_partition(image))

    def watch_both_in_sync(self) -> None:
        """Both run and are in sync, and what is written of them is looked at from now on."""
        self.put_partition(BOTH)
        for machine in self.machines:
            self.register(machine)
        self.store.screens.append(self.restarter.spare_in_sync)

    def register(self, machine: Machine) -> None:
        """It runs, as far as anybody can see."""
        if machine.process is None or not machine.process.is_alive:
            machine.process = self.loop.new_process(machine.host)
        machine.broker = cast("Broker", object())
        endpoint = BrokerEndpoint(id=machine.id, host="h", port=1)
        registration = keys.BrokerRegistration(endpoint=endpoint, incarnation=UUID(int=machine.id))
        self.put(keys.broker_key(machine.id), keys.encode_broker(registration))


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    made = SimLoop(1)
    yield made
    made.close()


def test_one_of_two_in_sync_may_crash(loop: SimLoop) -> None:
    world = World(loop)
    world.put_partition(BOTH)
    for machine in world.machines:
        world.register(machine)
    assert all(world.restarter.may_crash(one) for one in world.machines)


def test_the_last_in_sync_may_not_crash_and_the_other_may(loop: SimLoop) -> None:
    world = World(loop)
    world.put_partition(replace(BOTH, isr=(ONE,)))
    for machine in world.machines:
        world.register(machine)
    assert [world.restarter.may_crash(one) for one in world.machines] == [False, True]


def test_who_has_crashed_counts_for_nothing_until_it_has_registered_anew(loop: SimLoop) -> None:
    world = World(loop)
    world.put_partition(BOTH)
    for machine in world.machines:
        world.register(machine)
    one, two = world.machines
    assert world.restarter.kill(two)
    # The store has not noticed, and it runs again already.
    two.broker = cast("Broker", object())
    assert not world.restarter.may_crash(one)
    assert not world.restarter.kill(one)
    world.register(two)
    assert world.restarter.may_crash(one)


def test_a_partition_is_not_made_of_brokers_that_have_crashed_unnoticed(loop: SimLoop) -> None:
    world = World(loop)
    for machine in world.machines:
        world.register(machine)
    world.store.screens.append(world.restarter.spare_in_sync)
    one, two = world.machines
    # Nothing is there that could keep them from it.
    assert world.restarter.kill(one)
    assert world.restarter.kill(two)
    with pytest.raises(StoreUnavailable, match="all crashed"):
        world.put_partition(BOTH)
    assert world.restarter.spared == 1
    # One of them is enough: it is not struck any more until the other is in sync.
    world.register(two)
    world.put_partition(BOTH)
    assert not world.restarter.may_crash(two)


def test_a_partition_is_not_left_to_a_broker_that_has_crashed_unnoticed(loop: SimLoop) -> None:
    world = World(loop)
    world.watch_both_in_sync()
    one, two = world.machines
    assert world.restarter.kill(one)
    # The disk of the other is full, say.
    with pytest.raises(StoreUnavailable, match="all crashed"):
        world.put_partition(replace(BOTH, isr=(ONE,)))
    # The one that is left may go on alone.
    world.put_partition(replace(BOTH, isr=(TWO,), leader=TWO))
    assert world.restarter.spared == 1
    assert not world.restarter.may_crash(two)


def test_who_has_lost_its_lease_and_nothing_else_still_has_everything(loop: SimLoop) -> None:
    """Seed 609950: with nobody registered but the crashed ones, the partition was left to them."""
    world = World(loop)
    world.watch_both_in_sync()
    one, two = world.machines
    assert world.restarter.kill(one)
    world.store.transact((), {}, (keys.broker_key(TWO),), None)
    with pytest.raises(StoreUnavailable, match="all crashed"):
        world.put_partition(replace(BOTH, isr=(ONE,)))
    assert not world.restarter.may_crash(two)
    # The crashed one may step back, so that it can register.
    world.put_partition(replace(BOTH, isr=(TWO,), leader=None))


def test_who_crashed_without_a_lease_has_nothing(loop: SimLoop) -> None:
    world = World(loop)
    for machine in world.machines:
        world.register(machine)
    two = world.machines[1]
    world.store.transact((), {}, (keys.broker_key(TWO),), None)
    assert world.restarter.kill(two)
    two.process = loop.new_process(two.host)
    world.store.screens.append(world.restarter.spare_in_sync)
    with pytest.raises(StoreUnavailable, match="all crashed"):
        world.put_partition(replace(BOTH, isr=(TWO,)))
    world.register(two)
    world.put_partition(replace(BOTH, isr=(TWO,)))


def test_a_partition_that_nobody_has_any_more_may_change_as_it_likes(loop: SimLoop) -> None:
    world = World(loop)
    world.put_partition(BOTH)
    world.store.screens.append(world.restarter.spare_in_sync)
    world.put_partition(replace(BOTH, isr=(ONE,), leader=None, last_leader=ONE))
    assert world.restarter.spared == 0


def test_where_all_is_synced_a_partition_may_be_made_of_any_brokers(loop: SimLoop) -> None:
    world = World(loop, is_synced=True)
    world.store.screens.append(world.restarter.spare_in_sync)
    world.put_partition(BOTH)
    assert world.restarter.spared == 0


def test_what_is_synced_needs_not_to_be_spared(loop: SimLoop) -> None:
    world = World(loop, is_synced=True)
    world.put_partition(replace(BOTH, isr=(ONE,)))
    assert all(world.restarter.may_crash(one) for one in world.machines)


def test_a_disk_is_replaced_only_where_all_that_is_on_it_is_elsewhere(loop: SimLoop) -> None:
    world = World(loop, is_synced=True)
    world.watch_both_in_sync()
    one, two = world.machines
    first = one.disk
    one.kill()
    assert world.restarter.change_disk(one)
    assert one.disk is not first
    two.kill()
    second = two.disk
    assert not world.restarter.change_disk(two)
    assert two.disk is second
    assert world.restarter.spared == 1


def test_a_partition_is_not_left_to_a_broker_whose_disk_was_replaced(loop: SimLoop) -> None:
    world = World(loop, is_synced=True)
    world.watch_both_in_sync()
    one = world.machines[0]
    one.kill()
    assert world.restarter.change_disk(one)
    for left_to_one in (
        replace(BOTH, isr=(ONE,)),
        replace(BOTH, isr=(), elr=(ONE,), leader=None),
        replace(BOTH, isr=(), leader=None, last_leader=ONE),
    ):
        with pytest.raises(StoreUnavailable, match="all crashed"):
            world.put_partition(left_to_one)
    # The other has all of it on its disk, whether it crashes or not.
    world.put_partition(replace(BOTH, isr=(), leader=None, last_leader=TWO))
    # From when it has said that it is another one, it may be taken at its word.
    world.put_partition(BOTH)
    world.register(one)
    world.put_partition(replace(BOTH, isr=(ONE,)))


def test_what_waits_for_another_disk_does_not_keep_this_one(loop: SimLoop) -> None:
    world = World(loop, is_synced=True)
    world.watch_both_in_sync()
    one = world.machines[0]
    own = one.disk
    one.kill()
    one.unmount_disk()
    assert one.disk is not own
    waiting = replace(BOTH, isr=(), leader=None, last_leader=ONE, last_folder=UUID(int=7))
    world.put_partition(waiting)
    assert world.restarter.change_disk(one)
    assert one.disk is own
    assert not one.is_without_its_disk
    # Seed 6000457: it was replaced before anybody had heard that it was back.
    assert not world.restarter.change_disk(one)
    assert one.disk is own


def test_what_only_one_is_to_have_gets_a_second_replica_before_its_disk_is_changed(
    loop: SimLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 80001996: it was the only replica of one partition, and another waited for the disk that it had not got."""
    world = World(loop, is_synced=True)
    world.watch_both_in_sync()
    operator = Operator(
        store=world.store, observer=ClusterObserver(world.store), rng=rng_of("operator", 1)
    )
    moves: list[tuple[TopicPartition, list[int]]] = []

    async def move(name: TopicPartition, replicas: list[int]) -> None:
        moves.append((name, replicas))

    monkeypatch.setattr(operator, "_move", move)
    loop.run_until_complete(operator.add_replicas(ONE))
    assert moves == []
    world.put_partition(replace(BOTH, replicas=(ONE,), isr=(ONE,)))
    loop.run_until_complete(operator.add_replicas(TWO))
    assert moves == []
    loop.run_until_complete(operator.add_replicas(ONE))
    assert moves == [(TopicPartition("rides", 0), [ONE, TWO])]
