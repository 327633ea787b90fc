"""Ranges, columns, rows and streams of a real broker's topics."""

import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import TopicPartition

import respool
from respool.client.arrow.errors import OffsetBeyondEnd, OutsideRetention, TopicRecreated
from respool.client.arrow.reading.read import plan_read, read_range
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import BadArgument, UnknownTopic
from respool.client.kafka.reading import watched_topic
from support.broker_process import BrokerProcess
from support.confluent_client import ConfluentClient
from support.message import Message
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("arrow-ranges")]

DAY = timedelta(days=1)
NOW = datetime.now(UTC).replace(microsecond=0)
WRITER = ConfluentClient()
# Days ago, in the order they were written: one came late.
AGES = [5, 4, 2, 3, 1]


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def write(broker: BrokerProcess, topic: str, *values: bytes, partition: int = 0) -> None:
    WRITER.write(broker.address, (topic, partition), [Message(value=value) for value in values])


def values(broker: BrokerProcess, topic: str, **wish: Any) -> list[bytes]:
    table = respool.read_table(topic, bootstrap=broker.address, **wish)
    found = table.column("value").to_pylist()
    assert isinstance(found, list)
    return found


@pytest.fixture(scope="module")
def aged(broker: BrokerProcess, topics: Topics) -> str:
    """Messages of some days, in a batch each; each value says how old it is."""
    topic = topics.new("aged")
    for age in AGES:
        message = Message(value=b"%d" % age, timestamp_ms=ms(NOW - age * DAY))
        WRITER.write(broker.address, (topic, 0), [message])
    return topic


@pytest.fixture(scope="module")
def shared(broker: BrokerProcess, topics: Topics) -> str:
    """Three partitions of ten messages each."""
    topic = topics.new("shared", partitions=3)
    for partition in range(3):
        written = [b"%d-%d" % (partition, number) for number in range(10)]
        write(broker, topic, *written, partition=partition)
    return topic


# -- times -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "until", "found"),
    [
        (None, None, [5, 4, 2, 3, 1]),
        (NOW - 3 * DAY, None, [2, 3, 1]),
        (NOW - 4 * DAY, NOW - 2 * DAY, [4, 3]),
        (None, NOW - 2 * DAY, [5, 4, 3]),
        (NOW - 3 * DAY, NOW - 3 * DAY, []),
        (NOW - 3 * DAY, NOW - 3 * DAY + timedelta(milliseconds=1), [3]),
        # Named: workers that collect it in different seconds must find the same test.
        pytest.param((NOW - 2 * DAY).isoformat(), "latest", [2, 1], id="as text"),
        (NOW, None, []),
        (timedelta(days=3, hours=1), None, [2, 3, 1]),
        (timedelta(days=300), timedelta(days=4, hours=12), [5]),
    ],
)
def test_a_range_of_times_holds_exactly_its_messages(
    broker: BrokerProcess, aged: str, since: Any, until: Any, found: list[int]
) -> None:
    assert values(broker, aged, since=since, until=until) == [b"%d" % age for age in found]


def test_a_promised_lateness_ends_the_read_early(broker: BrokerProcess, aged: str) -> None:
    until = NOW - timedelta(days=2, hours=12)
    with Cluster(broker.address) as cluster:

        def end(lateness: timedelta | None) -> int | None:
            (one,) = plan_read(cluster, aged, until=until, lateness=lateness).ranges
            return one.end

        assert end(None) == 5
        assert end(timedelta(days=1)) == 4
        assert end(timedelta(0)) == 2
    # Promised too little, the late one is missed; promised enough, it is there.
    assert values(broker, aged, until=until, lateness=timedelta(0)) == [b"5", b"4"]
    assert values(broker, aged, until=until, lateness=DAY) == [b"5", b"4", b"3"]


# -- offsets and partitions --------------------------------------------------------------------------------------------


def test_partitions_come_one_after_the_other_in_the_order_of_their_offsets(
    broker: BrokerProcess, shared: str
) -> None:
    table = respool.read_table(shared, bootstrap=broker.address, columns=["partition", "offset"])
    expected = [(partition, offset) for partition in range(3) for offset in range(10)]
    assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == expected


@pytest.mark.parametrize(
    ("wish", "found"),
    [
        ({"since": 8}, ["0-8", "0-9", "1-8", "1-9", "2-8", "2-9"]),
        ({"since": {2: 9, 0: 8}}, ["0-8", "0-9", "2-9"]),
        ({"until": 1}, ["0-0", "1-0", "2-0"]),
        ({"since": 5, "until": {1: 6}}, ["1-5"]),
        ({"since": 9, "until": 1_000, "partitions": [1]}, ["1-9"]),
        ({"since": 10}, []),
        ({"since": "latest"}, []),
        ({"since": "earliest", "until": 0}, []),
        ({"partitions": []}, []),
    ],
)
def test_ranges_of_offsets_are_read_exactly(
    broker: BrokerProcess, shared: str, wish: dict[str, Any], found: list[str]
) -> None:
    assert values(broker, shared, **wish) == [one.encode() for one in found]


def test_an_offset_that_is_not_there_yet_is_refused(broker: BrokerProcess, shared: str) -> None:
    with pytest.raises(OffsetBeyondEnd, match=r"0 to 10"):
        values(broker, shared, since=11)


def test_what_was_deleted_is_refused_with_what_there_is(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("deleted")
    for age in (50, 40, 30):
        message = Message(value=b"%d" % age, timestamp_ms=ms(NOW - timedelta(hours=age)))
        WRITER.write(broker.address, (topic, 0), [message])
    place = TopicPartition(topic, 0, 1)
    topics.admin.delete_records([place])[place].result(10)

    with pytest.raises(OutsideRetention, match="begins at 1") as caught:
        values(broker, topic, since=0)
    assert (caught.value.offset, caught.value.first_offset) == (0, 1)
    # Older than retention.ms, so it may have been there, and the log does not reach back so far.
    with pytest.raises(OutsideRetention, match=r"missing='available'") as caught:
        values(broker, topic, since=timedelta(days=30))
    assert caught.value.first_offset == 1
    assert caught.value.first_time_ms == ms(NOW - timedelta(hours=40))
    assert values(broker, topic, since=timedelta(days=30), missing="available") == [b"40", b"30"]
    assert values(broker, topic, since=0, missing="available") == [b"40", b"30"]
    assert values(broker, topic) == [b"40", b"30"]
    # The log still has one from before.
    assert values(broker, topic, since=timedelta(hours=35)) == [b"30"]


# -- columns and rows --------------------------------------------------------------------------------------------------


def test_columns_come_as_they_are_asked_for(broker: BrokerProcess, shared: str) -> None:
    table = respool.read_table(
        shared, bootstrap=broker.address, columns=["offset", "topic", "value"], partitions=[1]
    )
    assert table.column_names == ["offset", "topic", "value"]
    assert table.slice(3, 1).to_pylist() == [{"offset": 3, "topic": shared, "value": b"1-3"}]
    only = respool.read_table(shared, bootstrap=broker.address, columns=["partition"])
    assert only.column("partition").to_pylist() == [0] * 10 + [1] * 10 + [2] * 10
    assert only.column("partition").type == pa.int32()


@pytest.mark.parametrize(
    "where",
    [
        (pc.field("partition") == 1) & (pc.field("offset") >= 8),
        pc.field("value").isin([b"1-8", b"1-9"]),
        pc.starts_with(pc.field("value").cast(pa.string()), "1-") & (pc.field("offset") > 7),
    ],
)
def test_only_rows_that_are_wanted_come_also_by_columns_that_are_not_shown(
    broker: BrokerProcess, shared: str, where: pc.Expression
) -> None:
    table = respool.read_table(shared, bootstrap=broker.address, columns=["value"], where=where)
    assert table.to_pydict() == {"value": [b"1-8", b"1-9"]}


@pytest.mark.parametrize(
    "wish",
    [
        {"columns": ["nothing"]},
        {"columns": "value"},
        {"columns": []},
        {"columns": ["value", "value"]},
        {"where": pc.field("nothing") == 1},
        {"where": "offset > 1"},
        {"isolation": "read_what_you_like"},
        {"missing": "whatever"},
        {"fetch_bytes": 0},
        {"fetch_bytes": 2**30},
        {"decompressed_max": 0},
        {"parallel": 0},
        {"lateness": timedelta(days=-1)},
        {"since": 5, "until": 4},
        {"bootstrap": "nowhere"},
    ],
)
def test_an_argument_that_cannot_be_is_refused_before_anything_is_asked(
    wish: dict[str, Any],
) -> None:
    with pytest.raises(BadArgument):
        respool.read_table("rides", **{"bootstrap": "127.0.0.1:1", **wish})


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_shows_what_comes_and_another_goes_on_where_it_ended(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("followed")
    write(broker, topic, b"before")
    with respool.stream_batches(topic, bootstrap=broker.address) as stream:
        assert next(stream).column("value").to_pylist() == [b"before"]
        assert stream.poll(0.01) is None
        assert not stream.is_closed
        write(broker, topic, b"one")
        assert next(stream).column("value").to_pylist() == [b"one"]
        positions = dict(stream.positions)
    assert positions == {0: 2}
    write(broker, topic, b"two", b"three")
    again = respool.stream_batches(topic, bootstrap=broker.address, since=positions, follow=False)
    assert [row for batch in again for row in batch.column("value").to_pylist()] == [
        b"two",
        b"three",
    ]
    assert dict(again.positions) == {0: 4}


def test_a_followed_stream_ends_at_the_offsets_it_was_given(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("ended")
    write(broker, topic, b"0", b"1")
    stream = respool.stream_batches(topic, bootstrap=broker.address, until=3)
    got = next(stream).column("value").to_pylist()
    write(broker, topic, b"2", b"3")
    got += [one for batch in stream for one in batch.column("value").to_pylist()]
    assert got == [b"0", b"1", b"2"]
    assert stream.is_closed


def test_partitions_that_a_followed_topic_gets_are_read_from_their_start(
    broker: BrokerProcess, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_topic, "DISCOVER_EVERY_S", 0.05)
    topic = topics.new("growing")
    write(broker, topic, b"old")
    with respool.stream_batches(topic, bootstrap=broker.address, since="latest") as stream:
        topics.grow(topic, partitions=3)
        write(broker, topic, b"new", partition=2)
        assert next(stream).select(["partition", "value"]).to_pylist() == [
            {"partition": 2, "value": b"new"}
        ]


def test_a_topic_made_again_ends_a_stream(
    broker: BrokerProcess, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_topic, "DISCOVER_EVERY_S", 0.05)
    topic = topics.new("again")
    write(broker, topic, b"old")
    with respool.stream_batches(topic, bootstrap=broker.address) as stream:
        next(stream)
        topics.delete(topic)
        topics.create(topic)
        write(broker, topic, b"new", b"newer")
        with pytest.raises(TopicRecreated):
            next(stream)


def test_a_topic_that_is_gone_ends_a_stream_long_before_its_patience_does(
    broker: BrokerProcess, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_topic, "TOPIC_GONE_S", 0.3)
    topic = topics.new("gone")
    write(broker, topic, b"old")
    with respool.stream_batches(topic, bootstrap=broker.address, retry_ms=600_000) as stream:
        next(stream)
        topics.delete(topic)
        with pytest.raises(UnknownTopic):
            next(stream)


def test_a_stream_is_a_record_batch_reader_too(broker: BrokerProcess, shared: str) -> None:
    with respool.stream_batches(shared, bootstrap=broker.address, follow=False) as stream:
        assert stream.reader().read_all().num_rows == 30


def test_a_plan_is_read_in_parts_elsewhere(broker: BrokerProcess, shared: str) -> None:
    with Cluster(broker.address) as cluster:
        plan = plan_read(cluster, shared, since=2, until=4)
        with read_range(cluster, plan, 1, columns=["value"]) as stream:
            assert [batch.to_pydict() for batch in stream] == [{"value": [b"1-2", b"1-3"]}]
        with pytest.raises(BadArgument):
            read_range(cluster, plan, 7)
        # The cluster is still there for the next one.
        with read_range(cluster, plan, 2, columns=["value"]) as stream:
            assert sum(batch.num_rows for batch in stream) == 2


def test_a_broker_that_restarts_in_the_middle_is_waited_for(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("restarted")
    write(broker, topic, *[b"%d" % number for number in range(100)])
    with respool.stream_batches(topic, bootstrap=broker.address) as stream:
        got = next(stream).column("value").to_pylist()
        broker.restart()
        write(broker, topic, b"100")
        while len(got) < 101:
            got += next(stream).column("value").to_pylist()
    assert got == [b"%d" % number for number in range(101)]


def test_no_thread_outlives_a_read(broker: BrokerProcess, shared: str) -> None:
    before = set(threading.enumerate())
    values(broker, shared)
    with respool.stream_batches(shared, bootstrap=broker.address) as stream:
        next(stream)

    def fails() -> None:
        for _ in respool.stream_batches(shared, bootstrap=broker.address):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    wait_until(lambda: set(threading.enumerate()) <= before, "all threads have ended")


def test_ctrl_c_ends_a_process_that_waits_for_messages(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("quiet")
    code = (
        "import respool\n"
        f"stream = respool.stream_batches({topic!r}, bootstrap={broker.address!r})\n"
        "print('waiting', flush=True)\n"
        "next(stream)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "waiting\n"
    os.kill(child.pid, signal.SIGINT)
    _, errors = child.communicate(timeout=20)
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_a_first_read_does_not_wait_for_pandas(broker: BrokerProcess, shared: str) -> None:
    code = (
        "import respool, sys\n"
        f"respool.read_table({shared!r}, bootstrap={broker.address!r})\n"
        "print('pandas' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_process_that_forgets_its_stream_ends(broker: BrokerProcess, shared: str) -> None:
    code = (
        "import respool\n"
        f"stream = respool.stream_batches({shared!r}, bootstrap={broker.address!r})\n"
        "print(next(stream).num_rows)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("10\n", "", 0)


@pytest.mark.parametrize("topic", [["rides"], b"rides", None])
def test_a_topic_that_is_no_text_is_refused_before_anybody_is_asked(topic: Any) -> None:
    with pytest.raises(BadArgument, match="the name of one topic"):
        respool.read_table(topic, bootstrap="127.0.0.1:1")
