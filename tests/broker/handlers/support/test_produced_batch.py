"""The stages of one partition's batch in a Produce request."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from broker.running_broker import RunningBroker
from respool.broker.handlers.support.batch_append import ACKS_ALL
from respool.broker.handlers.support.batch_stages import (
    Admitted,
    AdmittedMirrored,
    Refused,
    Written,
)
from respool.broker.handlers.support.produced_batch import ProducedBatch
from respool.model.errors import (
    InvalidTopic,
    NotEnoughReplicas,
    NotLeader,
    OutOfOrderSequence,
    PolicyViolation,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from respool.model.ids import Offset
from respool.records.build import NewRecord, build_batch
from respool.records.mirrored_batches import prepare


def write_of(
    broker: RunningBroker, topic: str | UUID = "rides", *, acks: int = ACKS_ALL, **batch: Any
) -> ProducedBatch:
    records = build_batch([NewRecord(value=b"v", timestamp_ms=broker.clock.now_ms())], **batch)
    return write_of_records(broker, topic, records, acks=acks)


def write_of_records(
    broker: RunningBroker, topic: str | UUID, records: bytes, *, acks: int = ACKS_ALL
) -> ProducedBatch:
    return ProducedBatch(
        topic,
        0,
        records,
        request=request_of(acks),
        broker=broker.broker,
        now_ms=broker.clock.now_ms(),
    )


def request_of(acks: int = ACKS_ALL) -> Any:
    return SimpleNamespace(body=SimpleNamespace(acks=acks, transactional_id=None), version=9)


def append(broker: RunningBroker, write: ProducedBatch) -> None:
    async def append_in_the_loop() -> None:
        write.append(ACKS_ALL, broker.clock.now_ms())

    broker.run(append_in_the_loop())


def idempotent(sequence: int) -> dict[str, Any]:
    return {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}


@pytest.fixture
def broker(running_broker: RunningBroker) -> RunningBroker:
    running_broker.create_topic("rides")
    return running_broker


def test_a_batch_that_waited_while_its_topic_was_recreated_is_not_admitted_to_the_new_one(
    broker: RunningBroker,
) -> None:
    write = write_of(broker, broker.topic_ref("rides")["topic_id"])
    assert isinstance(write.stage, Admitted)
    write.refuse(NotLeader("an epoch transition, for example"))
    broker.run(broker.broker.topics.delete("rides"))
    broker.create_topic("rides")

    write.admit_again(request_of(), broker.broker, broker.clock.now_ms())

    assert isinstance(write.error, UnknownTopicId)


def test_an_admitted_batch_is_appended_and_its_records_are_released(broker: RunningBroker) -> None:
    write = write_of(broker)
    assert isinstance(write.stage, Admitted)
    assert not write.needs_preparation

    append(broker, write)

    assert isinstance(write.stage, Written)
    assert (write.stage.base_offset, write.stage.next_offset) == (0, 1)
    assert write.error is None
    assert write._records is None


@pytest.mark.parametrize(
    ("topic", "error"),
    [("pickups", UnknownTopicOrPartition), ("__consumer_offsets", InvalidTopic)],
)
def test_a_refused_batch_stays_refused_and_is_not_appended(
    broker: RunningBroker, topic: str, error: type[Exception]
) -> None:
    write = write_of(broker, topic)
    assert isinstance(write.error, error)
    # Frames of a traceback would keep the records in memory while the reply waits.
    assert write.error.__traceback__ is None

    append(broker, write)

    assert isinstance(write.error, error)
    assert write._records is None


def test_a_batch_refused_by_the_log_has_no_offset(broker: RunningBroker) -> None:
    append(broker, write_of(broker, **idempotent(0)))
    gap = write_of(broker, **idempotent(7))

    append(broker, gap)

    assert isinstance(gap.stage, Refused)
    assert isinstance(gap.error, OutOfOrderSequence)


def test_a_batch_refused_after_it_was_admitted_is_not_appended(broker: RunningBroker) -> None:
    write = write_of(broker)
    write.refuse(NotEnoughReplicas("one of two"))

    append(broker, write)

    assert isinstance(write.error, NotEnoughReplicas)
    assert broker.broker.partitions.find("rides", 0).log.log_end == 0


def mirrored(broker: RunningBroker, *base_offsets: int) -> ProducedBatch:
    """Batches of one record each, as a mirror sends them to the topic "copy"."""
    batches = [
        build_batch([NewRecord(value=b"v", timestamp_ms=1)], base_offset=base)
        for base in base_offsets
    ]
    prepared = prepare(b"".join(batches), begin=Offset(base_offsets[0]))
    return write_of_records(broker, "copy", prepared.data)


def log_end(broker: RunningBroker, topic: str) -> int:
    return broker.broker.partitions.find(topic, 0).log.log_end


def test_a_mirrors_batches_keep_their_offsets_and_are_not_prepared(broker: RunningBroker) -> None:
    broker.create_topic("copy", respool_mirror="true")
    write = mirrored(broker, 0, 1)
    assert isinstance(write.stage, AdmittedMirrored)
    assert (write.needs_preparation, write.needs_opening, write.unverified) == (False, False, None)

    append(broker, write)

    assert isinstance(write.stage, Written)
    assert (write.stage.base_offset, write.stage.next_offset) == (0, 2)
    assert write.stage.log_append_time_ms == -1
    assert write._records is None
    assert log_end(broker, "copy") == 2


def test_a_mirrors_batches_that_leave_a_gap_are_refused_when_they_are_appended(
    broker: RunningBroker,
) -> None:
    broker.create_topic("copy", respool_mirror="true")
    append(broker, mirrored(broker, 0))
    gap = mirrored(broker, 5)
    assert isinstance(gap.stage, AdmittedMirrored)

    append(broker, gap)

    assert isinstance(gap.error, OutOfOrderSequence)
    assert gap.error.__traceback__ is None
    assert gap._records is None
    assert log_end(broker, "copy") == 1


def test_a_producers_batch_is_not_admitted_to_a_mirror(broker: RunningBroker) -> None:
    broker.create_topic("copy", respool_mirror="true")
    write = write_of(broker, "copy")
    assert isinstance(write.error, PolicyViolation)

    append(broker, write)

    assert log_end(broker, "copy") == 0


def test_a_mirrors_batches_refused_after_they_were_admitted_are_not_appended(
    broker: RunningBroker,
) -> None:
    broker.create_topic("copy", respool_mirror="true")
    write = mirrored(broker, 0)
    write.refuse(NotEnoughReplicas("one of two"))

    append(broker, write)

    assert isinstance(write.error, NotEnoughReplicas)
    assert log_end(broker, "copy") == 0
