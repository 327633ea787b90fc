"""A leader's ISR on its way into the store: written, refused, or of unknown outcome."""

import asyncio

from broker.catalog_fake import FakeCatalog, Spawned
from broker.replica_bench import LAG_MS, ME, THREE, TWO, Bench, image_of, play, turns
from respool.broker.partitions.partition import Partition
from respool.broker.replication.isr_writer import RETRY_DELAY_S, IsrWriter
from respool.cluster import keys
from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId
from respool.ports.metadata_store import Guard, GuardFailed, StoreUnavailable
from respool.replication.effects import ProposeIsr


class World:
    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.catalog = FakeCatalog(image_of())
        self.spawned = Spawned()
        self.seen: list[PartitionImage] = []
        self.may_act = True
        self.writer = IsrWriter(
            catalog=self.catalog.as_catalog,
            store=self.catalog.as_store,
            may_act=lambda: self.may_act,
            on_newer_image=self._see,
            spawn=self.spawned,
        )
        self.rides = bench.partition()
        self.leader = bench.lead(self.rides)

    def _see(self, partition: Partition, image: PartitionImage) -> None:
        self.seen.append(image)
        partition.role.on_image(ME, image)

    def propose(self) -> ProposeIsr:
        """Broker 3 has lagged for too long."""
        self.bench.append(self.rides)
        self.bench.clock.advance(LAG_MS + 1)
        self.bench.hear(self.rides, TWO, 1)
        self.rides.role.on_tick(self.bench.clock.monotonic_ms())
        (proposal,) = self.bench.proposals
        self.writer.propose(self.rides, self.leader, proposal)
        return proposal


def test_the_write_is_guarded_by_the_revision_the_leader_decided_on() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        world.propose()
        await world.spawned.join()
        (write,) = world.catalog.writes
        key = keys.partition_key(world.rides.topic_id, 0)
        assert write.guards == (Guard(key=key, revision=5),)
        assert world.catalog.written()[0].isr == (ME, TWO)
        # It is heard of as everything else is, when it is seen.
        assert world.seen == []

    play(story)


def test_a_joiner_must_be_registered_as_its_fetches_said() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        joined = image_of(revision=5)
        proposal = ProposeIsr(image=joined, joiners=((THREE, 30),))
        world.writer.propose(world.rides, world.leader, proposal)
        await world.spawned.join()
        (write,) = world.catalog.writes
        assert Guard(key=keys.broker_key(BrokerId(3)), revision=30) in write.guards

    play(story)


def test_after_a_refusal_the_key_is_read_and_the_leader_decides_again() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        world.catalog.failures = [GuardFailed("somebody was first")]
        world.catalog.readings = [image_of(revision=8)]
        world.propose()
        await world.spawned.join()
        assert [one.revision for one in world.seen] == [8]
        assert [one.image.revision for one in bench.proposals] == [5, 8]

    play(story)


def test_a_write_without_an_answer_is_made_again_in_any_case() -> None:
    """It may still come about; only another write prevents that."""

    async def story(bench: Bench) -> None:
        world = World(bench)
        world.catalog.failures = [StoreUnavailable("no answer")]
        world.catalog.readings = [StoreUnavailable("still none"), image_of(revision=5)]
        world.propose()
        await world.spawned.join()
        assert world.catalog.reads == 2
        # Whoever may be in sync by that write counts until it is known.
        assert world.leader.in_sync == {ME, TWO, THREE}
        assert [one.image.isr for one in bench.proposals] == [(ME, TWO), (ME, TWO)]

    play(story)


def test_without_a_valid_lease_nothing_is_written() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        world.may_act = False
        world.catalog.readings = [image_of(revision=5)]
        world.propose()
        await world.spawned.join()
        assert world.catalog.writes == []

    play(story)


def test_a_leader_that_is_none_any_more_is_told_nothing() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        world.catalog.failures = [GuardFailed("somebody was first")]
        world.catalog.readings = [image_of(leader=TWO, leader_epoch=2, revision=8)]
        world.propose()
        await turns()
        world.rides.role.resign("as the test wants it")
        await world.spawned.join()
        assert world.seen == []

    play(story)


def test_a_partition_whose_key_is_gone_is_left_to_its_end() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        world.catalog.failures = [GuardFailed("it was deleted")]
        world.catalog.readings = [None]
        world.propose()
        await world.spawned.join()
        assert world.seen == []
        assert len(bench.proposals) == 1

    play(story)


def test_a_store_that_is_away_is_not_asked_without_a_pause() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench)
        world.catalog.failures = [StoreUnavailable("no answer")]
        world.catalog.readings = [StoreUnavailable("still none")]
        world.propose()
        await turns(1000)
        assert world.catalog.reads == 0
        await asyncio.sleep(10.5 * RETRY_DELAY_S)
        assert world.catalog.reads == 10
        world.rides.role.resign("as the test wants it")
        await world.spawned.join()

    play(story)
