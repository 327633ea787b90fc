"""WriteTxnMarkers: an operator ends a transaction that hangs."""

import asyncio
import gc
from typing import Any

import pytest

from broker.group_client import begin_to_load as begin_to_load_groups
from broker.running_broker import LATEST, RunningBroker, StartBroker
from broker.transaction_client import (
    INVALID_PRODUCER_EPOCH,
    INVALID_REQUEST,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER,
    OFFSETS_TOPIC,
    REQUEST_TIMED_OUT,
    STATE_TOPIC,
    STORAGE_ERROR,
    TRANSACTION_COORDINATOR_FENCED,
    UNKNOWN_TOPIC,
    Producer,
    fetch_offsets,
    has_open_transaction,
    markers,
    read,
    release,
    restart,
    start_with_transactions,
    state_of,
)
from respool.broker.partitions.partition import Partition
from respool.model.errors import NotEnoughReplicas
from respool.model.ids import Offset, TopicPartition
from respool.records.batch import RecordBatch, read_header
from respool.records.build import NewRecord, build_batch
from respool.records.markers import EndTransactionMarker
from respool.wire.api_table import Api

HANGING_ID, HANGING_EPOCH = 4_000, 3
either_way = pytest.mark.parametrize("commit", [False, True])


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_with_transactions(start_broker)


def marker(
    *names: tuple[str, int],
    producer_id: int = HANGING_ID,
    epoch: int = HANGING_EPOCH,
    coordinator_epoch: int = 0,
    commit: bool = False,
) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for topic, number in names:
        topics.setdefault(topic, []).append(number)
    return {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "coordinator_epoch": coordinator_epoch,
        "transaction_result": commit,
        "topics": [{"name": name, "partition_indexes": all_} for name, all_ in topics.items()],
    }


def ask(
    broker: RunningBroker, *asked: dict[str, Any], version: int = 1
) -> list[dict[tuple[str, int], int]]:
    reply = broker.ask(Api.WRITE_TXN_MARKERS, version, markers=asked)
    assert [one.producer_id for one in reply.markers] == [one["producer_id"] for one in asked]
    return [
        {
            (topic.name, one.partition_index): int(one.error_code)
            for topic in each.topics
            for one in topic.partitions
        }
        for each in reply.markers
    ]


def let_hang(broker: RunningBroker, topic: str = "rides", number: int = 0) -> None:
    """As a broker before KIP-890 could leave it: the coordinator knows nothing of the transaction."""
    data = build_batch(
        [NewRecord(value=b"hanging", timestamp_ms=broker.clock.now_ms())],
        producer_id=HANGING_ID,
        producer_epoch=HANGING_EPOCH,
        base_sequence=0,
        is_transactional=True,
    )

    async def append() -> None:
        partition = broker.broker.partitions.find(topic, number)
        batch = RecordBatch(read_header(data), data)
        guard = partition.log.begin_verification(batch.header)
        partition.append(batch, now_ms=broker.clock.now_ms(), guard=guard)
        await broker.broker.flusher.drain()

    broker.run(append())


@either_way
def test_a_hanging_transaction_is_ended_as_the_operator_says(
    broker: RunningBroker, commit: bool
) -> None:
    let_hang(broker)
    broker.produce("rides", values=(b"later",))
    assert read(broker, "rides") == []

    assert ask(broker, marker(("rides", 0), commit=commit)) == [{("rides", 0): 0}]

    assert not has_open_transaction(broker, "rides")
    assert read(broker, "rides") == ([b"hanging", b"later"] if commit else [b"later"])


def test_the_end_is_answered_when_it_is_committed(broker: RunningBroker) -> None:
    let_hang(broker)
    broker.offload.hold()

    asking = broker.start(broker.answer(Api.WRITE_TXN_MARKERS, 1, markers=[marker(("rides", 0))]))
    assert not asking.done()
    release(broker)

    assert broker.finish(asking).markers[0].topics[0].partitions[0].error_code == 0


def test_each_partition_and_each_producer_is_answered(broker: RunningBroker) -> None:
    let_hang(broker)
    broker.take_offline("fares", 1)

    codes = ask(
        broker,
        marker(("rides", 0), ("rides", 9), ("nowhere", 0), ("fares", 1)),
        marker(("rides", 1), producer_id=17),
    )

    assert codes == [
        {
            ("rides", 0): 0,
            ("rides", 9): UNKNOWN_TOPIC,
            ("nowhere", 0): UNKNOWN_TOPIC,
            ("fares", 1): STORAGE_ERROR,
        },
        {("rides", 1): 0},
    ]
    assert not has_open_transaction(broker, "rides")


def test_an_older_epoch_of_producer_or_coordinator_is_fenced(broker: RunningBroker) -> None:
    let_hang(broker)
    assert ask(broker, marker(("rides", 0), epoch=HANGING_EPOCH - 1)) == [
        {("rides", 0): INVALID_PRODUCER_EPOCH}
    ]
    assert has_open_transaction(broker, "rides")

    ask(broker, marker(("rides", 0), coordinator_epoch=5))
    end = broker.offset("rides", at=LATEST)
    assert ask(broker, marker(("rides", 0), coordinator_epoch=4)) == [
        {("rides", 0): TRANSACTION_COORDINATOR_FENCED}
    ]
    assert broker.offset("rides", at=LATEST) == end


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, -1), (-1, 0), (HANGING_ID, -1)])
def test_the_end_of_nobodys_transaction_is_refused(
    broker: RunningBroker, producer_id: int, epoch: int
) -> None:
    codes = ask(broker, marker(("rides", 0), producer_id=producer_id, epoch=epoch))

    assert codes == [{("rides", 0): INVALID_REQUEST}]
    assert broker.offset("rides", at=LATEST) == 0


@either_way
def test_offsets_of_a_hanging_transaction_count_as_the_operator_says(
    broker: RunningBroker, commit: bool
) -> None:
    producer = Producer(broker)
    producer.write_offsets("drivers", ("rides", 0, 7))
    number = broker.broker.groups.runtimes.partition_of("drivers")
    wanted = marker(
        (OFFSETS_TOPIC, number), producer_id=producer.id, epoch=producer.epoch, commit=commit
    )

    assert ask(broker, wanted) == [{(OFFSETS_TOPIC, number): 0}]

    expected = (0, 7 if commit else -1)
    assert fetch_offsets(broker, "drivers", "rides", stable=True) == expected
    restart(broker, crash=True)
    assert fetch_offsets(broker, "drivers", "rides", stable=True) == expected


def test_nobody_ends_a_transaction_in_the_topic_of_transactions(broker: RunningBroker) -> None:
    """What a client can write there must not keep the coordinators from loading it."""
    Producer(broker)
    names = [(STATE_TOPIC, number) for number in range(3)]

    assert ask(broker, marker(*names)) == [dict.fromkeys(names, UNKNOWN_TOPIC)]

    assert not any(markers(broker, *name) for name in names if broker.offset(*name, at=LATEST))
    restart(broker, crash=False)
    assert state_of(broker) == "Empty"


@pytest.mark.parametrize("transaction_version", [0, 1])
def test_an_end_of_the_first_version_has_the_epoch_of_the_data(
    broker: RunningBroker, transaction_version: int
) -> None:
    let_hang(broker)
    end = {**marker(("rides", 0)), "transaction_version": transaction_version}

    assert ask(broker, end, version=2) == [{("rides", 0): 0}]
    assert not has_open_transaction(broker, "rides")


def test_an_end_of_the_second_version_has_a_newer_epoch_than_the_data(
    broker: RunningBroker,
) -> None:
    let_hang(broker)
    late = {**marker(("rides", 0)), "transaction_version": 2}
    assert ask(broker, late, version=2) == [{("rides", 0): INVALID_PRODUCER_EPOCH}]
    assert has_open_transaction(broker, "rides")

    end = {**marker(("rides", 0), epoch=HANGING_EPOCH + 1), "transaction_version": 2}
    assert ask(broker, end, version=2) == [{("rides", 0): 0}]
    assert not has_open_transaction(broker, "rides")
    # When it comes again it is known.
    assert ask(broker, end, version=2) == [{("rides", 0): INVALID_PRODUCER_EPOCH}]
    assert len(markers(broker, "rides")) == 1


def test_a_group_coordinator_that_loads_is_told_of_as_a_partition_without_a_leader(
    broker: RunningBroker,
) -> None:
    begin_to_load_groups(broker)
    assert ask(broker, marker((OFFSETS_TOPIC, 1))) == [{(OFFSETS_TOPIC, 1): NOT_LEADER}]
    assert markers(broker, OFFSETS_TOPIC, 1) == []


def test_a_partition_that_commits_nothing_does_not_keep_the_others_back(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("respool.broker.handlers.transactions.write_txn_markers.WAIT_S_MAX", 0.001)
    broker.offload.hold()
    assert ask(broker, marker(("rides", 0), ("rides", 9))) == [
        {("rides", 0): REQUEST_TIMED_OUT, ("rides", 9): UNKNOWN_TOPIC}
    ]
    release(broker)


def complaints_of(broker: RunningBroker) -> list[dict[str, Any]]:
    """What asyncio has to say, from now on."""
    complaints: list[dict[str, Any]] = []

    async def listen() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, about: complaints.append(about))

    broker.run(listen())
    return complaints


def test_a_broker_that_goes_while_it_writes_leaves_nothing_that_fails_unheard(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by seed 1010313: the first partition had refused its marker when the second one's disk was gone."""
    complaints = complaints_of(broker)
    assert ask(broker, marker(("rides", 0), epoch=5)) == [{("rides", 0): 0}]
    writer = broker.broker.markers
    append = writer.append

    def append_or_go(
        one: EndTransactionMarker, name: TopicPartition, **how: bool
    ) -> tuple[tuple[Partition, Offset], ...]:
        if name.partition == 1:
            raise Gone
        return append(one, name, **how)

    monkeypatch.setattr(writer, "append", append_or_go)
    with pytest.raises(Gone):
        ask(broker, marker(("rides", 0), ("rides", 1), epoch=4))
    gc.collect()
    assert complaints == []


class Gone(BaseException):
    """As a power cut."""


def test_who_asks_and_goes_leaves_nothing_that_fails_unheard(broker: RunningBroker) -> None:
    """The partition fails, or gets another leader, after the coordinator's connection broke."""
    complaints = complaints_of(broker)
    broker.offload.hold()
    asked = {"markers": [marker(("rides", 0), ("rides", 1))]}
    asking = broker.start(broker.answer(Api.WRITE_TXN_MARKERS, 1, **asked))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        broker.finish(asking)
    broker.take_offline("rides")
    release(broker)
    gc.collect()
    assert complaints == []


def test_with_too_few_replicas_in_sync_the_end_is_refused_and_not_written(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise NotEnoughReplicas("as the test wants it")

    let_hang(broker)
    leader = broker.broker.partitions.find("rides", 0).role.leading()
    monkeypatch.setattr(leader, "check_writable", refuse)
    assert ask(broker, marker(("rides", 0))) == [{("rides", 0): NOT_ENOUGH_REPLICAS}]
    assert markers(broker, "rides") == []
