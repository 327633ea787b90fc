"""What a broker holds is what the cluster's image gives it, whoever changed the image."""

import asyncio
from dataclasses import replace
from typing import Any, NoReturn
from uuid import uuid4

import pytest

from broker.running_broker import RunningBroker
from respool.broker.membership.hosted_replicas import STARTED_AT_ONCE
from respool.broker.metadata import topic_changes
from respool.broker.metadata.topic_changes import NewTopic
from respool.broker.partitions.partition import Partition
from respool.cluster import keys
from respool.model.cluster import PartitionImage, TopicImage
from respool.model.errors import (
    DiskFailed,
    DiskFull,
    NotLeader,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from respool.model.ids import BrokerId, LeaderEpoch, TopicId
from respool.ports.metadata_store import StoreUnavailable

ME, OTHER = BrokerId(1), BrokerId(2)


def change(broker: RunningBroker, puts: dict[str, bytes], deletes: tuple[str, ...] = ()) -> None:
    """Another broker writes, and this one hears of it."""

    async def write() -> None:
        await broker.store.transact(puts=puts, deletes=deletes)
        await broker.broker.catalog._feed.load()
        await broker.broker.hosted_replicas.reconcile(["rides"])

    broker.run(write())


def on(*replicas: BrokerId) -> bytes:
    image = PartitionImage(
        replicas=replicas, isr=replicas, leader=replicas[0], leader_epoch=LeaderEpoch(0)
    )
    return keys.encode_partition(image)


def record(topic_id: TopicId, partitions: int, **overrides: str) -> bytes:
    return keys.encode_topic(
        keys.TopicRecord(
            id=topic_id,
            overrides={name.replace("_", "."): value for name, value in overrides.items()},
            partition_count=partitions,
        )
    )


def held(broker: RunningBroker) -> list[int]:
    return [one.name.partition for one in broker.broker.partitions.of_topic("rides")]


@pytest.fixture
def rides(running_broker: RunningBroker) -> RunningBroker:
    running_broker.create_topic("rides", partitions=2)
    return running_broker


def topic_id(broker: RunningBroker) -> TopicId:
    return broker.broker.image.topics["rides"].id


def test_a_topic_that_another_broker_made_is_opened_where_it_is_ours(
    running_broker: RunningBroker,
) -> None:
    new_id = TopicId(running_broker.broker.world.rng.uuid())
    puts = {
        keys.topic_key("rides"): record(new_id, 3),
        keys.partition_key(new_id, 0): on(ME),
        keys.partition_key(new_id, 1): on(OTHER),
        keys.partition_key(new_id, 2): on(OTHER, ME),
    }
    change(running_broker, puts)

    assert held(running_broker) == [0, 2]
    assert running_broker.broker.image.topics["rides"].partitions[1].leader == OTHER


def test_a_topic_is_not_seen_before_all_its_partitions_are(running_broker: RunningBroker) -> None:
    new_id = TopicId(running_broker.broker.world.rng.uuid())
    change(
        running_broker,
        {keys.topic_key("rides"): record(new_id, 2), keys.partition_key(new_id, 0): on(ME)},
    )
    assert "rides" not in running_broker.broker.image.topics
    assert held(running_broker) == []

    change(running_broker, {keys.partition_key(new_id, 1): on(ME)})

    assert held(running_broker) == [0, 1]


def test_a_partition_that_moved_away_is_let_go_of_and_its_files_are_deleted(
    rides: RunningBroker,
) -> None:
    rides.produce("rides", 0)
    change(rides, {keys.partition_key(topic_id(rides), 0): on(OTHER)})

    assert held(rides) == [1]
    assert "rides-0" not in rides.disk.list_folder("")


def test_a_topic_that_another_broker_deleted_and_made_anew_begins_from_nothing(
    rides: RunningBroker,
) -> None:
    rides.produce("rides", 0, values=(b"old",))
    old, new = topic_id(rides), TopicId(rides.broker.world.rng.uuid())
    puts = {keys.topic_key("rides"): record(new, 1), keys.partition_key(new, 0): on(ME)}
    gone = (keys.partition_key(old, 0), keys.partition_key(old, 1))
    change(rides, puts, gone)

    assert held(rides) == [0]
    assert rides.broker.partitions.find("rides", 0).topic_id == new
    assert rides.broker.partitions.find("rides", 0).log.log_end == 0


def test_settings_that_another_broker_changed_are_taken_over(rides: RunningBroker) -> None:
    change(rides, {keys.topic_key("rides"): record(topic_id(rides), 2, retention_ms="1234")})

    for number in (0, 1):
        assert rides.broker.partitions.find("rides", number).config.retention_ms == 1234


def test_what_is_on_another_broker_is_not_unknown_here(running_broker: RunningBroker) -> None:
    new_id = TopicId(running_broker.broker.world.rng.uuid())
    puts = {keys.topic_key("rides"): record(new_id, 1), keys.partition_key(new_id, 0): on(OTHER)}
    change(running_broker, puts)

    with pytest.raises(NotLeader):
        running_broker.broker.partitions.find("rides", 0)
    with pytest.raises(UnknownTopicOrPartition):
        running_broker.broker.partitions.find("rides", 1)


def test_settling_again_changes_nothing(rides: RunningBroker) -> None:
    before = rides.broker.partitions.of_topic("rides")
    change(rides, {})
    assert rides.broker.partitions.of_topic("rides") == before


def test_after_a_restart_only_our_own_partitions_are_opened(rides: RunningBroker) -> None:
    image = rides.broker.image.topics["rides"].partitions[1]
    elsewhere = replace(image, replicas=(OTHER,), isr=(OTHER,), leader=OTHER)
    key = keys.partition_key(topic_id(rides), 1)
    rides.run(rides.store.transact(puts={key: keys.encode_partition(elsewhere)}))
    rides.restart()

    assert held(rides) == [0]


def test_a_topic_whose_making_was_not_confirmed_is_there_when_it_is_asked_for_again(
    running_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has written it; its answer was lost."""
    transact = running_broker.store.transact

    async def lose_the_answer(**wish: Any) -> int:
        await transact(**wish)
        raise StoreUnavailable("as the test wants it")

    topics = running_broker.broker.topics
    with monkeypatch.context() as patch:
        patch.setattr(running_broker.store, "transact", lose_the_answer)
        with pytest.raises(RequestTimedOut):
            running_broker.run(topics.create("rides", partition_count=2))
        assert not running_broker.broker.image.topics
        with pytest.raises(RequestTimedOut):
            running_broker.run(topics.create_internal("__consumer_offsets", partition_count=2))

    with pytest.raises(TopicAlreadyExists):
        running_broker.run(topics.create("rides", partition_count=2))
    running_broker.run(running_broker.broker.groups.runtimes.ensure_topic())

    assert held(running_broker) == [0, 1]
    running_broker.produce("rides", 1)
    assert len(list(running_broker.broker.groups.runtimes)) == 2


def test_a_topic_whose_deletion_was_not_confirmed_is_gone_with_its_partitions_at_the_next_change(
    rides: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact = rides.store.transact

    async def lose_the_answer(**wish: Any) -> int:
        await transact(**wish)
        raise StoreUnavailable("as the test wants it")

    with monkeypatch.context() as patch:
        patch.setattr(rides.store, "transact", lose_the_answer)
        with pytest.raises(RequestTimedOut):
            rides.run(rides.broker.topics.delete("rides"))

    rides.create_topic("other")

    assert list(rides.broker.image.topics) == ["other"]
    assert held(rides) == []


def test_of_topics_made_together_those_before_the_store_went_away_are_there(
    running_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_changes, "TOPICS_AT_ONCE", 1)
    transact = running_broker.store.transact
    wanted = [NewTopic(name=name, partition_count=2) for name in ("a", "rides", "b")]

    async def fail_for_rides(**wish: Any) -> int:
        if any(key.endswith("/rides") for key in wish["puts"]):
            await transact(**wish)
            raise StoreUnavailable("as the test wants it")
        return await transact(**wish)

    topics = running_broker.broker.topics
    with monkeypatch.context() as patch:
        patch.setattr(running_broker.store, "transact", fail_for_rides)
        made = running_broker.run(topics.create_each(wanted))

    assert isinstance(made["a"], TopicImage)
    running_broker.produce("a", 1)
    # The store was not asked for the last one any more.
    for name in ("rides", "b"):
        assert isinstance(made[name], RequestTimedOut)
    # At the next change it is seen that this one was made as well.
    running_broker.create_topic("other")
    assert held(running_broker) == [0, 1]
    running_broker.produce("rides", 1)


def test_a_store_that_is_away_is_waited_for_once_and_not_for_each_topic(
    running_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def be_away(*_: object, **__: object) -> NoReturn:
        asked.append("")
        raise StoreUnavailable("as the test wants it")

    wanted = [NewTopic(name=f"topic-{number}") for number in range(20)]
    with monkeypatch.context() as patch:
        patch.setattr(running_broker.store, "transact", be_away)
        patch.setattr(running_broker.store, "snapshot", be_away)
        made = running_broker.run(running_broker.broker.topics.create_each(wanted))
    assert [*map(type, made.values())] == [RequestTimedOut] * 20
    assert len(asked) == 1


def test_topics_deleted_together_go_each_on_its_own(rides: RunningBroker) -> None:
    fares = rides.create_topic("fares", partitions=2)
    ids = {"rides": rides.broker.image.topics["rides"].id, "fares": TopicId(uuid4()), "none": None}
    gone = rides.run(rides.broker.topics.delete_each(ids))

    assert gone["rides"] is None
    assert isinstance(gone["fares"], UnknownTopicId)
    assert isinstance(gone["none"], UnknownTopicOrPartition)
    assert rides.broker.image.topics == {"fares": fares}
    assert held(rides) == []
    rides.produce("fares", 1)


def test_each_topic_is_deleted_from_the_disk_after_its_own_delay(
    running_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: dict[str, int] = {}

    def note(paths: list[str], *, delay_ms: int) -> None:
        delays.update({path.partition("-")[0]: delay_ms for path in paths})

    for name, delay in (("soon", "0"), ("late", "86400000")):
        running_broker.create_topic(name, file_delete_delay_ms=delay)
        running_broker.produce(name)
    monkeypatch.setattr(running_broker.broker.deferred_deletion, "delete_later", note)
    running_broker.run(running_broker.broker.topics.delete_each({"soon": None, "late": None}))
    assert delays == {"soon": 0, "late": 86_400_000}


def test_a_topic_whose_making_nobody_waited_for_is_there_at_the_next_change(
    running_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact = running_broker.store.transact

    async def never_answer(**wish: Any) -> int:
        await transact(**wish)
        await asyncio.Event().wait()
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(running_broker.store, "transact", never_answer)
        creating = running_broker.start(running_broker.broker.topics.create("rides"))
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            running_broker.finish(creating)
    assert not running_broker.broker.image.topics

    running_broker.create_topic("other")

    assert set(running_broker.broker.image.topics) == {"rides", "other"}
    assert held(running_broker) == [0]


def test_what_could_not_be_opened_on_a_full_disk_is_opened_when_there_is_room(
    running_broker: RunningBroker,
) -> None:
    faults = running_broker.disk.faults
    running_broker.create_topic("rides", partitions=2)
    before = running_broker.broker.partitions.of_topic("rides")
    for one in before:
        running_broker.produce("rides", one.name.partition)

    async def abandon() -> None:
        for one in before:
            one.abandon_log(DiskFull("as the test wants it"))

    running_broker.run(abandon())
    faults.capacity_bytes = 0
    running_broker.run(running_broker.broker.hosted_replicas.open_again())
    assert not any(one.is_online for one in running_broker.broker.partitions.of_topic("rides"))

    faults.capacity_bytes = None
    running_broker.run(running_broker.broker.hosted_replicas.open_again())

    after = running_broker.broker.partitions.of_topic("rides")
    assert [one.is_leading for one in after] == [True, True]
    assert [one.is_detached for one in before] == [True, True]


def test_what_is_given_up_while_others_are_settled_is_opened_again_too(
    rides: RunningBroker,
) -> None:
    """It was dropped with those that had been given up before, and then opened by nobody."""
    rides.create_topic("fares")
    hosted_replicas, partitions = rides.broker.hosted_replicas, rides.broker.partitions

    async def story() -> None:
        partitions.find("rides", 0).abandon_log(DiskFull("as the test wants it"))
        async with hosted_replicas._reconciling:
            opening = asyncio.create_task(hosted_replicas.open_again())
            await asyncio.sleep(0)
            partitions.find("fares", 0).abandon_log(DiskFull("as the test wants it"))
        await opening

    rides.run(story())
    assert partitions.is_online("rides", 0)
    assert partitions.is_online("fares", 0)


def test_what_is_offline_for_a_broken_disk_stays_so(rides: RunningBroker) -> None:
    broken = rides.broker.partitions.find("rides", 0)
    broken.go_offline(DiskFailed("it does not turn"))
    rides.run(rides.broker.hosted_replicas.open_again())
    assert rides.broker.partitions.find("rides", 0) is broken


def test_other_requests_are_served_while_a_topic_of_many_partitions_is_created(
    running_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5,000 partitions in one request started 5,000 roles in one turn of the loop, and blocked it for half a second."""
    broker = running_broker.broker
    started = 0
    most_between_turns = 0
    take_role = broker.roles.take_role

    async def counted(partition: Partition) -> None:
        nonlocal started
        started += 1
        await take_role(partition)

    async def watch() -> None:
        nonlocal started, most_between_turns
        while True:
            most_between_turns, started = max(most_between_turns, started), 0
            await asyncio.sleep(0)

    async def create() -> None:
        watching = asyncio.ensure_future(watch())
        await broker.topics.create("rides", partition_count=4 * STARTED_AT_ONCE)
        watching.cancel()

    monkeypatch.setattr(broker.roles, "take_role", counted)
    running_broker.run(create())
    assert 0 < most_between_turns <= STARTED_AT_ONCE
    assert all(one.is_leading for one in broker.partitions.of_topic("rides"))
