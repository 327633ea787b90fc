"""A stream takes each message once, micro-batch by micro-batch, through restarts and whatever becomes of its topics."""

import logging
import time

import confluent_kafka as ck
import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

import respool
from respool.spark.option_values import BadOption
from respool.spark.source import stream_reader
from respool.spark.source.brokers import Brokers
from respool.spark.source.loss import DataLost
from support.spark_story import Story


@pytest.fixture
def rides(story: Story) -> Story:
    """Two partitions with ten messages each: p0-0 to p1-9."""
    story.topics.create("rides", partitions=2)
    for partition in (0, 1):
        story.write("rides", [f"p{partition}-{number}" for number in range(10)], to=partition)
    return story


ALL = [f"p{partition}-{number}" for partition in (0, 1) for number in range(10)]


def test_everything_comes_once_and_then_what_is_new(rides: Story) -> None:
    stream = rides.stream().begin()
    assert stream.next() == ALL
    assert stream.next() == []
    rides.write("rides", ["new"], to=1)
    assert stream.next() == ["new"]


def test_by_default_a_stream_begins_at_the_end(rides: Story) -> None:
    stream = rides.stream(startingOffsets="latest").begin()
    assert stream.next() == []
    rides.write("rides", ["new"], to=1)
    assert stream.next() == ["new"]


def test_a_stream_goes_on_where_its_checkpoint_says(rides: Story) -> None:
    first = rides.stream().begin()
    first.next()
    rides.write("rides", ["new"], to=0)
    assert first.at is not None
    assert rides.stream().resume(first.at).next() == ["new"]


def test_a_checkpoint_of_sparks_kafka_connector_goes_on(rides: Story) -> None:
    assert rides.stream().resume({"rides": {"0": 9, "1": 8}}).next() == ["p0-9", "p1-8", "p1-9"]


def test_offsets_are_limited_for_a_trigger_and_shared_among_partitions(rides: Story) -> None:
    stream = rides.stream(maxOffsetsPerTrigger=6).begin()
    assert stream.reader.getDefaultReadLimit() == ReadMaxRows(6)
    assert stream.next() == ["p0-0", "p0-1", "p0-2", "p1-0", "p1-1", "p1-2"]
    seen = stream.next() + stream.next() + stream.next()
    assert sorted(seen) == sorted(one for one in ALL if int(one[-1]) > 2)
    assert stream.next() == []


def test_who_asks_for_all_gets_all_whatever_the_limits(rides: Story) -> None:
    assert rides.stream(maxOffsetsPerTrigger=6).begin().all() == ALL
    assert rides.stream().begin().reader.getDefaultReadLimit() == ReadAllAvailable()


def test_bytes_are_limited_for_a_trigger(story: Story) -> None:
    story.topics.create("rides", partitions=2)
    for partition in (0, 1):
        for number in range(20):
            story.write("rides", [f"{number:04}" + "x" * 10_000], to=partition)
    stream = story.stream(maxBytesPerTrigger="50k").begin()
    assert stream.reader.getDefaultReadLimit() == ReadMaxBytes(50 * 1024)
    sizes = []
    while batch := stream.next():
        sizes.append(len(batch))
    assert sum(sizes) == 40
    assert max(sizes) <= 5
    assert min(sizes[:-1]) >= 4


def test_few_messages_wait_until_there_are_enough_or_it_takes_too_long(
    rides: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(stream_reader, "monotonic", lambda: now[0])
    stream = rides.stream(minOffsetsPerTrigger=5, maxTriggerDelay="1m").begin()
    assert stream.reader.getDefaultReadLimit() == ReadMinRows(5)
    assert stream.next() == ALL
    rides.write("rides", ["few"], to=0)
    now[0] += 59
    assert stream.next() == []
    now[0] += 2
    assert stream.next() == ["few"]
    rides.write("rides", list("many!"), to=0)
    assert stream.next() == list("many!")


def test_available_now_ends_where_the_log_ended_when_it_began(rides: Story) -> None:
    stream = rides.stream(maxOffsetsPerTrigger=15, minOffsetsPerTrigger=12).begin()
    stream.reader.prepareForTriggerAvailableNow()
    rides.write("rides", ["later"], to=0)
    rides.topics.grow("rides", partitions=3)
    rides.write("rides", ["later too"], to=2)
    # Also the last five, though they are few: nothing more will come.
    seen = [*stream.next(), *stream.next(), *stream.next()]
    assert sorted(seen) == ALL
    assert stream.next() == []


def test_available_now_misses_no_topic_that_brokers_did_not_show_at_first(
    rides: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = rides.stream(subscribePattern="rides.*").begin()
    with monkeypatch.context() as patched:
        patched.setattr(Brokers, "_matching", lambda brokers, pattern: [])
        stream.reader.prepareForTriggerAvailableNow()
        assert stream.next() == ALL
    assert stream.next() == []


def test_a_sample_of_what_is_gone_leaves_the_telling_to_those_who_read(rides: Story) -> None:
    start = {"rides": {"offsets": {"0": 2, "1": 10}}}
    place = ck.TopicPartition("rides", 0, 5)
    rides.topics.admin.delete_records([place])[place].result(10)
    with pytest.raises(DataLost, match="offsets 2 to 4"):
        rides.stream(maxBytesPerTrigger="1g").resume(start).next()


def test_new_partitions_are_read_from_their_first_message(rides: Story) -> None:
    stream = rides.stream(startingOffsets="latest").begin()
    rides.topics.grow("rides", partitions=3)
    rides.write("rides", ["first", "second"], to=2)
    assert stream.next() == ["first", "second"]


@pytest.mark.parametrize("way", ["assign", "subscribe"])
def test_what_is_asked_for_only_now_begins_with_what_there_is(rides: Story, way: str) -> None:
    rides.topics.create("fares")
    place = ck.TopicPartition("rides", 1, 5)
    rides.topics.admin.delete_records([place])[place].result(10)
    before = {"assign": '{"rides":[0]}', "subscribe": "fares"}[way]
    now = {"assign": '{"rides":[0,1]}', "subscribe": "fares,rides"}[way]
    stream = rides.stream(**{way: before, "startingOffsets": "latest"}).begin()
    assert stream.at is not None
    seen = rides.stream(**{way: now}).resume(stream.at).next()
    assert [one for one in seen if one.startswith("p1")] == [f"p1-{n}" for n in range(5, 10)]


def test_a_new_partition_that_has_lost_messages_already_is_a_loss(rides: Story) -> None:
    stream = rides.stream(startingOffsets="latest").begin()
    rides.topics.grow("rides", partitions=3)
    rides.write("rides", ["first", "second"], to=2)
    place = ck.TopicPartition("rides", 2, 1)
    rides.topics.admin.delete_records([place])[place].result(10)
    with pytest.raises(DataLost, match="rides/2: offsets 0 to 0"):
        stream.next()


def test_a_pattern_picks_up_new_topics_and_keeps_old_ones(rides: Story) -> None:
    stream = rides.stream(subscribePattern="rides.*", startingOffsets="latest").begin()
    rides.topics.create("rides-eu")
    rides.write("rides-eu", ["eu"])
    rides.write("rides", ["us"], to=0)
    assert stream.next() == ["us", "eu"]


def test_the_same_batch_has_the_same_tasks(rides: Story) -> None:
    stream = rides.stream(minPartitions=5).begin()
    assert stream.at is not None
    end = stream.reader.latestOffset(stream.at, ReadAllAvailable())
    first = [one.value for one in stream.reader.partitions(stream.at, end)]
    rides.write("rides", ["more"], to=0)
    other = rides.stream(minPartitions=5)
    assert [one.value for one in other.reader.partitions(stream.at, end)] == first
    assert len(first) == 5


def recreate(story: Story) -> None:
    story.topics.delete("rides")
    story.topics.create("rides", partitions=2)
    story.write("rides", [f"again-{number}" for number in range(30)], to=0)


def test_a_topic_made_again_is_an_error_that_names_both_ids(rides: Story) -> None:
    stream = rides.stream().begin()
    stream.next()
    assert stream.at is not None
    before = stream.at["rides"]["id"]
    recreate(rides)
    with pytest.raises(DataLost, match="deleted and made again") as caught:
        stream.next()
    now = rides.stream().begin().at
    assert now is not None
    assert before in str(caught.value)
    assert now["rides"]["id"] in str(caught.value)
    with pytest.raises(DataLost, match="deleted and made again"):
        rides.stream().resume(stream.at).next()


def test_a_topic_made_again_is_read_from_its_start_where_loss_is_allowed(
    rides: Story, caplog: pytest.LogCaptureFixture
) -> None:
    stream = rides.stream(failOnDataLoss="false").begin()
    stream.next()
    recreate(rides)
    with caplog.at_level(logging.WARNING):
        assert stream.next() == [f"again-{number}" for number in range(30)]
    assert "deleted and made again" in caplog.text
    assert stream.next() == []


def test_a_batch_planned_before_a_topic_was_made_again_is_not_read_from_the_new_one(
    rides: Story,
) -> None:
    stream = rides.stream().begin()
    start = stream.at
    assert start is not None
    end = stream.reader.latestOffset(start, ReadAllAvailable())
    recreate(rides)
    with pytest.raises(DataLost, match="deleted and made again"):
        rides.stream().batch(start, end)
    assert rides.stream(failOnDataLoss="false").batch(start, end) == []


def test_a_vanished_topic_is_an_error_or_passed_over(rides: Story) -> None:
    rides.topics.create("fares")
    stream = rides.stream(subscribe="rides,fares").begin()
    lenient = rides.stream(subscribe="rides,fares", failOnDataLoss="false").begin()
    rides.topics.delete("fares")
    with pytest.raises(DataLost, match="'fares'"):
        stream.next()
    assert lenient.next() == ALL
    assert lenient.at is not None
    assert "fares" in lenient.at


def test_a_topic_that_is_not_there_at_the_start_is_named(story: Story) -> None:
    with pytest.raises(BadOption, match="subscribe names the topic 'rides'"):
        story.stream().begin()


def test_offsets_that_were_deleted_are_an_error_or_passed_over(rides: Story) -> None:
    start = {"rides": {"offsets": {"0": 2, "1": 10}}}
    place = ck.TopicPartition("rides", 0, 5)
    rides.topics.admin.delete_records([place])[place].result(10)
    with pytest.raises(DataLost, match=r"rides/0: offsets 2 to 4.*failOnDataLoss"):
        rides.stream().resume(start).next()
    lenient = rides.stream(failOnDataLoss="false").resume(start)
    assert lenient.next() == [f"p0-{number}" for number in range(5, 10)]


def test_a_log_that_ends_before_the_checkpoint_is_an_error_or_goes_on_from_its_end(
    rides: Story,
) -> None:
    start = {"rides": {"offsets": {"0": 15, "1": 10}}}
    with pytest.raises(DataLost, match=r"rides/0.*up to offset 15.*ends at 10"):
        rides.stream().resume(start).next()
    lenient = rides.stream(failOnDataLoss="false").resume(start)
    assert lenient.next() == []
    rides.write("rides", ["new"], to=0)
    assert lenient.next() == ["new"]


def test_gaps_of_transactions_and_compaction_are_no_loss(rides: Story) -> None:
    stream = rides.stream(maxOffsetsPerTrigger=3).begin()
    with respool.ArrowProducer(rides.broker.bootstrap, transactional_id="t") as producer:
        for number in range(4):
            producer.begin()
            row = pa.table({"value": [f"t{number}"], "to": [0]})
            producer.write(row, "rides", partition="to")
            producer.flush()
            producer.abort() if number % 2 else producer.commit()
    seen = []
    for _ in range(12):
        seen += stream.next()
    assert sorted(seen) == sorted([*ALL, "t0", "t2"])


def test_an_open_transaction_is_waited_for_and_is_no_loss(rides: Story) -> None:
    uncommitted = rides.stream(isolation="read_uncommitted").begin()
    with respool.ArrowProducer(rides.broker.bootstrap, transactional_id="t") as producer:
        producer.begin()
        producer.write(pa.table({"value": ["open"], "to": [0]}), "rides", partition="to")
        producer.flush()
        assert "open" in uncommitted.next()
        assert uncommitted.at is not None
        committed = rides.stream().resume(uncommitted.at)
        assert committed.next() == []
        producer.commit()
    rides.write("rides", ["after"], to=0)
    assert committed.next() == ["after"]


def test_progress_is_shown_as_a_groups_offsets(rides: Story) -> None:
    stream = rides.stream(**{"kafka.group.id": "jobs"}).begin()
    stream.next()
    assert stream.at is not None
    stream.reader.commit(stream.at)
    assert rides.committed("jobs") == {0: 10, 1: 10}
    rides.write("rides", ["new"], to=0)
    stream.next()
    assert rides.committed("jobs") == {0: 10, 1: 10}
    # Whoever asks for more has done what was before.
    assert stream.next() == []
    assert rides.committed("jobs") == {0: 11, 1: 10}
    quiet = rides.stream(commitOffsets="false").resume(stream.at)
    quiet.next()
    quiet.reader.commit(stream.at)
    assert rides.committed("spark-respool-rides") == {}


def test_a_stream_of_a_tag_moves_on_where_nothing_matches(story: Story) -> None:
    story.topics.create("rides")
    stream = story.stream(tags='{"tag": "paid"}', **{"kafka.group.id": "paid"}).begin()
    story.write("rides", ["a", "b", "c"], tag=["open", "paid", "open"])
    assert stream.next() == ["b"]
    for number in range(3):
        # A micro-batch without rows ends at the log end, too.
        story.write("rides", [f"quiet-{number}"], tag="open")
        assert stream.next() == []
        assert stream.at is not None
        stream.reader.commit(stream.at)
        assert story.committed("paid") == {0: 4 + number}
    story.write("rides", ["d"], tag="paid")
    assert stream.at is not None
    resumed = story.stream(tags="tag = 'paid'").resume(stream.at)
    assert resumed.next() == ["d"]
    assert resumed.next() == []


def test_a_view_is_read_like_a_topic_and_moves_on_where_nothing_matches(story: Story) -> None:
    story.topics.create("rides")
    story.topics.create(
        "rides.v.paid", respool_view_of="rides", respool_view_where="tag in ('paid', 'due')"
    )
    story.write("rides", ["a", "b", "c", "d"], tag=["open", "paid", "due", "open"])
    stream = story.stream(subscribe="rides.v.paid").begin()
    assert stream.next() == ["b", "c"]
    story.write("rides", ["quiet"], tag="open")
    assert stream.next() == []
    assert stream.at is not None
    assert stream.at["rides.v.paid"]["offsets"] == {"0": 5}
    of_tag = story.stream(subscribe="rides.v.paid", tags="tag = 'due'").begin()
    assert of_tag.next() == ["c"]


def test_limits_of_a_trigger_count_all_messages_whatever_their_tags(story: Story) -> None:
    story.topics.create("rides")
    story.write("rides", range(10), tag=["paid" if n % 5 == 0 else "open" for n in range(10)])
    by_offsets = story.stream(tags="tag = 'paid'", maxOffsetsPerTrigger=4).begin()
    assert [by_offsets.next() for _ in range(3)] == [["0"], ["5"], []]
    assert by_offsets.at is not None
    assert by_offsets.at["rides"]["offsets"] == {"0": 10}
    available = story.stream(tags="tag = 'nobody''s'").begin()
    available.reader.prepareForTriggerAvailableNow()
    story.write("rides", ["later"], tag="open")
    assert available.next() == []
    assert available.at is not None
    assert available.at["rides"]["offsets"] == {"0": 10}


def test_a_commit_that_fails_is_told_and_does_not_stop_the_stream(
    rides: Story, caplog: pytest.LogCaptureFixture
) -> None:
    stream = rides.stream(**{"kafka.group.id": "busy"}).begin()
    member = ck.Consumer({"bootstrap.servers": rides.broker.bootstrap, "group.id": "busy"})
    member.subscribe(["rides"])
    deadline = time.monotonic() + 30
    while not member.assignment() and time.monotonic() < deadline:
        member.poll(0.1)
    with caplog.at_level(logging.WARNING):
        stream.next()
        assert stream.at is not None
        stream.reader.commit(stream.at)
    member.close()
    assert "could not be shown as group 'busy'" in caplog.text


def test_the_newest_offsets_are_reported_whatever_was_read(rides: Story) -> None:
    stream = rides.stream(maxOffsetsPerTrigger=1).begin()
    assert stream.reader.reportLatestOffset() is None
    stream.next()
    latest = stream.reader.reportLatestOffset()
    assert latest is not None
    assert latest["rides"]["offsets"] == {"0": 10, "1": 10}


def test_brokers_that_restart_are_waited_for(rides: Story) -> None:
    stream = rides.stream().begin()
    rides.broker.restart()
    assert stream.next() == ALL


def test_metadata_is_kept_for_as_long_as_it_may(rides: Story) -> None:
    stream = rides.stream(**{"partition.metadata.cache.ttl.ms": 600_000}).begin()
    assert stream.next() == ALL
    rides.topics.grow("rides", partitions=3)
    rides.write("rides", ["hidden"], to=2)
    assert stream.next() == []
