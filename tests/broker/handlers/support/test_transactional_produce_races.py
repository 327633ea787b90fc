"""Transactional batches whose verification is void when it comes: a marker has come in between."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from broker.group_client import turns
from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import (
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    NEW,
    NOT_ENOUGH_REPLICAS,
    OLD,
    Producer,
    markers,
    read,
    start_with_transactions,
)
from broker.wire_client import versions
from respool.broker.coordinators.transaction_coordinators import TransactionCoordinators
from respool.broker.handlers.support.transactional_produce import verify
from respool.model.ids import TopicPartition
from respool.records.build import NewRecord, build_batch
from respool.records.markers import EndTransactionMarker
from respool.wire.api_table import Api

VERSIONS = versions(Api.PRODUCE)
every_version = pytest.mark.parametrize("version", VERSIONS)
versions_without_add = pytest.mark.parametrize("version", [one for one in VERSIONS if one >= 12])


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_with_transactions(start_broker)


def after_each_answer(
    monkeypatch: pytest.MonkeyPatch, do: Callable[[int], Awaitable[None]]
) -> list[set[TopicPartition]]:
    """Do something between the coordinator's answer and what follows. Return what it was asked about."""
    admit_writes = TransactionCoordinators.admit_writes
    asked: list[set[TopicPartition]] = []

    async def answer(
        self: TransactionCoordinators, producer: Any, names: Iterable[TopicPartition], **how: Any
    ) -> Any:
        asked.append(set(names))
        answers = await admit_writes(self, producer, names, **how)
        await do(len(asked))
        return answers

    monkeypatch.setattr(TransactionCoordinators, "admit_writes", answer)
    return asked


@versions_without_add
def test_a_guard_that_gets_void_while_another_partitions_is_asked_about_again_is_renewed(
    broker: RunningBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last transaction was one of version 1, with the same epoch, and its markers are written twice."""
    producer = Producer(broker)
    names = [TopicPartition("rides", number) for number in (0, 1)]
    for name in names:
        producer.write(*name, b"a")
    producer.commit()
    (repeated,) = markers(broker, "rides", 0)

    async def repeat(times: int) -> None:
        if times <= 2:
            broker.broker.markers.append(repeated, names[times - 1])

    asked = after_each_answer(monkeypatch, repeat)
    batch = build_batch(
        [NewRecord(value=b"b", timestamp_ms=1_000)],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=1,
        is_transactional=True,
    )
    data = [{"index": name.partition, "records": batch} for name in names]
    reply = broker.ask(
        Api.PRODUCE,
        version,
        transactional_id="bank",
        acks=-1,
        timeout=1000,
        topic_data=[{**broker.topic_ref("rides"), "partition_data": data}],
    )

    assert [int(one.error_code) for one in reply.responses[0].partition_responses] == [0, 0]
    assert asked == [set(names), {names[0]}, {names[1]}]
    producer.speaks = NEW
    producer.commit()
    assert [read(broker, *name) for name in names] == [[b"a", b"b"]] * 2


@every_version
def test_of_a_first_batch_that_a_repeated_marker_overtakes_only_version_2_allows_a_retry(
    broker: RunningBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the batch could as well be one of the transaction that the marker has ended."""
    producer = Producer(broker)
    producer.write("rides", 0, b"a")
    producer.commit()
    (repeated,) = markers(broker, "rides", 0)
    if version < 12:
        producer.add(("rides", 0))

    async def verify_and_repeat(*asked: Any) -> None:
        await verify(*asked)
        broker.broker.markers.append(repeated, TopicPartition("rides", 0))

    with monkeypatch.context() as patch:
        patch.setattr("respool.broker.handlers.messages.produce.verify", verify_and_repeat)
        answer = producer.send("rides", 0, b"b", version=version)

    assert answer.error_code == (NOT_ENOUGH_REPLICAS if version >= 12 else INVALID_TXN_STATE)
    assert producer.send("rides", 0, b"b", version=version).error_code == 0
    producer.speaks = NEW if version >= 12 else OLD
    producer.commit()
    assert read(broker, "rides") == [b"a", b"b"]


@every_version
def test_of_a_batch_whose_transaction_is_ended_from_outside_only_version_2_allows_a_retry(
    broker: RunningBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is open in the first partition, and an operator ends it there while the second one is verified."""
    producer = Producer(broker, speaks=NEW if version >= 12 else OLD)
    names = [TopicPartition("rides", number) for number in (0, 1)]
    if version < 12:
        producer.add(*names)
    assert producer.send(*names[0], b"a", version=version).error_code == 0
    marker = EndTransactionMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        coordinator_epoch=0,
        is_commit=False,
    )

    async def abort(times: int) -> None:
        if times == 1:
            broker.broker.markers.append(marker, names[0])

    after_each_answer(monkeypatch, abort)
    batch = [NewRecord(value=b"b", timestamp_ms=1_000)]
    data = [
        {
            "index": name.partition,
            "records": build_batch(
                batch,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                base_sequence=sequence,
                is_transactional=True,
            ),
        }
        for name, sequence in zip(names, (1, 0), strict=True)
    ]
    reply = broker.ask(
        Api.PRODUCE,
        version,
        transactional_id="bank",
        acks=-1,
        timeout=1000,
        topic_data=[{**broker.topic_ref("rides"), "partition_data": data}],
    )

    refused = NOT_ENOUGH_REPLICAS if version >= 12 else INVALID_TXN_STATE
    codes = [int(one.error_code) for one in reply.responses[0].partition_responses]
    assert codes == [refused, 0]


@every_version
def test_a_batch_that_was_verified_in_the_last_transaction_does_not_get_into_the_next(
    broker: RunningBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(broker, speaks=NEW if version >= 12 else OLD)
    late = producer.zombie()
    if version < 12:
        producer.add(("rides", 0))

    async def begin_the_next(times: int) -> None:
        if times == 1:
            assert (await producer.end_(commit=False)).error_code == 0
            await turns()
            if version < 12:
                assert set((await producer.add_(("rides", 0))).values()) == {0}

    after_each_answer(monkeypatch, begin_the_next)
    answer = late.send("rides", 0, b"aborted", version=version)

    assert answer.error_code == (INVALID_PRODUCER_EPOCH if version >= 12 else INVALID_TXN_STATE)
    producer.write("rides", 0, b"kept")
    producer.commit()
    assert read(broker, "rides") == [b"kept"]
