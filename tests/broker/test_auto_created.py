"""An auto-created topic whose first message is too large is deleted, unless it is used; and no other batch is lost."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from broker.cluster_world import ONE, Cluster, plays
from broker.running_broker import LATEST, RunningBroker, StartBroker
from respool.broker import auto_created
from respool.model.ids import TopicId
from respool.ports.metadata_store import StoreUnavailable
from respool.records.build import NewRecord, build_batch
from respool.wire.api_table import Api

TOPIC = "fares"
OK, UNKNOWN_TOPIC, NOT_LEADER, TOO_LARGE, TOPIC_EXISTS = 0, 3, 6, 10, 36
MESSAGE_BYTES_MAX = 2_000
SMALL, LARGE = b"v", b"v" * 2 * MESSAGE_BYTES_MAX


def metadata(*names: str) -> dict[str, Any]:
    return {
        "topics": [{"name": name} for name in names],
        "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def batches(*values: bytes, topic: str = TOPIC, acks: int = -1) -> dict[str, Any]:
    """A Produce request with a batch for each partition, from 0 on."""
    data = [
        {"index": number, "records": build_batch([NewRecord(value=value, timestamp_ms=1)])}
        for number, value in enumerate(values)
    ]
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": 1000,
        "topic_data": [{"name": topic, "partition_data": data}],
    }


def codes(reply: Any) -> list[int]:
    (topic,) = reply.responses
    return [one.error_code for one in topic.partition_responses]


def produce(broker: RunningBroker, *values: bytes, acks: int = -1) -> list[int]:
    return codes(broker.ask(Api.PRODUCE, 9, **batches(*values, acks=acks)))


def topics(broker: RunningBroker) -> set[str]:
    return set(broker.broker.image.topics)


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return with_new_topic(start_broker)


def with_new_topic(start_broker: StartBroker, **settings: str) -> RunningBroker:
    """Start a broker, and let a client ask for a topic that does not exist."""
    limit = {"max.message.bytes": str(MESSAGE_BYTES_MAX)}
    broker = start_broker(num_partitions=2, topic=limit | settings)
    broker.ask(Api.METADATA, 9, **metadata(TOPIC))
    assert topics(broker) == {TOPIC}
    return broker


class HeldStore:
    """Holds the store's next write until the test lets it go, or fails it."""

    def __init__(self, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self._transact = broker.store.transact
        self._open = asyncio.Event()
        self.error: Exception | None = None
        self.is_written_first = True
        monkeypatch.setattr(broker.store, "transact", self._held)

    async def _held(self, **changes: Any) -> Any:
        await self._open.wait()
        error, self.error = self.error, None
        if error is None:
            return await self._transact(**changes)
        if self.is_written_first:
            await self._transact(**changes)
        raise error

    def let_go(self) -> None:
        self._open.set()


@pytest.mark.parametrize("acks", [1, -1])
def test_the_topic_is_gone_when_the_client_sees_that_its_first_message_is_too_large(
    broker: RunningBroker, acks: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "respool.broker.admin_log")
    assert produce(broker, LARGE, acks=acks) == [TOO_LARGE]
    assert topics(broker) == set()
    assert not broker.broker.partitions.of_topic(TOPIC)
    assert f"deleted topic '{TOPIC}': auto-created" in caplog.text


def test_the_next_message_creates_it_again(broker: RunningBroker) -> None:
    produce(broker, LARGE)
    assert produce(broker, SMALL) == [UNKNOWN_TOPIC]
    broker.ask(Api.METADATA, 9, **metadata(TOPIC))
    assert produce(broker, SMALL) == [OK]
    assert produce(broker, LARGE) == [TOO_LARGE]
    assert topics(broker) == {TOPIC}


def test_a_topic_with_a_message_stays(broker: RunningBroker) -> None:
    assert produce(broker, SMALL) == [OK]
    assert produce(broker, LARGE) == [TOO_LARGE]
    assert broker.offset(TOPIC, at=LATEST) == 1


def test_a_topic_whose_other_partition_got_a_message_in_the_same_request_stays(
    broker: RunningBroker,
) -> None:
    assert produce(broker, LARGE, SMALL) == [TOO_LARGE, OK]
    assert broker.offset(TOPIC, 1, at=LATEST) == 1


def test_a_topic_that_someone_created_on_purpose_stays(broker: RunningBroker) -> None:
    broker.create_topic("rides")
    assert codes(broker.ask(Api.PRODUCE, 9, **batches(LARGE, topic="rides"))) == [TOO_LARGE]
    assert "rides" in topics(broker)


def test_a_topic_that_a_client_tried_to_create_stays(broker: RunningBroker) -> None:
    assert create(broker) == TOPIC_EXISTS
    assert produce(broker, LARGE) == [TOO_LARGE]
    assert topics(broker) == {TOPIC}


def test_a_topic_that_a_client_tries_to_create_while_it_is_auto_created_stays(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker(num_partitions=2, topic={"max.message.bytes": str(MESSAGE_BYTES_MAX)})
    store = HeldStore(broker, monkeypatch)
    found = broker.start(broker.answer(Api.METADATA, 9, **metadata(TOPIC)))
    refused = broker.start(broker.answer(Api.CREATE_TOPICS, 7, **new_topic()))
    store.let_go()
    assert broker.finish(found).topics[0].error_code == OK
    assert broker.finish(refused).topics[0].error_code == TOPIC_EXISTS
    assert produce(broker, LARGE) == [TOO_LARGE]
    assert topics(broker) == {TOPIC}


def test_a_topic_is_unused_before_its_partitions_lead(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer may read the first partition before the last one is open."""
    broker = start_broker(num_partitions=2)
    hosted = broker.broker.hosted_replicas
    reconcile, unused = hosted.reconcile, []

    async def observed(names: Any) -> None:
        unused.append(len(broker.broker.auto_created))
        await reconcile(names)

    monkeypatch.setattr(hosted, "reconcile", observed)
    broker.ask(Api.METADATA, 9, **metadata(TOPIC))
    assert unused == [1]


def test_it_stays_also_while_another_topic_of_that_request_is_created(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker(num_partitions=2, topic={"max.message.bytes": str(MESSAGE_BYTES_MAX)})
    auto_creation = HeldStore(broker, monkeypatch)
    found = broker.start(broker.answer(Api.METADATA, 9, **metadata(TOPIC)))
    rides = new_topic()["topics"][0] | {"name": "rides"}
    both = new_topic() | {"topics": [*new_topic()["topics"], rides]}
    created = broker.start(broker.answer(Api.CREATE_TOPICS, 7, **both))
    creation = HeldStore(broker, monkeypatch)
    auto_creation.let_go()
    broker.finish(found)
    refused = broker.start(broker.answer(Api.PRODUCE, 9, **batches(LARGE)))
    assert not created.done()
    creation.let_go()
    assert [one.error_code for one in broker.finish(created).topics] == [TOPIC_EXISTS, OK]
    assert codes(broker.finish(refused)) == [TOO_LARGE]
    assert topics(broker) == {TOPIC, "rides"}
    broker.ask(Api.METADATA, 9, **metadata("late"))
    assert len(broker.broker.auto_created) == 1


class CountedId(UUID):
    """Counts the comparisons with other ids."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedId.compared += 1
        return super().__eq__(other)

    __hash__ = UUID.__hash__


def test_a_fetch_compares_its_topics_with_no_unused_one(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fetch asks for each of its topics; it once compared each with all unused topics."""
    monkeypatch.setattr(CountedId, "compared", 0)
    auto_created, topic = broker.broker.auto_created, broker.broker.image.topics[TOPIC]
    for number in range(100):
        name = f"unused-{number}"
        auto_created.on_created(replace(topic, name=name, id=TopicId(CountedId(int=number))))
    auto_created.on_used(UUID(int=number) for number in range(1_000, 1_100))
    assert CountedId.compared == 0
    auto_created.on_used([*(UUID(int=number) for number in range(100)), topic.id])
    assert CountedId.compared == 100
    assert len(auto_created) == 0


def test_without_unused_topics_the_used_ones_are_not_looked_at(broker: RunningBroker) -> None:
    broker.broker.auto_created.on_used([TOPIC])
    used = iter([TOPIC, "rides"])
    broker.broker.auto_created.on_used(used)
    assert list(used) == [TOPIC, "rides"]


def test_a_topic_that_a_consumer_has_read_stays(broker: RunningBroker) -> None:
    """It read the end, and waits for more. In another topic of this name it would begin at the end again."""
    assert broker.offset(TOPIC, at=LATEST) == 0
    assert produce(broker, LARGE) == [TOO_LARGE]
    assert topics(broker) == {TOPIC}


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_that_is_fetched_stays(broker: RunningBroker, version: int) -> None:
    fetch(broker, version)
    assert produce(broker, LARGE) == [TOO_LARGE]
    assert topics(broker) == {TOPIC}


def test_a_topic_that_was_changed_stays(broker: RunningBroker) -> None:
    grow = {"name": TOPIC, "count": 3, "assignments": None}
    broker.ask(Api.CREATE_PARTITIONS, 3, topics=[grow], timeout=1000, validate_only=False)
    assert produce(broker, LARGE) == [TOO_LARGE]
    assert topics(broker) == {TOPIC}


def test_without_a_reply_the_topic_is_deleted_too(broker: RunningBroker) -> None:
    with pytest.raises(Exception, match="acks=0"):
        broker.ask(Api.PRODUCE, 9, **batches(LARGE, acks=0))
    broker.run(asyncio.sleep(0))
    assert topics(broker) == set()


def test_a_batch_that_races_with_the_deletion_is_refused_and_not_lost(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = HeldStore(broker, monkeypatch)
    refused = broker.start(broker.answer(Api.PRODUCE, 9, **batches(LARGE)))
    assert not refused.done()
    # The topic still exists: the other producer gets an error that it retries.
    assert topics(broker) == {TOPIC}
    assert produce(broker, SMALL, SMALL) == [NOT_LEADER, NOT_LEADER]
    assert produce(broker, SMALL, acks=1) == [NOT_LEADER]
    store.let_go()
    assert codes(broker.finish(refused)) == [TOO_LARGE]
    assert topics(broker) == set()


def test_a_batch_admitted_before_the_deletion_and_appended_after_it_is_refused(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compressed in another thread, as its topic wants it."""
    broker = with_new_topic(start_broker, **{"compression.type": "gzip"})
    partition = broker.broker.partitions.find(TOPIC, 0)
    store = HeldStore(broker, monkeypatch)
    broker.offload.hold()
    admitted = broker.start(broker.answer(Api.PRODUCE, 9, **batches(SMALL)))
    assert broker.offload.held == 1
    refused = broker.start(broker.answer(Api.PRODUCE, 9, **batches(LARGE)))
    broker.offload.release()
    assert codes(broker.finish(admitted)) == [NOT_LEADER]
    assert partition.log.log_end == 0
    store.let_go()
    assert codes(broker.finish(refused)) == [TOO_LARGE]
    assert topics(broker) == set()


def test_a_consumer_that_asks_during_the_deletion_learns_no_offset_of_the_old_topic(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = HeldStore(broker, monkeypatch)
    refused = broker.start(broker.answer(Api.PRODUCE, 9, **batches(LARGE)))
    assert broker.offset(TOPIC, at=LATEST) == -1
    store.let_go()
    broker.finish(refused)


def test_a_client_that_creates_the_topic_during_the_deletion_gets_a_new_one(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = broker.broker.image.topics[TOPIC].id
    store = HeldStore(broker, monkeypatch)
    refused = broker.start(broker.answer(Api.PRODUCE, 9, **batches(LARGE)))
    created = broker.start(broker.answer(Api.CREATE_TOPICS, 7, **new_topic()))
    assert not created.done()
    store.let_go()
    broker.finish(refused)
    assert broker.finish(created).topics[0].error_code == OK
    assert broker.broker.image.topics[TOPIC].id != old
    assert produce(broker, SMALL) == [OK]


@pytest.mark.parametrize("is_written", [True, False])
def test_a_store_that_does_not_answer_delays_no_reply_and_loses_no_batch(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    """It is unknown whether the topic is deleted, so nobody leads it until the store can be read."""
    readable = asyncio.Event()
    read = broker.broker.catalog.refresh

    async def refresh() -> None:
        await readable.wait()
        await read()

    monkeypatch.setattr(broker.broker.catalog, "refresh", refresh)
    store = HeldStore(broker, monkeypatch)
    store.error, store.is_written_first = StoreUnavailable("as the test wants it"), is_written
    store.let_go()
    assert produce(broker, LARGE) == [TOO_LARGE]
    assert produce(broker, SMALL) == [NOT_LEADER]
    readable.set()
    broker.run(pause())
    assert produce(broker, SMALL) == [UNKNOWN_TOPIC if is_written else OK]


def test_a_topic_of_an_earlier_run_stays(broker: RunningBroker) -> None:
    broker.restart()
    assert produce(broker, LARGE) == [TOO_LARGE]
    assert topics(broker) == {TOPIC}


def test_so_many_unused_topics_are_remembered(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_created, "UNUSED_MAX", 2)
    broker.ask(Api.METADATA, 9, **metadata("a", "b"))
    assert len(broker.broker.auto_created) == 2
    produce(broker, LARGE)
    assert topics(broker) == {TOPIC, "a", "b"}


@plays(brokers=2, num_partitions=1, topic={"max.message.bytes": str(MESSAGE_BYTES_MAX)})
async def test_in_a_cluster_it_stays(cluster: Cluster) -> None:
    """Another broker may have told clients of it."""
    await cluster[ONE].ask(Api.METADATA, 9, **metadata(TOPIC))
    number = cluster.image(0, TOPIC).leader
    assert number is not None
    leader = cluster[number]
    await cluster.until(lambda: leader.partition(0, TOPIC).is_leading)
    assert codes(await leader.ask(Api.PRODUCE, 9, **batches(LARGE))) == [TOO_LARGE]
    await cluster.pass_time(1_000)
    assert TOPIC in cluster[ONE].broker.image.topics


def new_topic() -> dict[str, Any]:
    topic = {
        "name": TOPIC,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    return {"topics": [topic], "timeout": 1000, "validate_only": False}


def create(broker: RunningBroker) -> int:
    return int(broker.ask(Api.CREATE_TOPICS, 7, **new_topic()).topics[0].error_code)


def fetch(broker: RunningBroker, version: int) -> None:
    topic_id = broker.broker.image.topics[TOPIC].id
    one = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }
    broker.ask(
        Api.FETCH,
        version,
        replica_id=-1,
        max_wait=0,
        min_bytes=0,
        max_bytes=1000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": TOPIC, "topic_id": topic_id, "partitions": [one]}],
        forgotten_topics_data=[],
        rack_id="",
    )


async def pause() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
