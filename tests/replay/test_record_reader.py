"""The records of offset ranges, as a real broker serves them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer

from respool.client.arrow.errors import RetentionOvertook
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.list_offsets import Isolation
from respool.model.ids import Offset
from respool.records.build import NewRecord, build_batch
from respool.records.markers import EndTransactionMarker, build_marker
from respool.replay.copy_plan import Span
from respool.replay.errors import ReplayUnreachable
from respool.replay.record_reader import RecordRangeReader, data_batches
from respool.replay.topic_lookup import held_spans
from respool.testing import Broker
from support.confluent_client import ConfluentClient
from support.fetched_part import fetched_part
from support.message import CODECS, Message


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as cluster:
        yield cluster


def write(broker: Broker, topic: str, *values: bytes, partition: int = 0, **options: Any) -> None:
    messages = [Message(key=b"k", value=value, headers=(("h", None),)) for value in values]
    ConfluentClient().write(broker.bootstrap, (topic, partition), messages, **options)


def read(
    cluster: Cluster, topic: str, spans: dict[int, Span], **options: Any
) -> dict[int, list[tuple[int, bytes]]]:
    reader = RecordRangeReader(cluster, topic, spans, **options)
    found: dict[int, list[tuple[int, bytes]]] = {number: [] for number in spans}
    for fetched in reader.batches():
        for partition, records in fetched:
            found[partition] += [(one.offset, one.value or b"") for one in records]
    assert reader.undone == []
    reader.close()
    return found


def test_exactly_the_offsets_asked_for_are_read_in_order(broker: Broker, cluster: Cluster) -> None:
    topic = broker.new_topic("plain", partitions=2)
    for partition in (0, 1):
        write(broker, topic, *(b"%d" % n for n in range(50)), partition=partition)
    spans = {0: Span(7, 31), 1: Span(0, 50)}
    found = read(cluster, topic, spans)
    assert found == {
        number: [(n, b"%d" % n) for n in range(*span)] for number, span in spans.items()
    }
    assert read(cluster, topic, {0: Span(5, 5)}) == {0: []}


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read(broker: Broker, cluster: Cluster, codec: str) -> None:
    topic = broker.new_topic(codec)
    write(broker, topic, b"a", b"", b"c" * 5_000, codec=codec)
    assert read(cluster, topic, {0: Span(0, 3)}) == {0: [(0, b"a"), (1, b""), (2, b"c" * 5_000)]}


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_aborted_transactions_are_left_out_unless_all_is_read(
    broker: Broker, cluster: Cluster, isolation: Isolation
) -> None:
    topic = broker.new_topic("transactions")
    for number, commits in enumerate((True, False, True, False)):
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-{number}"}
        )
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush(20)
        (producer.commit_transaction if commits else producer.abort_transaction)(20)
    write(broker, topic, b"plain")
    held = held_spans(cluster, topic, [0], isolation=isolation)
    found = read(cluster, topic, held, isolation=isolation)[0]
    # The markers have offsets, and are not records.
    wanted = b"0 2 plain" if isolation == "read_committed" else b"0 1 2 3 plain"
    assert b" ".join(value for _, value in found) == wanted


def test_a_partition_on_hold_is_not_fetched_until_it_is_released(
    broker: Broker, cluster: Cluster
) -> None:
    topic = broker.new_topic("held", partitions=2)
    for partition in (0, 1):
        write(broker, topic, b"a", partition=partition)
    reader = RecordRangeReader(cluster, topic, {0: Span(0, 1), 1: Span(0, 1)})
    reader.hold(1)
    while reader.undone != [1]:
        assert all(partition == 0 for partition, _ in reader.read(seconds=1.0))
    assert reader.read(seconds=0.1) == []
    reader.release(1)
    while not reader.is_done:
        assert all(partition == 1 for partition, _ in reader.read(seconds=1.0))
    reader.close()


def test_a_broker_that_restarts_is_waited_for(tmp_path: Any) -> None:
    with Broker(topics={"rides": 1}, data=tmp_path) as broker, Cluster(broker.bootstrap) as cluster:
        write(broker, "rides", b"a", b"b")
        notes: list[str] = []
        reader = RecordRangeReader(cluster, "rides", {0: Span(0, 3)}, on_note=notes.append)
        while not reader.read(seconds=1.0):
            pass
        broker.restart()
        write(broker, "rides", b"c")
        values = [
            record.value
            for fetched in reader.batches()
            for _, records in fetched
            for record in records
        ]
        reader.close()
        assert values == [b"c"]
        assert notes[0].endswith("; trying again")
        assert notes[1:] == ["the broker answers again"]


def test_a_broker_that_stays_away_is_reported(tmp_path: Any) -> None:
    with Broker(topics={"rides": 1}, data=tmp_path) as broker, Cluster(broker.bootstrap) as cluster:
        write(broker, "rides", b"a")
        reader = RecordRangeReader(cluster, "rides", {0: Span(0, 1)}, retry_ms=200)
        broker.stop()
        with pytest.raises(ReplayUnreachable, match="rides/0 could not be read for"):
            for _ in reader.batches():
                pass
        reader.close()


def test_a_long_pause_between_reads_does_not_count_as_failing(tmp_path: Any) -> None:
    now = 1000.0
    notes: list[str] = []
    with Broker(topics={"rides": 1}, data=tmp_path) as broker, Cluster(broker.bootstrap) as cluster:
        write(broker, "rides", b"a")
        reader = RecordRangeReader(
            cluster, "rides", {0: Span(0, 1)}, on_note=notes.append, clock=lambda: now
        )
        broker.stop()
        assert reader.read(seconds=0) == []
        # The replay is paused while the partition is failing; its next failure is not the last one.
        now += 3600.0
        assert reader.read(seconds=0) == []
        assert len(notes) == 1
        assert notes[0].endswith("; trying again")
        reader.close()


def test_deleted_offsets_are_reported(broker: Broker, cluster: Cluster) -> None:
    topic = broker.new_topic("deleted", retention_ms=1)
    write(broker, topic, b"a")
    reader = RecordRangeReader(cluster, topic, {0: Span(0, 5)})
    broker.clock.advance(days=2)
    with pytest.raises(RetentionOvertook):
        for _ in reader.batches():
            pass
    reader.close()


def test_a_batch_belongs_to_the_aborted_transaction_that_begins_in_it() -> None:
    def data(offset: int, producer: int) -> bytes:
        return build_batch(
            [NewRecord(value=b"x")],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )

    def marker(offset: int, producer: int, *, is_commit: bool) -> bytes:
        end = EndTransactionMarker(
            producer_id=producer, producer_epoch=0, coordinator_epoch=0, is_commit=is_commit
        )
        batch = build_marker(end, timestamp_ms=0)
        return offset.to_bytes(8) + bytes(batch.data)[8:]

    log = b"".join(
        (
            data(0, 1),
            data(1, 2),
            marker(2, 1, is_commit=True),
            data(3, 1),
            marker(4, 1, is_commit=False),
            data(5, 1),
            marker(6, 2, is_commit=False),
            data(7, 2),
            # The reply ends within a batch.
            data(8, 2)[:-1],
        )
    )
    part = replace(fetched_part(0, records=log), aborted=((2, 1), (1, 3)))
    kept = [batch.header.base_offset for batch in data_batches(part, committed_only=True)]
    assert kept == [Offset(0), Offset(5), Offset(7)]
    everything = [batch.header.base_offset for batch in data_batches(part, committed_only=False)]
    assert everything == [0, 1, 3, 5, 7]
