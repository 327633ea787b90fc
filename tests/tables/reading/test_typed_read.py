"""`respool.read_table` with a schema, from the brokers and from the topic's table; on a broker in the test."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import respool
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import BadArgument
from respool.tables.errors import NoTable, RecordRejected
from respool.tables.service.table_service import TableService
from respool.tables.upkeep.table_operations import create_table
from respool.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"contradicted": 1}) as running:
        yield running


def make_topic(broker: Broker, name: str, *values: bytes) -> str:
    broker.create_topic(name, partitions=1)
    write(broker, name, *values)
    return name


def write(broker: Broker, name: str, *values: bytes) -> None:
    respool.write_table(pa.table({"value": list(values)}), name, bootstrap=broker.bootstrap)


def test_values_are_columns_of_the_schema(broker: Broker) -> None:
    topic = make_topic(broker, "typed", b'{"id":1,"city":"Oslo"}', b'{"id":2,"new":1}')
    found = respool.read_table(
        topic,
        bootstrap=broker.bootstrap,
        schema="declared:id long, city string",
        columns=["id", "city", "_rest"],
    )
    assert found.to_pylist() == [
        {"id": 1, "city": "Oslo", "_rest": None},
        {"id": 2, "city": None, "_rest": '{"new":1}'},
    ]
    inferred = respool.read_table(
        topic, bootstrap=broker.bootstrap, schema="infer", where=pc.field("id") == 2, since=1
    )
    assert inferred.select(["_offset", "id", "new"]).to_pylist() == [
        {"_offset": 1, "id": 2, "new": 1}
    ]
    raw = respool.read_table(topic, bootstrap=broker.bootstrap, schema="raw")
    assert raw["_value"].to_pylist() == [b'{"id":1,"city":"Oslo"}', b'{"id":2,"new":1}']
    assert respool.read_table(topic, bootstrap=broker.bootstrap).num_rows == 2


def test_a_value_that_cannot_be_read_stops_or_is_counted(broker: Broker) -> None:
    topic = make_topic(broker, "bad", b'{"id":1}', b"null", b'{"id":3}')
    with pytest.raises(RecordRejected, match="bad/0 at offset 1 cannot be read: not a JSON object"):
        respool.read_table(topic, bootstrap=broker.bootstrap, schema="declared:id long")
    with respool.stream_batches(
        topic, bootstrap=broker.bootstrap, schema="declared:id long", errors="drop", follow=False
    ) as stream:
        assert [row for batch in stream for row in batch["id"].to_pylist()] == [1, 3]
        assert stream.dropped == 1


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_the_table_and_its_tail_are_one_read(broker: Broker, tmp_path: Path, kind: str) -> None:
    topic = make_topic(broker, f"whole-{kind}", b'{"id":1}', b"null", b'{"id":2}')
    with pytest.raises(NoTable):
        respool.read_table(topic, bootstrap=broker.bootstrap, schema="table")
    settings = {
        "respool.table": kind,
        "respool.table.location": str(tmp_path / "lake"),
        "respool.table.schema": "infer",
    }
    with Cluster(broker.bootstrap) as cluster:
        create_table(cluster, topic, settings)
        result = TableService(cluster, topic).run(once=True)
        assert (result.rows, result.rejected) == (2, 1)
    write(broker, topic, b'{"id":3}', b"[]")

    def ids(**options: object) -> list[int]:
        found = respool.read_table(topic, bootstrap=broker.bootstrap, **options)  # type: ignore[arg-type]
        return list(found["id"].to_pylist())

    assert ids(schema="table") == ids(history="table") == [1, 2, 3]
    assert ids(schema="table", since=2, until=4) == [2, 3]
    assert ids(schema="table", partitions=[7]) == []
    assert ids(schema="declared:id long", errors="drop") == [1, 2, 3]
    with Cluster(broker.bootstrap) as cluster:
        before = _version(cluster, topic)
        TableService(cluster, topic).run(once=True)
    assert ids(schema="table") == [1, 2, 3]
    assert ids(version=before) == [1, 2]


def _version(cluster: Cluster, topic: str) -> int:
    from respool.tables.upkeep.table_operations import table_status

    return table_status(cluster, topic).version


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"schema": "csv"}, "is not one of: raw"),
        ({"history": "tape"}, "'auto', 'table' or 'brokers'"),
        ({"schema": "table", "history": "brokers"}, "contradicts"),
        ({"schema": "infer", "history": "table"}, "its own columns"),
        ({"schema": "table", "lateness": 1}, "not supported for reads of the topic's table"),
        ({"schema": "infer", "errors": "null"}, "'stop' or 'drop'"),
    ],
)
def test_what_contradicts_itself_is_refused(
    broker: Broker, options: dict[str, object], why: str
) -> None:
    with pytest.raises(BadArgument, match=why):
        respool.read_table("contradicted", bootstrap=broker.bootstrap, **options)  # type: ignore[arg-type]
