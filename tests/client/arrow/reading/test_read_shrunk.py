"""Tables and streams of a topic that is shrunk, grown and retired, read and written by our own client."""

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import respool
from respool.client.arrow.errors import PartitionRetired
from respool.client.kafka.admin import change_layout, create_partitions
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.reading import watched_topic
from respool.client.kafka.reading.cursor import Cursor
from respool.testing import Broker
from respool.wire.layout_change import LayoutChangeKind
from support.quick_broker import quick_broker

pytestmark = pytest.mark.clients

TOPIC = "rides"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with quick_broker() as running:
        running.create_topic(TOPIC, partitions=4, respool_shrink_barrier_ms="0")
        yield running


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap, retry_ms=5_000) as made:
        yield made


def write(broker: Broker, value: bytes, partition: int = 3) -> Any:
    table = pa.table({"value": [value], "partition": pa.array([partition], pa.int32())})
    return respool.write_table(table, TOPIC, partition="partition", bootstrap=broker.bootstrap)


def read(broker: Broker) -> list[tuple[int, bytes]]:
    table = respool.read_table(TOPIC, bootstrap=broker.bootstrap)
    return [(one["partition"], one["value"]) for one in table.to_pylist()]


def shrink(cluster: Cluster, count: int) -> None:
    change_layout(cluster, TOPIC, LayoutChangeKind.SHRINK, count=count)


def retire(cluster: Cluster) -> None:
    change_layout(cluster, TOPIC, LayoutChangeKind.RETIRE_FORCED)


def test_a_table_has_what_is_sealed_and_what_came_since(broker: Broker, cluster: Cluster) -> None:
    write(broker, b"before")
    shrink(cluster, 2)
    assert write(broker, b"after").rows == 1
    assert read(broker) == [(1, b"after"), (3, b"before")]


def test_a_producer_and_its_transactions_go_on_across_changes(
    broker: Broker, cluster: Cluster
) -> None:
    settings: dict[str, Any] = {"transactional_id": "writer"}
    with respool.ArrowProducer(broker.bootstrap, **settings) as producer:
        for turn, count in enumerate((4, 2, 1, 4)):
            if turn and count < 4:
                shrink(cluster, count)
            elif turn:
                create_partitions(cluster, TOPIC, count=count)
            rows = {"value": [b"%d" % turn] * 4, "partition": pa.array(range(4), pa.int32())}
            with producer.transaction():
                producer.write(pa.table(rows), TOPIC, partition="partition")
    found = read(broker)
    assert sorted(value for _, value in found) == [b"%d" % (one // 4) for one in range(16)]
    assert [value for number, value in found if number == 3] == [b"0", b"3"]


def test_a_stream_reads_to_the_end_of_what_is_retired_and_follows_the_new_layout(
    broker: Broker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_topic, "DISCOVER_EVERY_S", 0.05)
    noticed = threading.Event()
    on_retired = Cursor.on_retired

    def tell(cursor: Cursor) -> None:
        on_retired(cursor)
        noticed.set()

    monkeypatch.setattr(Cursor, "on_retired", tell)
    write(broker, b"before")
    with respool.stream_batches(TOPIC, bootstrap=broker.bootstrap, retry_ms=10_000) as stream:

        def following() -> list[tuple[int, bytes]]:
            rows = next(stream).select(["partition", "value"]).to_pylist()
            return [(one["partition"], one["value"]) for one in rows]

        assert following() == [(3, b"before")]
        shrink(cluster, 2)
        write(broker, b"redirected")
        assert following() == [(1, b"redirected")]
        retire(cluster)
        write(broker, b"retired", partition=1)
        assert following() == [(1, b"retired")]
        # Growing again before that would be the trap of docs/partitions.md.
        assert noticed.wait(30)
        create_partitions(cluster, TOPIC, count=4)
        write(broker, b"anew")
        assert following() == [(3, b"anew")]


def test_a_partition_that_is_retired_with_unread_messages_is_an_error() -> None:
    cursor = Cursor(topic=TOPIC, partition=3, position=5, end=None)
    cursor.log_end = 7
    with pytest.raises(PartitionRetired, match="from offset 5 on were not read"):
        cursor.on_retired()
    cursor.position = 7
    cursor.on_retired()
    assert cursor.is_done
