"""Reading from brokers that fail, lie, forget and come back: no gap, nothing twice, or an error that says where."""

import os
import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from respool.client.arrow.errors import (
    BatchDamaged,
    LogTruncated,
    OutsideRetention,
    PartitionUnavailable,
    ReadError,
    RetentionOvertook,
    TopicRecreated,
)
from respool.client.arrow.reading import pieces
from respool.client.arrow.reading.bounded_queue import BoundedQueue, Piece
from respool.client.arrow.reading.read import plan_read, read_range, read_table, stream_batches
from respool.client.arrow.reading.stream import BatchStream, ReadSettings
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ClientClosed,
    UnknownPartition,
    UnknownTopic,
    VersionUnsupported,
)
from respool.records.batch import Codec
from respool.wire.api_table import Api
from respool.wire.codec import Request
from respool.wire.hot_replies import FetchedPartition
from support.scripted_broker import HANG_UP, TOPIC, ScriptedBroker
from support.waiting import wait_until

NOT_LEADER, OUT_OF_RANGE, FENCED, UNKNOWN_EPOCH, UNKNOWN_ID = 6, 1, 74, 75, 100


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    threads = set(threading.enumerate())
    with ScriptedBroker() as running:
        yield running
    # Nothing that read from it is left.
    assert set(threading.enumerate()) <= threads


def table(broker: ScriptedBroker, **wish: Any) -> pa.Table:
    return read_table(TOPIC, bootstrap=broker.address, **{"retry_ms": 10_000, **wish})


def stream(broker: ScriptedBroker, **wish: Any) -> BatchStream:
    return stream_batches(TOPIC, bootstrap=broker.address, **{"retry_ms": 10_000, **wish})


def values(read: pa.Table | pa.RecordBatch) -> list[bytes]:
    found = read.column("value").to_pylist()
    assert isinstance(found, list)
    return found


def fill(broker: ScriptedBroker, batches: int = 4) -> list[bytes]:
    for number in range(batches):
        broker.append(b"%d-a" % number, b"%d-b" % number)
    return [b"%d-%s" % (number, half) for number in range(batches) for half in (b"a", b"b")]


def cut(request: Request, broker: ScriptedBroker) -> bytes:
    """The beginning of a good reply."""
    return broker.good(request)[:-20]


# -- what passes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [3, 5, NOT_LEADER, 9, 56, FENCED, UNKNOWN_EPOCH, 78, UNKNOWN_ID])
def test_after_a_passing_error_the_read_goes_on_from_the_same_offset(
    broker: ScriptedBroker, code: int
) -> None:
    written = fill(broker)
    broker.script += [one_batch(broker), broker.refuse(code), broker.refuse(code)]
    assert values(table(broker)) == written
    assert [offset for _, offset, _ in broker.fetches][:4] == [0, 2, 2, 2]


def test_a_connection_that_ends_is_made_again_and_nothing_comes_twice(
    broker: ScriptedBroker,
) -> None:
    written = fill(broker)
    broker.script += [one_batch(broker), lambda _: HANG_UP, one_batch(broker), lambda _: HANG_UP]
    assert values(table(broker)) == written


def test_a_connection_that_ends_within_a_reply_is_made_again(broker: ScriptedBroker) -> None:
    written = fill(broker)

    def half(request: Request) -> bytes:
        broker.script.appendleft(lambda _: HANG_UP)
        return cut(request, broker)

    broker.script.append(half)
    with stream(broker, follow=False) as reading:
        # The broker sends a half reply, and then hangs up.
        wait_until(lambda: broker.fetches, "a fetch")
        broker.hang_up()
        assert [one for batch in reading for one in values(batch)] == written


def test_a_reply_that_is_none_is_asked_for_again(broker: ScriptedBroker) -> None:
    written = fill(broker)

    def garbled(request: Request) -> bytes:
        return (9).to_bytes(4, "big") + request.correlation_id.to_bytes(4, "big") + b"\x7f" * 5

    broker.script += [garbled, garbled]
    assert values(table(broker)) == written


def test_an_empty_answer_in_the_middle_is_waited_out(broker: ScriptedBroker) -> None:
    written = fill(broker)
    broker.script += [one_batch(broker), empty(broker), empty(broker)]
    assert values(table(broker)) == written


def test_a_new_leader_epoch_is_sent_with_the_next_fetch(broker: ScriptedBroker) -> None:
    fill(broker)
    epochs: list[int] = []

    def note(request: Request) -> bytes:
        epochs.append(request.body.topics[0].partitions[0].current_leader_epoch)
        return broker.good(request)

    def elect(request: Request) -> bytes:
        broker.leader_epoch = 5
        return broker.refuse(FENCED)(request)

    broker.script += [elect, note]
    table(broker)
    assert epochs == [5]


def test_the_epoch_of_what_was_read_last_goes_with_each_fetch(broker: ScriptedBroker) -> None:
    broker.append(b"one", epoch=3)
    broker.append(b"two", epoch=4)
    broker.script += [one_batch(broker)]
    table(broker)
    assert broker.fetches[:2] == [(0, 0, -1), (0, 1, 3)]


def test_a_broker_without_topic_ids_is_asked_by_name(broker: ScriptedBroker) -> None:
    written = fill(broker)
    broker.versions[Api.FETCH] = (4, 12)
    assert values(table(broker)) == written


def test_a_leader_that_is_silent_is_given_up_and_asked_again(broker: ScriptedBroker) -> None:
    written = fill(broker)
    silence = threading.Event()

    def say_nothing(_: Request) -> bytes:
        silence.wait(10)
        return HANG_UP

    broker.script += [one_batch(broker), say_nothing]
    with Cluster(broker.address, request_timeout_ms=100) as cluster:
        plan = plan_read(cluster, TOPIC)
        with read_range(cluster, plan, 0) as reading:
            assert [one for batch in reading for one in values(batch)] == written
    silence.set()


def test_compressed_batches_are_handed_on_in_turns_and_none_is_forgotten(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        broker.append(b"%d" % number * 1_000, codec=Codec.ZSTD)
    large = b"x" * 50_000
    broker.append(large, codec=Codec.LZ4)
    broker.append(b"end")
    monkeypatch.setattr(pieces, "DECOMPRESSED_AT_ONCE", 2_000)
    with stream(broker, follow=False) as reading:
        rows = [values(batch) for batch in reading]
    # A batch that is larger than a turn brings a larger turn.
    assert [len(one) for one in rows] == [2, 2, 3]
    assert [one[:1] for turn in rows for one in turn] == [b"0", b"1", b"2", b"3", b"4", b"x", b"e"]


# -- what does not pass ------------------------------------------------------------------------------------------------


def test_a_partition_that_stays_away_ends_the_read_and_says_where(broker: ScriptedBroker) -> None:
    fill(broker)
    broker.script.append(one_batch(broker))
    broker.script += [broker.refuse(NOT_LEADER)] * 1_000
    with stream(broker, retry_ms=200) as reading:
        assert values(next(reading)) == [b"0-a", b"0-b"]
        with pytest.raises(PartitionUnavailable, match=r"from offset 2.*NOT_LEADER") as caught:
            next(reading)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == (TOPIC, 0, 2)
        assert dict(reading.positions) == {0: 2}
        assert reading.is_closed


def test_a_broker_that_goes_away_ends_the_read_and_says_where() -> None:
    with ScriptedBroker() as broker:
        fill(broker)
        broker.script.append(one_batch(broker))
        broker.script.append(lambda _: HANG_UP)
        reading = stream(broker, retry_ms=200, follow=True)
        first = next(reading)
        broker.script += [lambda _: HANG_UP] * 1_000
        with reading, pytest.raises(PartitionUnavailable, match="offset 2"):
            next(reading)
    assert values(first) == [b"0-a", b"0-b"]


def test_an_error_that_does_not_pass_ends_the_read_at_once(broker: ScriptedBroker) -> None:
    fill(broker)
    broker.script.append(broker.refuse(29))
    with pytest.raises(BrokerRefused, match="TOPIC_AUTHORIZATION_FAILED") as caught:
        table(broker)
    assert caught.value.code == 29


def test_retention_that_overtakes_the_reader_is_told_and_not_skipped(
    broker: ScriptedBroker,
) -> None:
    fill(broker)

    def delete(request: Request) -> bytes:
        broker.log_start = 6
        broker.batches = broker.batches[3:]
        return broker.good(request)

    broker.script += [one_batch(broker), delete]
    with stream(broker) as reading:
        assert values(next(reading)) == [b"0-a", b"0-b"]
        with pytest.raises(RetentionOvertook, match=r"offset 2.*begins at 6") as caught:
            next(reading)
    assert (caught.value.offset, caught.value.first_offset) == (2, 6)
    # It is one of those who ask for what is gone, too.
    assert isinstance(caught.value, OutsideRetention)


def test_a_new_leader_without_what_was_read_is_told_by_its_epochs(broker: ScriptedBroker) -> None:
    fill(broker)
    broker.script += [one_batch(broker), broker.refuse(0, diverging_epoch=(0, 1))]
    with stream(broker) as reading:
        next(reading)
        with pytest.raises(LogTruncated, match="begin at 1") as caught:
            next(reading)
    assert caught.value.offset == 1


def test_a_new_leader_whose_log_is_shorter_is_told_by_its_end(broker: ScriptedBroker) -> None:
    fill(broker)

    def cut_off(request: Request) -> bytes:
        del broker.batches[1:]
        return broker.good(request)

    broker.script += [two_batches(broker), cut_off]
    with stream(broker) as reading:
        next(reading)
        with pytest.raises(LogTruncated, match=r"from offset 2 on"):
            next(reading)


def test_out_of_range_for_a_moment_is_asked_again(broker: ScriptedBroker) -> None:
    written = fill(broker)
    broker.script += [one_batch(broker), broker.refuse(OUT_OF_RANGE)]
    assert values(table(broker)) == written


def test_a_topic_that_was_made_again_is_not_taken_for_the_one_before(
    broker: ScriptedBroker,
) -> None:
    fill(broker)

    def make_again(request: Request) -> bytes:
        broker.topic_id = uuid4()
        return broker.refuse(UNKNOWN_ID)(request)

    broker.script += [one_batch(broker), make_again]
    with stream(broker) as reading:
        next(reading)
        with pytest.raises(TopicRecreated, match="made again"):
            next(reading)


def test_a_damaged_batch_ends_the_read_after_everything_before_it(broker: ScriptedBroker) -> None:
    fill(broker)
    damaged = bytearray(broker.batches[2])
    damaged[-1] ^= 1
    broker.batches[2] = bytes(damaged)
    with stream(broker) as reading:
        assert values(next(reading)) == [b"0-a", b"0-b", b"1-a", b"1-b"]
        with pytest.raises(BatchDamaged, match=r"story/0.*checksum") as caught:
            next(reading)
        assert caught.value.offset == 4
        assert dict(reading.positions) == {0: 4}
    with pytest.raises(BatchDamaged):
        table(broker)


def test_a_batch_of_an_old_format_is_told(broker: ScriptedBroker) -> None:
    fill(broker)
    old = bytearray(broker.batches[1])
    old[16] = 1
    broker.batches[1] = bytes(old)
    with pytest.raises(BatchDamaged, match="its format is v1"):
        table(broker)


@pytest.mark.parametrize("at", range(0, 61, 3))
def test_a_batch_damaged_anywhere_never_leaves_a_gap(broker: ScriptedBroker, at: int) -> None:
    """Whatever the header says then, what was handed out is a beginning of the log."""
    written = fill(broker)
    damaged = bytearray(broker.batches[2])
    damaged[at] ^= 0x40
    broker.batches[2] = bytes(damaged)
    got: list[bytes] = []

    def read() -> ReadError | None:
        try:
            with stream(broker, until=8, retry_ms=100) as reading:
                for batch in reading:
                    got.extend(values(batch))
        except ReadError as error:
            return error
        return None

    error = read()
    # Nothing tells a leader epoch that is wrong: brokers write it into batches, and no checksum covers it.
    assert (error is None) == (12 <= at < 16)
    assert got == (written if error is None else written[: len(got)])
    assert error is None or len(got) <= 4


def test_a_batch_that_holds_too_much_is_refused_after_everything_before_it(
    broker: ScriptedBroker,
) -> None:
    broker.append(b"first", codec=Codec.GZIP)
    broker.append(b"x" * 50_000, codec=Codec.GZIP)
    with Cluster(broker.address) as cluster:
        plan = plan_read(cluster, TOPIC)
        settings = ReadSettings(decompressed_max=10_000)
        with read_range(cluster, plan, 0, settings=settings) as reading:
            assert values(next(reading)) == [b"first"]
            with pytest.raises(BatchDamaged, match="more than 10000 bytes") as caught:
                next(reading)
    assert caught.value.offset == 1


def test_a_partition_that_was_not_asked_for_is_refused(broker: ScriptedBroker) -> None:
    fill(broker)

    def other(request: Request) -> bytes:
        return broker.fetched(request, lambda _: FetchedPartition(7, 0, 0, 0, 0, b""))

    broker.script.append(other)
    with pytest.raises(BrokerUnreachable, match="unasked"):
        table(broker)


def test_what_is_not_there_is_told_at_once(broker: ScriptedBroker) -> None:
    with pytest.raises(UnknownTopic, match="'nothing'"):
        read_table("nothing", bootstrap=broker.address)
    with pytest.raises(UnknownPartition, match="no partition 3; it has 1"):
        table(broker, partitions=[0, 3])
    broker.versions[Api.FETCH] = (4, 11)
    broker.append(b"one")
    with pytest.raises(VersionUnsupported, match="Fetch 4 to 11"):
        table(broker)


def test_no_broker_at_all_is_told_after_the_time_given() -> None:
    with ScriptedBroker() as broker:
        address = broker.address
    with pytest.raises(BrokerUnreachable, match=address):
        read_table(TOPIC, bootstrap=address, retry_ms=50)


# -- the end of it -----------------------------------------------------------------------------------------------------


def test_a_stream_that_is_closed_ends_its_threads_and_whoever_waits(broker: ScriptedBroker) -> None:
    fill(broker)
    reading = stream(broker)
    next(reading)
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            next(reading)
        except (ClientClosed, StopIteration) as error:
            caught.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    reading.close()
    waiter.join(10)
    assert len(caught) == 1
    reading.close()
    assert list(reading) == []


def test_a_stream_that_nobody_has_any_more_ends_its_threads(broker: ScriptedBroker) -> None:
    fill(broker)
    before = threading.active_count()
    next(stream(broker))
    wait_until(lambda: threading.active_count() <= before + 2, "the reading threads have ended")
    assert not [one for one in threading.enumerate() if one.name.startswith("respool-read")]


def test_a_stream_that_waits_for_a_broker_that_is_away_is_closed_at_once(
    broker: ScriptedBroker,
) -> None:
    fill(broker)
    broker.script += [broker.refuse(NOT_LEADER)] * 1_000
    reading = stream(broker, retry_ms=600_000)
    wait_until(lambda: len(broker.fetches) > 3, "it has tried again")
    reading.close()


def test_what_nobody_takes_is_not_fetched(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The offset after each piece that was decoded when the queue was full.
    held_up: list[int] = []
    put = BoundedQueue.put

    def recorded(queue: BoundedQueue, piece: Piece) -> None:
        if not queue.has_room:
            held_up.append(piece.next_offset)
        put(queue, piece)

    monkeypatch.setattr(BoundedQueue, "put", recorded)
    for number in range(200):
        broker.append(*[b"%d" % number] * 100)
    step = len(broker.batches[0])
    with stream(broker, fetch_bytes=step, buffer_bytes=1) as reading:
        next(reading)
        # One piece waits in the queue, and the thread that fetches waits with the next until there is room.
        wait_until(lambda: 300 in held_up, "it has read ahead", seconds=60)
        assert max(held_up) == 300
        assert len(broker.fetches) <= 4
        assert sum(batch.num_rows for batch in (next(reading) for _ in range(199))) == 199 * 100


def one_batch(broker: ScriptedBroker) -> Any:
    return some_batches(broker, 1)


def two_batches(broker: ScriptedBroker) -> Any:
    return some_batches(broker, 2)


def some_batches(broker: ScriptedBroker, count: int) -> Any:
    """The next batches of the log, as many as this."""

    def answer(request: Request) -> bytes:
        def read(one: Any) -> FetchedPartition:
            whole = broker._read(one)
            size = sum(len(batch) for batch in broker.batches[one.fetch_offset // 2 :][:count])
            assert isinstance(whole.records, bytes)
            return whole._replace(records=whole.records[:size])

        return broker.fetched(request, read)

    return answer


def empty(broker: ScriptedBroker) -> Any:
    def answer(request: Request) -> bytes:
        return broker.fetched(request, lambda one: broker._read(one)._replace(records=b""))

    return answer


def test_a_stream_that_ends_within_a_batch_goes_on_from_its_end(broker: ScriptedBroker) -> None:
    broker.append(*(b"%d" % number for number in range(10)))
    with stream(broker, until=5, follow=False) as first:
        seen = [value for batch in first for value in values(batch)]
        assert dict(first.positions) == {0: 5}
    with stream(broker, since=dict(first.positions), follow=False) as second:
        seen += [value for batch in second for value in values(batch)]
    assert seen == [b"%d" % number for number in range(10)]


def test_a_followed_stream_waits_for_its_end_longer_than_for_brokers(
    broker: ScriptedBroker,
) -> None:
    broker.append(b"0")
    with stream(broker, until=2, retry_ms=1) as followed:
        assert values(next(followed)) == [b"0"]
        # Nothing comes, in several answers.
        fetches = len(broker.fetches)
        wait_until(lambda: len(broker.fetches) >= fetches + 3, "it goes on asking")
        broker.append(b"1")
        assert [values(batch) for batch in followed] == [[b"1"]]


def test_a_stream_is_of_no_use_to_a_fork_and_not_harmed_by_it(broker: ScriptedBroker) -> None:
    broker.append(b"0")
    with stream(broker) as followed:
        assert values(next(followed)) == [b"0"]
        child = os.fork()
        if not child:
            code = 1
            try:
                followed.poll(0.0)
            except ClientClosed:
                followed.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        connections = broker.connections
        broker.append(b"1")
        assert values(next(followed)) == [b"1"]
        assert broker.connections == connections


def test_a_stream_until_the_latest_ends_there(broker: ScriptedBroker) -> None:
    broker.append(b"0")
    with stream(broker, until="latest") as read:
        assert [values(batch) for batch in read] == [[b"0"]]
