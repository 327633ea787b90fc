"""A producer against a broker that answers with every kind of trouble: what is in is in once, in order, and told."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from client.fake_broker import (
    FIRST_PRODUCER_ID,
    LOSE_ANSWER,
    LOSE_REQUEST,
    TOPIC,
    FakeBroker,
    values_of,
)
from respool.client.arrow.errors import BufferFull, WriteFailed
from respool.client.arrow.writing.arrow_producer import ArrowProducer
from respool.client.arrow.writing.delivery import Delivery, DeliverySettings
from respool.client.arrow.writing.maintenance import MaintenanceThread
from respool.client.arrow.writing.sender import BrokerSender
from respool.client.arrow.writing.write_table import write_table
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.connection import Connection
from respool.client.kafka.errors import ClientClosed
from respool.client.kafka.partition_queue import ProducerBatch, ProducerIdentity
from respool.client.kafka.produce_request import ProduceAnswer
from respool.records.batch import HEADER_BYTES
from respool.wire.api_table import Api

NOT_LEADER, TIMED_OUT, TOO_LARGE, NOT_ENOUGH_REPLICAS, AFTER_APPEND = 6, 7, 10, 19, 20
GAP, DUPLICATE, OLD_EPOCH, FORGOTTEN, INVALID_RECORD, FENCED = 45, 46, 47, 59, 87, 90
ROWS = 60


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as running:
        yield running


def numbers(count: int = ROWS, first: int = 0) -> pa.Table:
    return pa.table({"value": [b"%0100d" % number for number in range(first, first + count)]})


def producer_of(broker: FakeBroker, **settings: Any) -> ArrowProducer:
    """One that makes many small batches: about ten rows each."""
    return ArrowProducer(
        broker.address,
        **{"batch_bytes": 1_200, "delivery_timeout_ms": 20_000, "linger_ms": 0, **settings},
    )


def write_and_flush(producer: ArrowProducer, table: pa.Table, **names: Any) -> None:
    """For what fails: whichever of the two is the first to hear of it says so."""
    producer.write(table, TOPIC, **names)
    producer.flush()


def written(broker: FakeBroker, partition: int = 0) -> list[int]:
    return values_of(broker.partitions[partition].records)


# What passes.


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param([NOT_LEADER], id="not the leader"),
        pytest.param([NOT_ENOUGH_REPLICAS] * 3, id="too few replicas"),
        pytest.param([2], id="damaged on the way"),
        pytest.param([3, 5], id="unknown and without a leader"),
        pytest.param([56], id="its disk fails"),
        pytest.param([0, NOT_LEADER, NOT_LEADER, NOT_LEADER, NOT_LEADER], id="all under way"),
        pytest.param([0, 0, NOT_LEADER], id="one in the middle"),
        pytest.param([GAP], id="a gap before the first"),
        pytest.param([0, GAP], id="a gap in the middle"),
        pytest.param([0, 0, FORGOTTEN], id="forgotten"),
        pytest.param([LOSE_REQUEST], id="the first request is lost"),
        pytest.param([LOSE_ANSWER], id="the first answer is lost"),
        pytest.param([0, 0, LOSE_ANSWER, LOSE_ANSWER], id="answers are lost twice"),
        pytest.param([0, LOSE_REQUEST, 0, LOSE_ANSWER, NOT_LEADER], id="one after the other"),
    ],
)
def test_what_passes_is_tried_again_and_everything_is_in_once_and_in_order(
    broker: FakeBroker, trouble: list[int | str]
) -> None:
    broker.script(*trouble)
    with producer_of(broker) as producer:
        producer.write(numbers(), TOPIC)
        result = producer.flush()
    assert written(broker) == list(range(ROWS))
    assert result.rows_in == ROWS
    assert result.partitions[TOPIC, 0].last_offset == ROWS - 1


def test_a_repeat_that_the_broker_knows_counts_as_in(broker: FakeBroker) -> None:
    broker.script(DUPLICATE)
    with producer_of(broker, batch_bytes=100_000) as producer:
        producer.write(numbers(), TOPIC)
        result = producer.flush()
    assert result.rows_in == ROWS
    assert result.partitions[TOPIC, 0].first_offset is None


@pytest.mark.parametrize("code", [TIMED_OUT, AFTER_APPEND])
def test_what_was_appended_and_not_replicated_in_time_is_asked_for_again(
    broker: FakeBroker, code: int
) -> None:
    broker.script(code)
    with producer_of(broker) as producer:
        producer.write(numbers(), TOPIC)
        assert producer.flush().rows_in == ROWS
    first, second = [one for one in broker.produced if one.base_sequence == 0][:2]
    assert (first.producer_id, first.producer_epoch) == (second.producer_id, second.producer_epoch)
    assert written(broker) == list(range(ROWS))


def test_the_first_batch_of_a_producer_is_not_overtaken_where_nobody_knows_it() -> None:
    # A broker takes any sequence from a producer that it knows nothing of.
    with FakeBroker(takes_any_first_sequence=True) as broker:
        broker.script(NOT_ENOUGH_REPLICAS)
        with producer_of(broker) as producer:
            producer.write(numbers(), TOPIC)
            assert producer.flush().rows_in == ROWS
        assert written(broker) == list(range(ROWS))


def test_sequences_go_on_over_writes_and_the_producer_id_is_asked_for_once(
    broker: FakeBroker,
) -> None:
    with producer_of(broker) as producer:
        for first in range(0, 100, 20):
            producer.write(numbers(20, first), TOPIC)
            producer.flush()
    assert len(broker.asked_for(Api.INIT_PRODUCER_ID)) == 1
    assert {one.producer_id for one in broker.produced} == {FIRST_PRODUCER_ID}
    sequences = [(one.base_sequence, one.record_count) for one in broker.produced]
    assert sequences == [
        (sum(count for _, count in sequences[:at]), count)
        for at, (_, count) in enumerate(sequences)
    ]


def test_after_a_gap_the_epoch_is_the_next(broker: FakeBroker) -> None:
    broker.script(0, GAP)
    with producer_of(broker, in_flight_max=1) as producer:
        producer.write(numbers(), TOPIC)
        producer.flush()
    assert [one.producer_epoch for one in broker.produced][:3] == [0, 0, 1]
    assert broker.produced[2].base_sequence == 0


def test_no_more_than_five_batches_are_under_way(broker: FakeBroker) -> None:
    broker.script(*[NOT_ENOUGH_REPLICAS] * 8)
    with producer_of(broker) as producer:
        producer.write(numbers(), TOPIC)
        producer.flush()
    # Until something is in, only the first five are ever sent.
    sent_first = {one.base_sequence for one in broker.produced[:8]}
    assert len(sent_first) <= 5
    assert written(broker) == list(range(ROWS))


def test_a_cut_connection_is_made_again(broker: FakeBroker) -> None:
    with producer_of(broker) as producer:
        for first in range(0, 100, 20):
            producer.write(numbers(20, first), TOPIC)
            producer.flush()
            broker.cut()
    assert written(broker) == list(range(100))


# What does not.


@pytest.mark.parametrize("code", [TOO_LARGE, INVALID_RECORD, 29, 48, OLD_EPOCH, FENCED])
def test_a_refused_batch_fails_with_what_is_in_and_the_broker_s_words(
    broker: FakeBroker, code: int
) -> None:
    broker.script(0, 0, code)
    with producer_of(broker, in_flight_max=1) as producer:
        with pytest.raises(WriteFailed, match=f"fake {code}") as told:
            write_and_flush(producer, numbers())
        line = told.value.partitions[TOPIC, 0]
        assert line.rows == len(written(broker))
        assert line.rows + told.value.result.rows_not_in == ROWS
        assert told.value.result.rows_uncertain == 0
        # What is in came first.
        assert written(broker) == list(range(line.rows))
        # And writing may go on.
        producer.write(numbers(5, first=500), TOPIC)
        assert producer.flush().rows_in == 5
    assert written(broker)[-5:] == [500, 501, 502, 503, 504]


def test_one_partition_s_failure_does_not_keep_others_back() -> None:
    table = pa.table(
        {"value": [b"%0100d" % number for number in range(ROWS)], "to": [0, 1] * (ROWS // 2)}
    )
    with FakeBroker(partitions=2) as broker:
        broker.script(TOO_LARGE, partition=0)
        with producer_of(broker) as producer, pytest.raises(WriteFailed) as told:
            write_and_flush(producer, table, partition="to")
        assert written(broker, 0) == []
        assert written(broker, 1) == list(range(1, ROWS, 2))
    assert told.value.partitions[TOPIC, 0].not_in_rows == ROWS // 2
    assert told.value.partitions[TOPIC, 1].rows == ROWS // 2
    assert told.value.partitions[TOPIC, 1].error is None


def test_a_later_write_tells_of_an_earlier_failure(broker: FakeBroker) -> None:
    broker.script(TOO_LARGE)
    with producer_of(broker) as producer:
        producer.write(numbers(1), TOPIC)
        producer._delivery.wait_until_complete()
        with pytest.raises(WriteFailed):
            producer.write(numbers(1), TOPIC)


def test_what_is_never_answered_is_uncertain(broker: FakeBroker) -> None:
    with producer_of(broker, delivery_timeout_ms=2_000, batch_bytes=100_000) as producer:
        # The way to the broker is known, so the next ones are surely sent before their time is over.
        producer.write(numbers(1), TOPIC)
        producer.flush()
        broker.script(*[LOSE_ANSWER] * 100)
        producer.write(numbers(), TOPIC)
        with pytest.raises(WriteFailed, match="not acknowledged within 2000 ms") as told:
            producer.flush()
    assert len(broker.produced) > 1
    assert told.value.result.rows_uncertain == ROWS
    assert told.value.result.rows_not_in == 0


def test_what_is_always_refused_is_not_in_when_its_time_is_over(broker: FakeBroker) -> None:
    with producer_of(broker, delivery_timeout_ms=2_000) as producer:
        producer.write(numbers(1), TOPIC)
        producer.flush()
        broker.script(*[NOT_ENOUGH_REPLICAS] * 1_000)
        producer.write(numbers(), TOPIC)
        with pytest.raises(WriteFailed, match="at last: NOT_ENOUGH_REPLICAS: fake 19") as told:
            producer.flush()
    assert told.value.result.rows_not_in == ROWS
    assert written(broker) == [0]


def test_a_forgotten_producer_does_not_write_twice_what_may_be_in(broker: FakeBroker) -> None:
    broker.script(LOSE_ANSWER, FORGOTTEN)
    with producer_of(broker, batch_bytes=100_000) as producer:
        producer.write(numbers(), TOPIC)
        with pytest.raises(WriteFailed) as told:
            producer.flush()
    assert told.value.result.rows_uncertain == ROWS
    assert written(broker) == list(range(ROWS))


def test_a_full_buffer_makes_writing_wait_and_in_the_end_fail(broker: FakeBroker) -> None:
    broker.script(*[NOT_ENOUGH_REPLICAS] * 1_000)
    with producer_of(broker, buffer_bytes=2_400, delivery_timeout_ms=1_000) as producer:
        # Room is waited for as long as batches are tried for, and those waited longer.
        with pytest.raises((BufferFull, WriteFailed)):
            producer.write(numbers(), TOPIC)
        with pytest.raises(WriteFailed):
            producer.flush()
    assert written(broker) == []


# Ways to write.


def test_without_idempotence_no_producer_is_named(broker: FakeBroker) -> None:
    with producer_of(broker, acks=1) as producer:
        producer.write(numbers(), TOPIC)
        assert producer.flush().rows_in == ROWS
    assert not broker.asked_for(Api.INIT_PRODUCER_ID)
    assert {one.producer_id for one in broker.produced} == {-1}
    assert {one.base_sequence for one in broker.produced} == {-1}


def test_without_idempotence_nothing_acknowledged_is_missing(broker: FakeBroker) -> None:
    broker.script(0, NOT_LEADER, LOSE_ANSWER)
    with producer_of(broker, idempotent=False) as producer:
        producer.write(numbers(), TOPIC)
        assert producer.flush().rows_in == ROWS
    assert set(written(broker)) == set(range(ROWS))


def test_with_acks_0_nothing_is_waited_for(broker: FakeBroker) -> None:
    with producer_of(broker, acks=0) as producer:
        producer.write(numbers(), TOPIC)
        result = producer.flush()
    assert result.rows_in == ROWS
    assert result.partitions[TOPIC, 0].first_offset is None


def test_an_old_broker_is_told_of_at_once() -> None:
    with (
        FakeBroker(versions={Api.PRODUCE: (0, 8)}) as broker,
        producer_of(broker) as producer,
        pytest.raises(WriteFailed, match="speaks Produce 0 to 8"),
    ):
        write_and_flush(producer, numbers())


def test_batches_keep_to_what_the_topic_takes(broker: FakeBroker) -> None:
    broker.max_message_bytes = 500
    with producer_of(broker) as producer:
        producer.write(numbers(), TOPIC)
        producer.flush()
    assert max(one.size for one in broker.produced) <= 500


def test_compression_that_makes_rows_larger_does_not_make_batches_too_large(
    broker: FakeBroker,
) -> None:
    noise = pa.table(
        {
            "value": [
                bytes((i * 131 + j * j * 17 + i * j) % 256 for j in range(101)) for i in range(50)
            ]
        }
    )
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        with producer_of(broker, compression=codec, batch_bytes=1_024) as producer:
            producer.write(noise, TOPIC)
            assert producer.flush().rows_in == 50
    assert max(one.size for one in broker.produced) <= 1_024


def test_a_connection_that_ends_as_a_request_begins_gives_its_batches_back(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, ends = Connection.send_parts, iter([True])

    def send_parts(
        self: Connection, *arguments: Any, on_begin: Callable[[], None], **more: Any
    ) -> int:
        def begin() -> None:
            # 1. The sender finds it open. 2. Whoever waits for answers sees its end, and ends. 3. The sender goes on.
            if next(ends, False):
                sender = producer._delivery._senders[1]
                assert isinstance(sender, BrokerSender)
                line = sender._line
                assert line is not None
                line._die("gone")
                line._thread.join(10)
            on_begin()

        return real(self, *arguments, on_begin=begin, **more)

    monkeypatch.setattr(Connection, "send_parts", send_parts)
    with producer_of(broker) as producer:
        producer.write(numbers(), TOPIC)
        assert producer.flush().rows_in == ROWS
    assert written(broker) == list(range(ROWS))


def test_nothing_overtakes_what_the_leader_before_has_not_answered() -> None:
    place = (TOPIC, 0)
    delivery = Delivery(
        Cluster("127.0.0.1:1"),
        DeliverySettings(),
        new_sender=BrokerSender,
        new_maintenance=MaintenanceThread,
    )
    delivery.identity = ProducerIdentity(7, 0)
    queue = delivery.active[place] = delivery.queue_of(place)
    older, newer = (ProducerBatch(rows=1, size=1, deadline_ms=10**9) for _ in range(2))
    queue.add(older)
    queue.add(newer)
    delivery.leaders[place] = 1
    assert delivery.take_for(1, 0) == [(place, older)]
    delivery.leaders[place] = 2
    # It would take any sequence, where it has never heard of this producer.
    assert delivery.take_for(2, 0) == []
    assert delivery.next_due_ms(2) is None
    with delivery.changed:
        delivery.on_answer(place, older, ProduceAnswer(TOPIC, 0, NOT_LEADER, "moved", -1, None))
    due_ms = delivery.next_due_ms(2)
    assert due_ms is not None
    assert delivery.take_for(2, due_ms) == [(place, older)]


def test_a_producer_is_of_no_use_to_a_fork_and_not_harmed_by_it(broker: FakeBroker) -> None:
    with producer_of(broker) as producer:
        producer.write(numbers(), TOPIC)
        producer.flush()
        child = os.fork()
        if not child:
            code = 1
            try:
                producer.write(numbers(), TOPIC)
            except ClientClosed:
                producer.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        producer.write(numbers(first=ROWS), TOPIC)
        producer.flush()
    assert written(broker) == list(range(2 * ROWS))


def test_zstd_is_as_fast_as_it_can_be_unless_a_level_is_asked_for(broker: FakeBroker) -> None:
    found = []
    for level in (None, 1, 9):
        with producer_of(broker, compression="zstd", compression_level=level) as producer:
            producer.write(numbers(10), TOPIC)
        found.append(broker.partitions[0].batches[-1][HEADER_BYTES:])
    usual, first, ninth = found
    assert usual == first != ninth


def test_a_stream_that_breaks_off_says_what_is_in(broker: FakeBroker) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from numbers().to_batches()
        raise OSError("the file ends here")

    stream = pa.RecordBatchReader.from_batches(numbers().schema, batches())
    with pytest.raises(WriteFailed, match=r"ends here.* 60 are in, 0 are uncertain") as told:
        write_table(stream, TOPIC, bootstrap=broker.address)
    assert isinstance(told.value.__cause__, OSError)
    assert told.value.partitions[TOPIC, 0].rows == ROWS
    assert written(broker) == list(range(ROWS))


def test_a_stream_that_breaks_off_before_its_first_row_says_just_that(broker: FakeBroker) -> None:
    def nothing() -> Iterator[pa.RecordBatch]:
        raise OSError("there is no file")
        yield

    stream = pa.RecordBatchReader.from_batches(numbers().schema, nothing())
    with pytest.raises(OSError, match="no file"):
        write_table(stream, TOPIC, bootstrap=broker.address)
    assert written(broker) == []
