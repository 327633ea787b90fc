"""A batch read takes what its options say, leaves out what filters say, and misses nothing silently."""

import logging
import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import confluent_kafka as ck
import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
)
from pyspark.sql.types import StructType

import respool
from respool.spark.option_values import BadOption
from respool.spark.source.brokers import BrokersAway
from respool.spark.source.loss import DataLost
from respool.testing import Broker
from support.received_bytes import ReceivedBytes
from support.spark_story import Story
from support.waiting import wait_until

T0 = 1_700_000_000_000


def time_of(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


@pytest.fixture
def rides(story: Story) -> Story:
    """Ten messages in each of two partitions, a second apart: p0-0 to p1-9."""
    # They are old, and should stay.
    story.topics.create("rides", partitions=2, retention_ms=-1)
    for partition in (0, 1):
        story.write(
            "rides",
            [f"p{partition}-{number}" for number in range(10)],
            to=partition,
            at=[T0 + 1000 * number for number in range(10)],
            key=[f"k{number % 2}" for number in range(10)],
        )
    return story


def names(p0: range, p1: range) -> list[str]:
    return [f"p0-{one}" for one in p0] + [f"p1-{one}" for one in p1]


def test_all_of_a_topic_comes_with_sparks_columns(rides: Story) -> None:
    rows = rides.batch().rows()
    assert [row["value"].decode() for row in rows] == names(range(10), range(10))
    assert rows[0] == {
        "key": b"k0",
        "value": b"p0-0",
        "topic": "rides",
        "partition": 0,
        "offset": 0,
        "timestamp": time_of(T0),
        "timestampType": 0,
    }


@pytest.mark.parametrize(
    ("given", "p0", "p1"),
    [
        ({"startingOffsets": "earliest"}, range(10), range(10)),
        ({"startingOffsets": '{"rides":{"0":3,"1":-2}}'}, range(3, 10), range(10)),
        ({"endingOffsets": '{"rides":{"0":3,"1":-1}}'}, range(3), range(10)),
        ({"startingTimestamp": T0 + 6500}, range(7, 10), range(7, 10)),
        (
            {"startingOffsetsByTimestamp": f'{{"rides":{{"0":{T0 + 8000},"1":{T0}}}}}'},
            range(8, 10),
            range(10),
        ),
        ({"endingTimestamp": T0 + 2000}, range(2), range(2)),
        ({"endingTimestamp": T0 + 99_000}, range(10), range(10)),
        (
            {"endingOffsetsByTimestamp": f'{{"rides":{{"0":{T0 + 1000},"1":{T0 + 99_000}}}}}'},
            range(1),
            range(10),
        ),
        ({"startingTimestamp": T0 + 3000, "endingTimestamp": T0 + 5000}, range(3, 5), range(3, 5)),
        (
            {
                "startingTimestamp": T0 + 99_000,
                "startingOffsetsByTimestampStrategy": "latest",
            },
            range(0),
            range(0),
        ),
    ],
)
def test_starts_and_ends_are_as_options_say(
    rides: Story, given: dict[str, Any], p0: range, p1: range
) -> None:
    assert rides.batch(**given).values() == names(p0, p1)


def test_topics_are_assigned_named_or_matched(rides: Story) -> None:
    rides.topics.create("fares")
    rides.write("fares", ["f"])
    assert rides.batch(assign='{"rides":[1]}').values() == names(range(0), range(10))
    assert rides.batch(subscribe="fares,rides").values() == ["f", *names(range(10), range(10))]
    assert rides.batch(subscribePattern="f.*|x").values() == ["f"]
    assert rides.batch(subscribePattern="nothing").values() == []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"startingTimestamp": T0 + 99_000}, "startingTimestamp.*rides/0 has no message"),
        ({"startingOffsets": '{"rides":{"0":3}}'}, r"startingOffsets.*lacks \[1\]"),
        ({"startingOffsets": '{"rides":{"0":3,"1":1,"7":1}}'}, r"startingOffsets has.*\[7\]"),
        ({"startingOffsets": '{"fares":{"0":3}}'}, "startingOffsets names.*fares"),
        ({"assign": '{"rides":[2]}'}, "assign has partition 2"),
    ],
)
def test_points_that_cannot_be_are_refused_by_name(
    rides: Story, given: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadOption, match=named):
        rides.batch(**given)


def test_a_topic_that_is_not_there_is_named(rides: Story) -> None:
    with pytest.raises(BadOption, match="subscribe names the topic 'trips', which is not there"):
        rides.batch(subscribe="rides,trips")


def test_filters_on_partitions_and_offsets_shorten_the_plan(rides: Story) -> None:
    read = rides.batch(
        EqualTo(("partition",), 1), GreaterThanOrEqual(("offset",), 4), LessThan(("offset",), 6)
    )
    assert read.offsets == {("rides", 1): (4, 6)}
    assert read.left == []
    assert read.values() == ["p1-4", "p1-5"]


def test_a_filter_on_time_begins_by_the_index_and_is_exact(rides: Story) -> None:
    rides.write("rides", ["late"], to=0, at=T0)
    read = rides.batch(
        IsNotNull(("timestamp",)),
        GreaterThanOrEqual(("timestamp",), time_of(T0 + 8000)),
        LessThan(("timestamp",), time_of(T0 + 9000)),
    )
    assert read.left == []
    # What comes late may lie behind, so the end is not shortened.
    assert read.offsets == {("rides", 0): (8, 11), ("rides", 1): (8, 10)}
    assert read.values() == ["p0-8", "p1-8"]


def test_an_upper_time_ends_the_plan_where_lateness_is_promised(rides: Story) -> None:
    read = rides.batch(LessThan(("timestamp",), time_of(T0 + 3000)), maxLateness="2s")
    assert read.offsets == {("rides", 0): (0, 5), ("rides", 1): (0, 5)}
    assert read.values() == names(range(3), range(3))


def test_what_cannot_match_does_not_leave_the_broker(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.topics.create("rides", retention_ms=-1)
    for hour in range(50):
        story.write("rides", ["x" * 1000] * 100, at=T0 + 3_600_000 * hour)
    received = ReceivedBytes(monkeypatch)
    assert len(story.batch().rows()) == 5000
    whole = received.take()
    last_hour = GreaterThanOrEqual(("timestamp",), time_of(T0 + 3_600_000 * 49))
    assert len(story.batch(last_hour).rows()) == 100
    assert received.take() < whole / 20


def test_tags_and_keys_that_cannot_match_do_not_leave_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Broker(settings={"tag_index_check_ms": 10}) as broker:
        story = Story(broker)
        story.topics.create("rides", respool_tags="tag,key")
        for number in range(50):
            paid = number % 25 == 0
            story.write(
                "rides", ["x" * 1000] * 100, tag="paid" if paid else "open", key=f"{number}"
            )
        received = ReceivedBytes(monkeypatch)
        assert len(story.batch().rows()) == 5000
        whole = received.take()

        def is_little(*filters: Filter, rows: int, **options: Any) -> bool:
            assert len(story.batch(*filters, **options).rows()) == rows
            return received.take() < whole / 10

        wait_until(lambda: is_little(rows=200, tags="tag = 'paid'"), "the topic is indexed")
        assert is_little(rows=0, tags='{"tag": "nobody"}')
        assert is_little(EqualTo(("key",), b"7"), rows=100)
        assert is_little(In(("key",), (b"7", b"8")), rows=200)
        assert not is_little(rows=4800, tags='{"tag": ["open"]}')


def test_a_filter_on_keys_leaves_rows_out_before_spark_sees_them(rides: Story) -> None:
    read = rides.batch(EqualTo(("key",), b"k1"), LessThan(("offset",), 4))
    assert read.values() == ["p0-1", "p0-3", "p1-1", "p1-3"]


def test_tags_leave_rows_out_before_spark_sees_them(story: Story) -> None:
    story.topics.create("rides", partitions=2)
    for partition in (0, 1):
        story.write(
            "rides",
            [f"p{partition}-{number}" for number in range(10)],
            to=partition,
            key=[f"k{number % 2}" for number in range(10)],
            tag=["paid" if number % 5 == 0 else "open" for number in range(10)],
        )
    paid = story.batch(tags='{"tag": "paid"}')
    # Offsets are planned as for the whole topic.
    assert paid.offsets == {("rides", 0): (0, 10), ("rides", 1): (0, 10)}
    assert paid.values() == ["p0-0", "p0-5", "p1-0", "p1-5"]
    both = story.batch(EqualTo(("key",), b"k1"), tags="tag in ('paid', 'other')")
    assert both.left == []
    assert both.values() == ["p0-5", "p1-5"]
    assert story.batch(tags="tag = 'nobody''s'").rows() == []
    split = story.batch(tags="tag != 'paid'", maxRecordsPerPartition=3)
    assert len(split.ranges) == 8
    assert len(split.rows()) == 16


def test_a_given_schema_reads_only_its_columns(rides: Story) -> None:
    rows = rides.batch(EqualTo(("key",), b"k1"), schema=StructType().add("offset", "long")).rows()
    assert rows[:2] == [{"offset": 1}, {"offset": 1}]
    assert len(rows) == 10


def test_large_ranges_are_split(rides: Story) -> None:
    read = rides.batch(maxRecordsPerPartition=4)
    assert [one.count for one in read.ranges] == [3, 3, 4, 3, 3, 4]
    assert read.values() == names(range(10), range(10))
    assert len(rides.batch(minPartitions=7).ranges) == 7


def delete_before(story: Story, partition: int, offset: int) -> None:
    place = ck.TopicPartition("rides", partition, offset)
    story.topics.admin.delete_records([place])[place].result(10)


def test_a_start_that_was_deleted_is_an_error_that_names_place_offset_and_option(
    rides: Story,
) -> None:
    delete_before(rides, 0, 5)
    with pytest.raises(DataLost, match=r"rides/0: startingOffsets.*offset 2.*failOnDataLoss"):
        rides.batch(startingOffsets='{"rides":{"0":2,"1":0}}')
    assert rides.batch().values() == names(range(5, 10), range(10))


def test_a_start_that_was_deleted_is_passed_over_with_a_warning_where_loss_is_allowed(
    rides: Story, caplog: pytest.LogCaptureFixture
) -> None:
    delete_before(rides, 0, 5)
    with caplog.at_level(logging.WARNING):
        read = rides.batch(startingOffsets='{"rides":{"0":2,"1":0}}', failOnDataLoss="false")
    assert "offset 2" in caplog.text
    assert read.values() == names(range(5, 10), range(10))


@pytest.mark.parametrize(
    "given",
    [
        {"endingOffsets": '{"rides":{"0":99,"1":-1}}'},
        {"startingOffsets": '{"rides":{"0":99,"1":-2}}'},
    ],
)
def test_offsets_beyond_the_end_are_an_error_or_what_there_is(
    rides: Story, given: dict[str, Any]
) -> None:
    with pytest.raises(DataLost, match=r"rides/0.*99.*ends at 10"):
        rides.batch(**given)
    allowed = rides.batch(**given, failOnDataLoss="false").values()
    assert allowed == names(range(10 if "endingOffsets" in given else 0), range(10))


def test_retention_that_overtakes_a_read_is_an_error_or_goes_on_behind_it(
    rides: Story, caplog: pytest.LogCaptureFixture
) -> None:
    strict = rides.batch(assign='{"rides":[0]}')
    lenient = rides.batch(assign='{"rides":[0]}', failOnDataLoss="false")
    delete_before(rides, 0, 5)
    with pytest.raises(
        DataLost, match=r"rides/0: offsets 0 to 4 have been deleted.*failOnDataLoss"
    ):
        strict.rows()
    with caplog.at_level(logging.WARNING):
        assert lenient.values() == names(range(5, 10), range(0))
    assert "offsets 0 to 4" in caplog.text


def test_a_topic_made_again_between_plan_and_read_is_never_taken_for_the_first(
    rides: Story,
) -> None:
    strict, lenient = rides.batch(), rides.batch(failOnDataLoss="false")
    rides.topics.delete("rides")
    rides.topics.create("rides", partitions=2)
    rides.write("rides", ["other"], to=0)
    with pytest.raises(DataLost, match=r"made again|no partition|no topic"):
        strict.rows()
    assert lenient.values() == []


def test_a_topic_deleted_between_plan_and_read_is_an_error_or_passed_over(rides: Story) -> None:
    strict, lenient = rides.batch(), rides.batch(failOnDataLoss="false")
    # The process knows the topic from before.
    assert strict.values() == names(range(10), range(10))
    rides.topics.delete("rides")
    with pytest.raises(DataLost, match=r"rides/0: offsets from 0 to 9 cannot be read.*no topic"):
        strict.rows()
    assert lenient.values() == []


def test_a_topic_deleted_while_it_is_read_is_an_error_or_passed_over(rides: Story) -> None:
    waits: dict[str, Any] = {"kafkaConsumer.pollTimeoutMs": 2000}
    for fails in ("true", "false"):
        rides.topics.create("trips")
        rides.write("trips", ["x"] * 20_000)
        read = rides.batch(subscribe="trips", failOnDataLoss=fails, **waits)
        reader, (part,) = pickle.loads(read.sent)
        # One more than there are, so that it is still being read when it goes.
        rows = reader.read(InputPartition(replace(part.value, end=20_001)))
        assert next(rows).num_rows == 20_000
        rides.topics.delete("trips")
        if fails == "true":
            with pytest.raises(DataLost, match="trips/0"):
                list(rows)
        else:
            assert list(rows) == []


def test_brokers_that_do_not_answer_are_told_by_the_option(
    story: Story,
) -> None:
    words = r"^no broker at 127\.0\.0\.1:1, from bootstrap \(127\.0\.0\.1:1: connection refused\)"
    with pytest.raises(BrokersAway, match=words):
        story.batch(bootstrap="127.0.0.1:1")


def test_only_committed_messages_are_read_unless_others_are_wanted(rides: Story) -> None:
    with respool.ArrowProducer(rides.broker.bootstrap, transactional_id="t") as producer:
        producer.begin()
        producer.write(pa.table({"value": ["aborted"], "to": [0]}), "rides", partition="to")
        producer.flush()
        producer.abort()
        producer.begin()
        producer.write(pa.table({"value": ["committed"], "to": [0]}), "rides", partition="to")
        producer.commit()
        producer.begin()
        producer.write(pa.table({"value": ["open"], "to": [0]}), "rides", partition="to")
        producer.flush()
        seen = rides.batch().values()
        uncommitted = rides.batch(isolation="read_uncommitted").values()
        producer.abort()
    assert [one for one in seen if "-" not in one] == ["committed"]
    assert [one for one in uncommitted if "-" not in one] == ["aborted", "committed", "open"]


def test_an_end_that_an_open_transaction_holds_back_is_told_not_cut(rides: Story) -> None:
    with respool.ArrowProducer(rides.broker.bootstrap, transactional_id="t") as producer:
        producer.begin()
        producer.write(pa.table({"value": ["open"], "to": [0]}), "rides", partition="to")
        producer.flush()
        ends = '{"rides": {"0": 11, "1": 10}}'
        with pytest.raises(DataLost, match=r"endingOffsets ends at offset 11.*still open"):
            rides.batch(endingOffsets=ends).values()
        seen = rides.batch(endingOffsets=ends, isolation="read_uncommitted").values()
        producer.abort()
    assert len(seen) == 21


def test_the_same_messages_come_as_to_confluent_kafka(rides: Story) -> None:
    consumer = ck.Consumer(
        {
            "bootstrap.servers": rides.broker.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([ck.TopicPartition("rides", number, 0) for number in (0, 1)])
    theirs: list[tuple[Any, ...]] = []
    while len(theirs) < 20:
        message = consumer.poll(10)
        assert message is not None
        assert message.error() is None
        theirs.append(
            (
                message.partition(),
                message.offset(),
                message.key(),
                message.value(),
                message.timestamp()[1],
            )
        )
    consumer.close()
    ours = [
        (
            row["partition"],
            row["offset"],
            row["key"],
            row["value"],
            round(row["timestamp"].timestamp() * 1000),
        )
        for row in rides.batch().rows()
    ]
    assert ours == sorted(theirs)
