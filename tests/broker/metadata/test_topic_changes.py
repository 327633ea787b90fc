"""Topics changed by several brokers on one metadata store: one of them wins, and the others are told what is true."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from broker.catalog_world import ONE, THREE, TWO, World, play
from respool.broker.metadata.catalog import TRIES_MAX, Catalog
from respool.broker.metadata.topics import Topics
from respool.cluster import keys, strays
from respool.cluster.guarded_write import GuardedWrite
from respool.model.cluster import TopicImage
from respool.model.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from respool.model.ids import BrokerId, TopicId
from respool.model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from respool.model.settings import Settings
from respool.ports.metadata_store import GuardFailed, StoreUnavailable
from respool.sim.runtime.simulated_sources import SimRandomSource

# More than fit into one write.
MANY = 250


def test_replicas_are_spread_over_the_brokers_that_run(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node, _, _ = await world.start(ONE, TWO, THREE)
        topic = await node.create(partition_count=3, replication_factor=2)
        assert {one.leader for one in topic.partitions} == {ONE, TWO, THREE}
        assert all(one.isr == one.replicas for one in topic.partitions)
        assert [len(one.replicas) for one in topic.partitions] == [2, 2, 2]

        grown = await node.writes.grow("rides", partition_count=6)
        assert [len(one.replicas) for one in grown.partitions] == [2] * 6

    play(tmp_path, story)


def test_without_a_number_a_topic_has_the_default_number_of_replicas(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node, _ = await world.start(ONE, TWO, default_replication_factor=2)
        assert len((await node.create()).partitions[0].replicas) == 2
        with pytest.raises(InvalidReplicationFactor, match="there are 2 brokers"):
            await node.create("other", replication_factor=3)

    play(tmp_path, story)


@pytest.mark.parametrize("count", [1, MANY])
def test_of_two_who_create_a_topic_at_once_one_does_and_both_see_the_same(
    tmp_path: Path, count: int
) -> None:
    async def story(world: World) -> None:
        nodes = await world.start(ONE, TWO)
        results = await asyncio.gather(
            *(node.create(partition_count=count) for node in nodes), return_exceptions=True
        )
        created = [one for one in results if isinstance(one, TopicImage)]
        refused = [one for one in results if isinstance(one, TopicAlreadyExists)]
        assert (len(created), len(refused)) == (1, 1)
        for node in nodes:
            await node.catalog.read_view()
            assert node.topic() == created[0]

    play(tmp_path, story)


def test_of_two_who_grow_a_topic_at_once_the_second_decides_on_what_the_first_made(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        nodes = await world.start(ONE, TWO)
        await nodes[0].create()
        await nodes[1].catalog.read_view()
        results = await asyncio.gather(
            nodes[0].writes.grow("rides", partition_count=MANY),
            nodes[1].writes.grow("rides", partition_count=MANY + 1),
            return_exceptions=True,
        )
        # The smaller one first, or it comes too late.
        assert isinstance(results[1], TopicImage)
        assert isinstance(results[0], TopicImage | InvalidPartitions)
        await nodes[0].catalog.read_view()
        assert len(nodes[0].topic().partitions) == MANY + 1
        # Nothing is left over.
        assert len(await world.partition_keys()) == MANY + 1
        assert nodes[0].catalog.view().strays == {}

    play(tmp_path, story)


def test_who_deletes_what_another_has_deleted_is_told_so(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        nodes = await world.start(ONE, TWO)
        old = await nodes[0].create(partition_count=MANY)
        await nodes[1].catalog.read_view()
        await nodes[0].writes.delete("rides")
        assert await world.partition_keys() == []
        with pytest.raises(UnknownTopicOrPartition):
            await nodes[1].writes.delete("rides")

        await nodes[0].create()
        with pytest.raises(UnknownTopicId):
            await nodes[0].writes.delete("rides", topic_id=old.id)
        await nodes[0].writes.delete("rides", topic_id=nodes[0].topic().id)

    play(tmp_path, story)


def test_settings_are_made_of_those_the_topic_has_when_they_are_written(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        nodes = await world.start(ONE, TWO)
        await nodes[0].create()
        await nodes[1].catalog.read_view()

        def with_one_more(name: str) -> Callable[[TopicImage], dict[str, str]]:
            return lambda topic: {**topic.overrides, name: "1000"}

        await nodes[0].writes.change_overrides("rides", with_one_more("retention.ms"))
        await nodes[1].writes.change_overrides("rides", with_one_more("segment.ms"))
        assert nodes[1].topic().overrides == {"retention.ms": "1000", "segment.ms": "1000"}
        with pytest.raises(InvalidConfig):
            await nodes[1].writes.change_overrides("rides", with_one_more("no.such"))

    play(tmp_path, story)


def test_a_change_of_the_controller_does_not_keep_a_topic_from_being_made(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        (node,) = await world.start(ONE)
        await world.store.transact(puts={keys.CONTROLLER: keys.encode_controller(TWO)})
        assert (await node.create()).partitions[0].leader == ONE

    play(tmp_path, story)


def test_who_is_always_overtaken_gives_up_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        (node,) = await world.start(ONE)
        tries = []

        async def refuse(write: GuardedWrite) -> int:
            tries.append(write)
            raise GuardFailed("as the test wants it")

        monkeypatch.setattr(node.catalog, "write", refuse)
        with pytest.raises(RequestTimedOut):
            await node.create()
        assert len(tries) == TRIES_MAX
        assert node.catalog.creating == set()

    play(tmp_path, story)


@pytest.mark.parametrize("done", [0, 1, 2])
def test_a_creation_that_broke_off_is_no_topic_and_is_made_anew_when_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    async def story(world: World) -> None:
        (node,) = await world.start(ONE)
        write = node.catalog.write
        writes: list[GuardedWrite] = []

        async def break_off(one: GuardedWrite) -> int:
            writes.append(one)
            if len(writes) > done:
                raise StoreUnavailable("as the test wants it")
            return await write(one)

        with monkeypatch.context() as patch:
            patch.setattr(node.catalog, "write", break_off)
            with pytest.raises(StoreUnavailable):
                await node.create(partition_count=MANY)
        assert node.catalog.image.topics == {}

        assert len((await node.create(partition_count=MANY)).partitions) == MANY

    play(tmp_path, story)


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_creation_that_another_broker_took_for_broken_off_is_done_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """The controller collects what is there of it after some of its writes; some of that may be too late."""

    async def story(world: World) -> None:
        controller, node = await world.start(ONE, TWO)
        write = node.catalog.write
        count = 0
        garbage: list[GuardedWrite] = []

        async def collect_in_between(one: GuardedWrite) -> int:
            nonlocal count
            revision = await write(one)
            count += 1
            if count == after:
                garbage.extend(strays.collect(await controller.catalog.read_view()))
                assert garbage
                await controller.catalog.write(garbage[0])
            return revision

        monkeypatch.setattr(node.catalog, "write", collect_in_between)
        topic = await node.create(partition_count=MANY)
        for late in garbage[1:]:
            with pytest.raises(GuardFailed):
                await controller.catalog.write(late)

        await controller.catalog.read_view()
        assert controller.topic() == topic
        assert len(await world.partition_keys()) == MANY

    play(tmp_path, story)


def test_a_creation_the_store_did_not_confirm_is_seen_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        (node,) = await world.start(ONE)
        transact = world.store.transact

        async def lose_the_answer(**wish: Any) -> int:
            await transact(**wish)
            raise StoreUnavailable("as the test wants it")

        with monkeypatch.context() as patch:
            patch.setattr(world.store, "transact", lose_the_answer)
            with pytest.raises(StoreUnavailable):
                await node.create()
        with pytest.raises(TopicAlreadyExists):
            await node.create()
        assert len(node.topic().partitions) == 1

    play(tmp_path, story)


def test_validate_only_shows_the_topic_and_writes_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node, _ = await world.start(ONE, TWO)
        shown = await node.create(
            partition_count=MANY,
            replication_factor=2,
            overrides={"retention.ms": "1"},
            validate_only=True,
        )
        assert len(shown.partitions) == MANY
        assert shown.config.retention_ms == 1
        assert node.catalog.image.topics == {}
        assert await world.partition_keys() == []

        await node.create()
        grown = await node.writes.grow("rides", partition_count=3, validate_only=True)
        assert len(grown.partitions) == 3
        assert len(node.topic().partitions) == 1

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("assignment", "is_possible"),
    [({0: (TWO, ONE)}, True), ({0: (THREE,)}, False), ({0: (ONE, ONE)}, False)],
)
def test_replicas_assigned_by_hand_are_on_brokers_there_are(
    tmp_path: Path, assignment: dict[int, Sequence[int]], is_possible: bool
) -> None:
    async def story(world: World) -> None:
        node, _ = await world.start(ONE, TWO)
        wish: dict[str, Any] = {"partition_count": -1, "assignment": assignment}
        if is_possible:
            assert (await node.create(**wish)).partitions[0].replicas == (TWO, ONE)
        else:
            with pytest.raises(InvalidReplicaAssignment):
                await node.create(**wish)

    play(tmp_path, story)


def test_the_brokers_together_hold_as_many_replicas_as_each_of_them_may(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node, _ = await world.start(ONE, TWO, partitions_max=4)
        await node.create(partition_count=3, replication_factor=2)
        with pytest.raises(InvalidPartitions):
            await node.create("other", partition_count=2, replication_factor=2)
        with pytest.raises(InvalidPartitions):
            await node.create("other", partition_count=2**31 - 1)
        await node.create("other", partition_count=2, replication_factor=1)

    play(tmp_path, story)


def test_who_asks_for_no_number_of_replicas_gets_three_or_what_there_is(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node, _ = await world.start(ONE, TWO)
        image = await node.create(partition_count=1)
        assert set(image.partitions[0].replicas) == {ONE, TWO}

    play(tmp_path, story)


def test_first_brokers_that_start_at_once_agree_on_the_clusters_id(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        nodes = await world.start(ONE, TWO)
        ids = await asyncio.gather(
            *(node.catalog.cluster_id(f"new-{node.endpoint.id}") for node in nodes)
        )
        assert ids[0] == ids[1] in ("new-1", "new-2")
        assert await nodes[1].catalog.cluster_id("later") == ids[0]

    play(tmp_path, story)


def test_a_topic_is_waited_for_until_somebody_leads_it_or_the_time_is_up(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node, _ = await world.start(ONE, TWO)
        topic = await node.create(assignment={0: (TWO, ONE)})
        assert await node.catalog.wait_until_led(["rides"], timeout_ms=0)

        await world.store.transact(deletes=[keys.broker_key(TWO)])
        await node.catalog.read_view()
        assert not await node.catalog.wait_until_led(["rides"], timeout_ms=1)

        waiting = asyncio.ensure_future(node.catalog.wait_until_led(["rides"], timeout_ms=60_000))
        await asyncio.sleep(0)
        await world.store.transact(
            puts={keys.partition_key(TopicId(topic.id), 0): _led_by(topic, ONE)}
        )
        await node.catalog.read_view()
        assert await waiting
        assert await node.catalog.wait_until_led(["nobody"], timeout_ms=0)

    play(tmp_path, story)


def _led_by(topic: TopicImage, leader: BrokerId) -> bytes:
    (partition,) = topic.partitions
    return keys.encode_partition(
        type(partition)(
            replicas=partition.replicas,
            isr=(leader,),
            leader=leader,
            leader_epoch=partition.leader_epoch,
        )
    )


@pytest.mark.parametrize(
    ("name", "brokers", "replicas", "min_isr"),
    [
        (CONSUMER_OFFSETS, 1, 1, 1),
        (CONSUMER_OFFSETS, 2, 2, 1),
        (CONSUMER_OFFSETS, 4, 3, 1),
        (TRANSACTION_STATE, 1, 1, 1),
        (TRANSACTION_STATE, 2, 2, 2),
        (TRANSACTION_STATE, 4, 2, 2),
    ],
)
def test_the_brokers_own_topics_have_as_many_replicas_as_set_where_there_are_so_many_brokers(
    tmp_path: Path, name: str, brokers: int, replicas: int, min_isr: int
) -> None:
    async def story(world: World) -> None:
        node, *_ = await world.start(
            *map(BrokerId, range(1, brokers + 1)), transaction_state_topic_replication_factor=2
        )
        topics = Topics(catalog=node.catalog, hosted_replicas=NoHoldings())
        topic = await topics.create_internal(name, partition_count=3)
        for image in topic.partitions:
            assert len(image.replicas) == replicas
            assert image.min_isr(topic.config.min_insync_replicas) == min_isr

    play(tmp_path, story)


class NoHoldings:
    """No partitions follow."""

    async def reconcile(self, names: object) -> None:
        pass


def test_a_broker_alone_collects_what_is_left_of_a_broken_off_creation_when_it_starts(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        (node,) = await world.start(ONE)
        await node.create(partition_count=2)
        stray = keys.partition_key(TopicId(UUID(int=5)), 0)
        left = keys.encode_partition(node.topic().partitions[0])
        await world.store.transact(puts={stray: left})
        alone = Catalog(
            store=world.store,
            settings=Settings.from_flat(broker_id=ONE),
            rng=SimRandomSource(1),
            is_alone=True,
        )
        await alone.load(cluster_id="c", me=node.endpoint)
        assert len(await world.partition_keys()) == 2
        assert len(alone.topic("rides").partitions) == 2

    play(tmp_path, story)
