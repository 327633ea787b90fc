"""The jobs against a broker: from a topic to tables and back, once whatever is run again, and no group is touched."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import respool
from pipeline.making import (
    PARTITIONS,
    TOPIC,
    UNTIL_MS,
    Rides,
    milliseconds,
    publish,
    rides,
    settings,
    stored,
)
from respool.pipeline import bronze, live_scores, past_scores, silver, topic_frames, warehouse
from respool.pipeline.jobs import EventsGone, Silent
from respool.pipeline.report import write_report
from respool.pipeline.table_schemas import table
from respool.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.pipeline.job_settings import PipelineSettings

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def made() -> Rides:
    return rides(days=3, count=3_000, fraud_share=0.2)


@pytest.fixture
def told(broker: Broker, tmp_path: Path, made: Rides) -> "PipelineSettings":
    broker.create_topic(TOPIC, partitions=PARTITIONS, retention_ms=-1)
    return settings(
        tmp_path,
        bootstrap=broker.bootstrap,
        truth=made.truth_file(tmp_path),
        replay_since_ms=UNTIL_MS - 30 * HOUR_MS,
        replay_until_ms=UNTIL_MS - 3 * HOUR_MS,
    )


def test_bronze_adds_what_came_since_and_nothing_twice_though_its_checkpoint_is_lost(
    spark: "SparkSession", told: "PipelineSettings", made: Rides
) -> None:
    publish(told, made.rows[:1_000])
    assert bronze.run(spark, told, Silent()).counts["events added"] == 1_000
    publish(told, made.rows[1_000:1_500])
    told.checkpoint_path("bronze").rename(told.checkpoint_path("lost"))
    assert bronze.run(spark, told, Silent()).counts["events added"] == 500
    found = stored(told, "bronze")
    assert Counter((one["key"], one["value"]) for one in found) == Counter(
        (one["key"], one["value"]) for one in made.rows[:1_500]
    )
    assert len({(one["partition"], one["offset"]) for one in found}) == 1_500


def test_the_warehouse_comes_out_the_same_when_run_twice_and_from_the_start(
    spark: "SparkSession", told: "PipelineSettings", made: Rides
) -> None:
    publish(told, made.rows[:1_000])
    warehouse.run(spark, told, Silent())
    publish(told, made.rows[1_000:1_500])
    second = warehouse.run(spark, told, Silent())
    assert second.counts["offsets read"] == 500
    once, version = stored(told, warehouse.TABLE), table(told, warehouse.TABLE).version
    assert warehouse.run(spark, told, Silent()).counts["offsets read"] == 0
    assert table(told, warehouse.TABLE).version == version
    again = warehouse.run(spark, replace(told, from_start=True), Silent())
    assert again.counts["offsets read"] == 1_500
    assert stored(told, warehouse.TABLE) == once


def test_what_the_topic_deleted_unread_ends_a_job_unless_the_loss_is_accepted(
    spark: "SparkSession", told: "PipelineSettings", made: Rides
) -> None:
    publish(told, made.rows[:300])
    for job in (bronze, warehouse):
        job.run(spark, told, Silent())
    _, before = topic_frames.ends(told, TOPIC)
    publish(told, made.rows[300:600])
    _, last = topic_frames.ends(told, TOPIC)
    delete_before(told, 0, last[0])
    # With a checkpoint the source itself would tell.
    told.checkpoint_path("bronze").rename(told.checkpoint_path("lost"))
    accepted = replace(told, accept_loss=True)
    for job, name in ((bronze, "bronze"), (warehouse, warehouse.TABLE)):
        version = table(told, name).version
        with pytest.raises(EventsGone, match=f"partition 0: offsets {before[0]} to {last[0] - 1}"):
            job.run(spark, told, Silent())
        assert table(told, name).version == version
        counts = job.run(spark, accepted, Silent()).counts
        assert counts["offsets lost"] == last[0] - before[0] > 0
        assert "offsets lost" not in job.run(spark, told, Silent()).counts


def delete_before(told: "PipelineSettings", partition: int, offset: int) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": told.bootstrap})
    for one in admin.delete_records([TopicPartition(TOPIC, partition, offset)]).values():
        one.result(timeout=60)


def test_scores_go_to_the_topic_once_and_a_replay_sees_exactly_its_window(
    spark: "SparkSession", broker: Broker, told: "PipelineSettings", made: Rides
) -> None:
    publish(told, made.rows)
    with respool.Consumer(TOPIC, group="live", bootstrap=told.bootstrap) as consumer:
        next(iter(consumer.messages(idle_s=5)))
    for job in (bronze, silver, live_scores):
        job.run(spark, told, Silent())
    live_scores.run(spark, told, Silent())
    sent = respool.read_table(told.scores_topic, bootstrap=told.bootstrap)
    scores = [json.loads(value) for value in sent["value"].to_pylist()]
    assert Counter(one["ride_id"] for one in scores) == Counter(
        row["ride_id"] for row in stored(told, "silver") if row["event_type"] == "finished"
    )
    groups = committed(broker)
    assert groups["live"]
    # The live model over again: the window begins after the rides that it was trained on.
    replay = replace(told, new_model=told.model)
    outcome = past_scores.run(spark, replay, Silent())
    inside = [
        row
        for row in made.rows
        if told.replay_since_ms <= milliseconds(row["timestamp"]) < told.replay_until_ms
    ]
    assert outcome.counts["events of the window"] == len(inside) > 500
    ended = {
        row["ride_id"]
        for row in stored(told, "silver")
        if row["event_type"] == "finished"
        and told.replay_since_ms <= milliseconds(row["recorded_at"]) < told.replay_until_ms
    }
    assert {row["ride_id"] for row in stored(told, past_scores.TABLE)} == ended
    assert outcome.counts["scored live, too"] == len(ended)
    assert outcome.figures["recall new"] > 0.5
    # With their past, as they were scored live: the live model says the same again of the same rides.
    assert outcome.figures["mean difference"] == 0
    # Again: the same rows in the same place.
    rows = stored(told, past_scores.TABLE)
    past_scores.run(spark, replay, Silent())
    assert stored(told, past_scores.TABLE) == rows
    assert committed(broker) == groups
    page = Path(outcome.files[0]).read_text()
    assert "By pattern" in page
    assert "<script" not in page
    assert "In quarantine" in write_report(told).read_text()


def committed(broker: Broker) -> dict[str, Any]:
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = {}
    for one in admin.list_consumer_groups().result(timeout=60).valid:
        wanted = [ConsumerGroupTopicPartitions(one.group_id)]
        offsets = admin.list_consumer_group_offsets(wanted)[one.group_id].result(timeout=60)
        found[one.group_id] = sorted(
            (each.topic, each.partition, each.offset) for each in offsets.topic_partitions
        )
    return found
