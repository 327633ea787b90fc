"""Produce inside a transaction, in every version: only what its coordinator knows of may begin one (KIP-890)."""

from typing import Any

import pytest

from broker.running_broker import LATEST, RunningBroker, StartBroker
from broker.transaction_client import (
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    NEW,
    NOT_ENOUGH_REPLICAS,
    OUT_OF_ORDER_SEQUENCE,
    TRANSACTION_ABORTABLE,
    Producer,
    begin_to_load,
    describe,
    has_open_transaction,
    let_pass,
    read,
    settle,
    start_with_transactions,
    state_of,
)
from broker.wire_client import versions
from respool.broker.outcome import CloseConnection
from respool.records.build import NewRecord, build_batch
from respool.wire.api_table import Api

VERSIONS = versions(Api.PRODUCE)
every_version = pytest.mark.parametrize("version", VERSIONS)
versions_with_add = pytest.mark.parametrize("version", [one for one in VERSIONS if one < 12])
versions_without_add = pytest.mark.parametrize("version", [one for one in VERSIONS if one >= 12])
NO_TRANSACTIONAL_ID = 53
INVALID_RECORD = 87


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_with_transactions(start_broker)


def refused(broker: RunningBroker, answer: Any, code: int, topic: str = "rides") -> None:
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert broker.offset(topic, at=LATEST) == 0


def batch_of(producer: Producer, *values: bytes, sequence: int = 0) -> bytes:
    return build_batch(
        [NewRecord(value=value, timestamp_ms=1_000) for value in values],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


@every_version
@pytest.mark.parametrize("acks", [1, -1])
def test_batches_of_an_open_transaction_are_taken(
    broker: RunningBroker, version: int, acks: int
) -> None:
    producer = Producer(broker)
    producer.add(("rides", 0))

    first = producer.send("rides", 0, b"a", b"b", version=version, acks=acks)
    second = producer.send("rides", 0, b"c", version=version, acks=acks)

    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 2)
    producer.commit()
    assert read(broker, "rides") == [b"a", b"b", b"c"]


@versions_with_add
def test_a_partition_that_was_not_added_takes_nothing(broker: RunningBroker, version: int) -> None:
    producer = Producer(broker)
    producer.add(("rides", 1))

    code = TRANSACTION_ABORTABLE if version >= 11 else INVALID_TXN_STATE
    refused(broker, producer.send("rides", 0, version=version), code)


@versions_without_add
def test_writing_to_a_partition_makes_it_part_of_the_transaction(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker, speaks=NEW)

    assert producer.send("rides", 0, version=version).error_code == 0
    assert producer.send("rides", 2, version=version).error_code == 0

    (topic,) = describe(broker).topics
    assert (topic.topic, topic.partitions) == ("rides", (0, 2))


@every_version
def test_before_anything_was_begun_only_new_versions_may_write(
    broker: RunningBroker, version: int
) -> None:
    answer = Producer(broker).send("rides", 0, version=version)

    if version >= 12:
        assert (answer.error_code, state_of(broker)) == (0, "Ongoing")
    else:
        refused(broker, answer, TRANSACTION_ABORTABLE if version == 11 else INVALID_TXN_STATE)
        assert state_of(broker) == "Empty"


@every_version
def test_a_producer_of_an_older_epoch_is_fenced(broker: RunningBroker, version: int) -> None:
    producer = Producer(broker)
    zombie = producer.zombie()
    producer.init()
    producer.add(("rides", 0))

    # By the coordinator, and where the newer one has written, by the partition.
    assert zombie.send("rides", 0, version=version).error_code == INVALID_PRODUCER_EPOCH
    producer.send("rides", 0, b"new", version=version)
    assert zombie.send("rides", 0, version=version).error_code == INVALID_PRODUCER_EPOCH
    producer.commit()
    assert read(broker, "rides") == [b"new"]


@every_version
def test_who_is_not_known_begins_nothing(broker: RunningBroker, version: int) -> None:
    producer = Producer(broker)
    producer.add(("rides", 0))
    stranger = producer.zombie()
    stranger.id += 1
    misnamed = producer.zombie()
    misnamed.transactional_id = "nobody"

    refused(broker, stranger.send("rides", version=version), INVALID_PRODUCER_ID_MAPPING)
    refused(broker, misnamed.send("rides", version=version), INVALID_PRODUCER_ID_MAPPING)


@every_version
@pytest.mark.parametrize("transactional_id", [None, ""])
def test_a_transactional_batch_needs_a_transactional_id(
    broker: RunningBroker, version: int, transactional_id: Any
) -> None:
    producer = Producer(broker)
    producer.add(("rides", 0))
    producer.transactional_id = transactional_id

    refused(broker, producer.send("rides", version=version), NO_TRANSACTIONAL_ID)


@every_version
def test_while_the_coordinator_loads_the_client_is_to_try_again(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker)
    producer.add(("rides", 0))
    begin_to_load(broker)

    refused(broker, producer.send("rides", version=version), NOT_ENOUGH_REPLICAS)


@versions_with_add
def test_while_markers_are_written_the_client_is_to_try_again(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker)
    producer.write("fares", 0)
    broker.take_offline("fares", 0)
    producer.end(commit=True)
    settle(broker)

    refused(broker, producer.send("rides", version=version), NOT_ENOUGH_REPLICAS)


@versions_without_add
def test_while_markers_are_written_a_write_of_the_next_transaction_waits_for_a_while(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker, speaks=NEW)
    producer.write("fares", 0)
    broker.take_offline("fares", 0)
    producer.end(commit=True)
    sending = broker.start(producer.send_("rides", version=version))
    assert not sending.done()

    let_pass(broker, 1_000)

    refused(broker, broker.finish(sending), NOT_ENOUGH_REPLICAS)


@every_version
def test_a_batch_outside_of_the_open_transaction_is_refused(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker)
    producer.add(("rides", 0))
    producer.send("rides", 0, b"inside", version=version)

    answer = producer.send("rides", 0, b"outside", version=version, is_transactional=False)

    assert answer.error_code == INVALID_TXN_STATE
    producer.commit()
    assert read(broker, "rides") == [b"inside"]


@every_version
def test_a_gap_in_the_sequences_is_refused(broker: RunningBroker, version: int) -> None:
    producer = Producer(broker)
    producer.add(("rides", 0))
    producer.send("rides", 0, b"a", version=version)

    answer = producer.send("rides", 0, b"c", version=version, sequence=2)

    assert answer.error_code == OUT_OF_ORDER_SEQUENCE


@every_version
def test_a_retry_is_answered_with_the_offset_of_its_first_try(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker)
    producer.add(("rides", 0))
    broker.produce("rides", values=(b"x",))
    first = producer.send("rides", 0, b"a", version=version)

    again = producer.send("rides", 0, b"a", version=version, sequence=0)

    assert (again.error_code, again.base_offset) == (0, first.base_offset)
    assert broker.offset("rides", at=LATEST) == 2


@every_version
def test_partitions_of_one_request_are_admitted_one_by_one(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker)
    producer.add(("rides", 0))
    data = [{"index": index, "records": batch_of(producer, b"v")} for index in (0, 1, 9)]

    reply = broker.ask(
        Api.PRODUCE,
        version,
        transactional_id="bank",
        acks=-1,
        timeout=1000,
        topic_data=[{**broker.topic_ref("rides"), "partition_data": data}],
    )

    codes = [int(one.error_code) for one in reply.responses[0].partition_responses]
    not_added = (
        0 if version >= 12 else TRANSACTION_ABORTABLE if version == 11 else INVALID_TXN_STATE
    )
    assert codes == [0, not_added, 3]


@versions_with_add
def test_a_partition_named_twice_in_a_request_is_not_let_in_by_the_second(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker)
    producer.add(("rides", 1))
    data = [
        {"index": 0, "records": batch_of(producer, b"a", sequence=0)},
        {"index": 0, "records": batch_of(producer, b"b", sequence=1)},
    ]

    reply = broker.ask(
        Api.PRODUCE,
        version,
        transactional_id="bank",
        acks=-1,
        timeout=1000,
        topic_data=[{**broker.topic_ref("rides"), "partition_data": data}],
    )

    codes = {int(one.error_code) for one in reply.responses[0].partition_responses}
    assert codes == {TRANSACTION_ABORTABLE if version == 11 else INVALID_TXN_STATE}
    assert not has_open_transaction(broker, "rides")
    assert broker.offset("rides", at=LATEST) == 0


@every_version
def test_with_acks_0_a_batch_that_may_not_enter_closes_the_connection(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker)
    zombie = producer.zombie()
    producer.init()
    fields = {
        "transactional_id": "bank",
        "acks": 0,
        "timeout": 1000,
        "topic_data": [
            {
                **broker.topic_ref("rides"),
                "partition_data": [{"index": 0, "records": batch_of(zombie, b"v")}],
            }
        ],
    }

    with pytest.raises(CloseConnection):
        broker.run(broker.answer(Api.PRODUCE, version, **fields))

    assert broker.offset("rides", at=LATEST) == 0


@every_version
@pytest.mark.parametrize(
    "changes",
    [{"producer_id": -1}, {"base_sequence": -1}, {"producer_epoch": -1}],
    ids=["no producer", "no sequence", "no epoch"],
)
def test_a_transactional_batch_needs_a_producer_an_epoch_and_a_sequence(
    broker: RunningBroker, version: int, changes: dict[str, int]
) -> None:
    producer = Producer(broker)
    producer.add(("rides", 0))
    fields: dict[str, Any] = {"producer_id": producer.id, "producer_epoch": 0, "base_sequence": 0}
    fields.update(changes)
    records = build_batch([NewRecord(value=b"v", timestamp_ms=1)], is_transactional=True, **fields)

    reply = broker.ask(
        Api.PRODUCE,
        version,
        transactional_id="bank",
        acks=-1,
        timeout=1000,
        topic_data=[
            {**broker.topic_ref("rides"), "partition_data": [{"index": 0, "records": records}]}
        ],
    )

    refused(broker, reply.responses[0].partition_responses[0], INVALID_RECORD)


@every_version
def test_an_epoch_that_somebody_invented_does_not_get_in_the_way_of_the_true_one(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker)
    producer.add(("rides", 0))
    ahead = producer.zombie()
    ahead.epoch += 1

    assert ahead.send("rides", 0, b"?", version=version).error_code == INVALID_PRODUCER_EPOCH
    assert producer.send("rides", 0, b"v", version=version).error_code == 0

    assert read(broker, "rides", committed=False) == [b"v"]


@every_version
def test_whoever_invents_producers_leaves_nothing_behind(
    broker: RunningBroker, version: int
) -> None:
    Producer(broker)
    log = broker.broker.partitions.find("rides", 0).log
    for producer_id in range(5_000, 5_020):
        invented = Producer(broker, init=False)
        invented.id, invented.epoch = producer_id, 0
        assert invented.send("rides", 0, b"?", version=version).error_code

    assert len(log._parts.producers._verifications) == 0


@every_version
def test_what_came_late_and_in_vain_does_not_get_in_the_way_of_the_next_transaction(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker)
    producer.write("rides", 0, b"a")
    producer.commit()
    late = producer.send("rides", 0, b"a", sequence=0, version=version)
    # In the second version the epoch would tell; here it is the same, and the batch is known.
    assert late.error_code in (0, INVALID_TXN_STATE, TRANSACTION_ABORTABLE)

    producer.add(("rides", 0))
    assert producer.send("rides", 0, b"b", version=version).error_code == 0

    producer.commit()
    assert read(broker, "rides") == [b"a", b"b"]
