"""Reads of messages with some tags: their rows, positions, ranges and transactions are those of the whole topic."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import respool
from records.match_contract import conditions, is_shown, tagged_records
from records.record_examples import NOON_MS
from respool.client.arrow.reading.read import plan_read, read_range
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import BadArgument
from respool.model.where import Where
from respool.records.batch import Codec
from respool.records.build import NewRecord, build_batch
from respool.testing import Broker
from support.confluent_client import TIMEOUT_S, producer
from support.quick_broker import quick_broker
from support.raw_client import RawClient
from support.received_bytes import ReceivedBytes
from support.topics import Topics
from support.waiting import wait_until

REGIONS = ("eu", "us", "apac")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with quick_broker({"tag_index_check_ms": 10}) as running:
        yield running


@pytest.fixture(scope="module")
def topics(broker: Broker) -> Topics:
    return Topics(broker.bootstrap)


def record(number: int) -> NewRecord:
    """Regions take turns; every tenth is paid."""
    headers = (
        ("region", REGIONS[number % len(REGIONS)].encode()),
        ("tag", b"paid" if number % 10 == 0 else b"open"),
    )
    return NewRecord(key=b"rider-%d" % (number % 7), value=b"%d" % number, headers=headers)


def write(
    broker: Broker, topic: str, records: list[NewRecord], *, partition: int = 0, codec: Codec
) -> None:
    with RawClient(broker.bootstrap) as client:
        for begin in range(0, len(records), 20):
            batch = build_batch(records[begin : begin + 20], codec=codec)
            assert client.produce(topic, batch, partition=partition).error_code == 0


@pytest.fixture(scope="module", params=[Codec.NONE, Codec.ZSTD], ids=lambda codec: codec.name)
def rides(request: pytest.FixtureRequest, broker: Broker, topics: Topics) -> str:
    """Two partitions of a hundred messages each."""
    topic = topics.new("rides", partitions=2)
    for partition in range(2):
        write(
            broker,
            topic,
            [record(number) for number in range(100)],
            partition=partition,
            codec=request.param,
        )
    return topic


def offsets(table: pa.Table) -> list[tuple[int, int]]:
    return list(
        zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True)
    )


def in_both(*numbers: int) -> list[tuple[int, int]]:
    return [(partition, number) for partition in range(2) for number in numbers]


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ({"tag": "paid"}, range(0, 100, 10)),
        ({"tag": b"paid", "region": ["eu", "us"]}, [0, 10, 30, 40, 60, 70, 90]),
        ({"region": ("eu",), "tag": ["paid", "other"]}, range(0, 100, 30)),
        ("tag = 'paid' and region != 'eu'", [10, 20, 40, 50, 70, 80]),
        ("key starts 'rider-6' and exists(tag)", range(6, 100, 7)),
        ({"tag": "nobody's"}, []),
    ],
)
def test_only_messages_with_the_tags_are_read(
    broker: Broker, rides: str, tags: Any, found: Any
) -> None:
    table = respool.read_table(rides, bootstrap=broker.bootstrap, tags=tags)
    assert offsets(table) == in_both(*found)
    assert table.column("value").to_pylist() == [b"%d" % number for _, number in in_both(*found)]


def test_tags_need_no_columns_and_go_with_where_and_with_ranges(broker: Broker, rides: str) -> None:
    table = respool.read_table(
        rides,
        bootstrap=broker.bootstrap,
        columns=["partition", "offset"],
        tags={"tag": "paid"},
        where=pc.field("offset") != 30,
        since={0: 15, 1: 71},
        until=80,
    )
    assert table.column_names == ["partition", "offset"]
    assert offsets(table) == [(0, 20), (0, 40), (0, 50), (0, 60), (0, 70)]


def test_keys_of_where_are_compared_early_with_the_same_rows(broker: Broker, rides: str) -> None:
    for where in (
        pc.field("key") == b"rider-3",
        pc.field("key").isin([b"rider-3", b"rider-5"]) & (pc.field("offset") > 50),
        (pc.field("key") == b"rider-3") | (pc.field("offset") == 7),
        (pc.field("key") == b"rider-3") & (pc.field("key") == b"rider-4"),
        pc.field("key") != b"rider-3",
    ):
        table = respool.read_table(rides, bootstrap=broker.bootstrap, where=where)
        assert table == respool.read_table(rides, bootstrap=broker.bootstrap).filter(where)


def test_positions_pass_what_does_not_match(broker: Broker, rides: str) -> None:
    with respool.stream_batches(
        rides, bootstrap=broker.bootstrap, tags={"tag": "nobody's"}, follow=False, fetch_bytes=500
    ) as stream:
        assert list(stream) == []
        assert dict(stream.positions) == {0: 100, 1: 100}


def test_a_stream_follows_and_goes_on_where_another_ended(broker: Broker, topics: Topics) -> None:
    topic = topics.new("followed")
    write(broker, topic, [record(number) for number in range(15)], codec=Codec.NONE)
    wish: dict[str, Any] = {"bootstrap": broker.bootstrap, "tags": {"tag": "paid"}}
    with respool.stream_batches(topic, **wish) as stream:
        got: list[int] = []
        while len(got) < 2:
            got += next(stream).column("offset").to_pylist()
        write(broker, topic, [record(number) for number in range(11, 40)], codec=Codec.NONE)
        while len(got) < 4:
            got += next(stream).column("offset").to_pylist()
        positions = dict(stream.positions)
    assert got == [0, 10, 15 + 9, 15 + 19]
    # All batches of the last piece were decoded, those of the others, too.
    assert got[-1] < positions[0] <= 44
    write(broker, topic, [record(10)], codec=Codec.NONE)
    with respool.stream_batches(topic, since=positions, **wish) as stream:
        assert next(stream).column("offset").to_pylist() == [44]


def test_one_range_of_a_plan_is_read_with_tags(broker: Broker, rides: str) -> None:
    with Cluster(broker.bootstrap) as cluster:
        plan = plan_read(cluster, rides, since=30)
        with read_range(cluster, plan, 1, tags={"tag": "paid"}) as stream:
            table = pa.Table.from_batches(list(stream), stream.schema)
    assert offsets(table) == [(1, number) for number in range(30, 100, 10)]


def test_a_view_is_read_by_its_name_and_with_tags(
    broker: Broker, topics: Topics, rides: str
) -> None:
    view = topics.new(
        "rides.v.paid", partitions=2, respool_view_of=rides, respool_view_where="tag = 'paid'"
    )
    table = respool.read_table(view, bootstrap=broker.bootstrap)
    assert offsets(table) == in_both(*range(0, 100, 10))
    assert set(table.column("topic").to_pylist()) == {view}
    table = respool.read_table(view, bootstrap=broker.bootstrap, tags={"region": "eu"}, since=10)
    assert offsets(table) == in_both(30, 60, 90)
    with respool.stream_batches(view, bootstrap=broker.bootstrap, since=91, follow=False) as stream:
        assert list(stream) == []
        assert dict(stream.positions) == {0: 100, 1: 100}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_batches_that_cannot_match_do_not_leave_the_broker(
    broker: Broker, topics: Topics, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.new("indexed", respool_tags="tag,key", segment_bytes=200_000)
    rng = Random(1)
    with RawClient(broker.bootstrap) as client:
        for number in range(100):
            tag = b"paid" if number % 20 == 0 else b"open"
            batch = [
                NewRecord(key=b"%d" % number, value=rng.randbytes(400), headers=(("tag", tag),))
                for _ in range(20)
            ]
            assert client.produce(topic, build_batch(batch, codec=codec)).error_code == 0
    received = ReceivedBytes(monkeypatch)
    everything = respool.read_table(topic, bootstrap=broker.bootstrap)
    whole = received.take()

    def offsets_of(**wish: Any) -> list[int]:
        table = respool.read_table(topic, bootstrap=broker.bootstrap, columns=["offset"], **wish)
        found: list[int] = table.column("offset").to_pylist()
        return found

    paid = [at for at in range(2_000) if at // 20 % 20 == 0]

    def is_little() -> bool:
        assert offsets_of(tags={"tag": "paid"}) == paid
        return received.take() < whole / 10

    wait_until(is_little, "the topic is indexed")
    assert everything.num_rows == 2_000
    assert offsets_of(tags={"tag": "nobody's"}) == []
    assert offsets_of(where=pc.field("key").isin([b"7", b"71"])) == [
        *range(140, 160),
        *range(1420, 1440),
    ]
    assert offsets_of(tags={"tag": "paid"}, since=395, until=405) == [400, 401, 402, 403, 404]
    assert received.take() < whole / 10
    with respool.stream_batches(
        topic, bootstrap=broker.bootstrap, tags={"tag": "nobody's"}, follow=False
    ) as stream:
        assert list(stream) == []
        assert dict(stream.positions) == {0: 2_000}
    # What no index excludes is sent.
    assert len(offsets_of(tags="tag != 'paid'")) == 1_900
    assert received.take() > whole * 0.9


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_aborted_and_open_transactions_are_left_out(
    broker: Broker, topics: Topics, codec: str
) -> None:
    topic = topics.new("transactions")
    sender = producer(broker.bootstrap, transactional_id=topic, compression_type=codec)
    sender.init_transactions(TIMEOUT_S)

    def send(*values: str) -> None:
        for value in values:
            for tag in ("paid", "open"):
                sender.produce(topic, f"{value}-{tag}", headers=[("tag", tag)], partition=0)
        assert sender.flush(TIMEOUT_S) == 0

    for value, end in (
        ("aborted", sender.abort_transaction),
        ("kept", sender.commit_transaction),
        ("void", sender.abort_transaction),
    ):
        sender.begin_transaction()
        send(value)
        end(TIMEOUT_S)
    sender.begin_transaction()
    send("pending")

    def read(**wish: Any) -> list[bytes]:
        table = respool.read_table(
            topic, bootstrap=broker.bootstrap, tags={"tag": "paid"}, fetch_bytes=1, **wish
        )
        found: list[bytes] = table.column("value").to_pylist()
        return found

    assert read() == [b"kept-paid"]
    uncommitted = [b"aborted-paid", b"kept-paid", b"void-paid", b"pending-paid"]
    assert read(isolation="read_uncommitted") == uncommitted
    sender.commit_transaction(TIMEOUT_S)
    # The commit may reach the partition after its reply; nothing of another transaction is written before.
    sender.begin_transaction()
    send("later")
    assert read() == [b"kept-paid", b"pending-paid"]


def test_wrong_tags_are_refused_before_anything_is_read(broker: Broker, rides: str) -> None:
    with pytest.raises(BadArgument, match="tag: no values, so that no record could match"):
        respool.read_table(rides, bootstrap=broker.bootstrap, tags={"tag": []})
    with pytest.raises(BadArgument, match="position 7: found `paid`"):
        respool.stream_batches(rides, bootstrap="nobody:1", tags="tag = paid")


@given(
    batches=st.lists(tagged_records.filter(len), min_size=1, max_size=4),
    where=conditions,
    choices=st.tuples(st.sampled_from(list(Codec)), st.integers(0, 3)),
)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_table_holds_what_plain_python_finds(
    broker: Broker,
    topics: Topics,
    batches: list[list[NewRecord]],
    where: Where,
    choices: tuple[Codec, int],
) -> None:
    topic = topics.new("any")
    codec, begin = choices
    records = [replace(one, timestamp_ms=NOON_MS) for batch in batches for one in batch]
    with RawClient(broker.bootstrap) as client:
        at = 0
        for batch in batches:
            data = build_batch(records[at : at + len(batch)], codec=codec)
            assert client.produce(topic, data).error_code == 0
            at += len(batch)
    table = respool.read_table(
        topic, bootstrap=broker.bootstrap, since=min(begin, len(records)), tags=str(where)
    )
    rows = [
        (row["offset"], row["key"], row["value"], [tuple(one.values()) for one in row["headers"]])
        for row in table.to_pylist()
    ]
    assert rows == [
        (number, one.key, one.value, list(one.headers))
        for number, one in enumerate(records)
        if number >= begin and is_shown(where, one)
    ]
