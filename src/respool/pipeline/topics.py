"""The one door to topics: options of `format("respool")`, and how far topics go."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from respool.client.kafka.bootstrap import LASTING_CONTACT_MS
from respool.client.kafka.cluster import RETRY_MS, Cluster
from respool.client.kafka.errors import UnknownTopic
from respool.client.kafka.list_offsets import offsets_for
from respool.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from respool.pipeline.settings import PipelineSettings

FORMAT = "respool"
_EARLIEST = -2
_LATEST = -1
_TOPIC_EXISTS = 36
_CREATE_S = 30


def read_stream(
    spark: "SparkSession", settings: "PipelineSettings", topic: str, *, group: str
) -> "DataFrame":
    """From the start of the log on, or from where the query's checkpoint stands.

    The group is for people: `respool group lag` shows how far the query is. It goes by its checkpoint.
    """
    return (
        spark.readStream.format(FORMAT)
        .options(**_common(settings, topic))
        .option("startingOffsets", "earliest")
        .option("kafka.group.id", group)
        .option("maxOffsetsPerTrigger", str(settings.rows_per_batch))
        .load()
    )


def read_between(
    spark: "SparkSession",
    settings: "PipelineSettings",
    topic: str,
    *,
    start: Mapping[int, int],
    end: Mapping[int, int],
) -> "DataFrame":
    """Offsets [start, end) of each partition; for [start, start) nothing."""
    return (
        spark.read.format(FORMAT)
        .options(**_common(settings, topic))
        .option("startingOffsets", _offsets(topic, start))
        .option("endingOffsets", _offsets(topic, end))
        .load()
    )


def read_times(
    spark: "SparkSession", settings: "PipelineSettings", topic: str, *, since_ms: int, until_ms: int
) -> "DataFrame":
    """What arrived in [since, until): its start is found by the time index, the rest is cut exactly.

    It reads to the log's end: timestamps need not rise, and earlier messages may come behind the first of `until`.
    """
    from pyspark.sql import functions as f

    found = (
        spark.read.format(FORMAT)
        .options(**_common(settings, topic))
        .option("startingTimestamp", str(since_ms))
        .option("startingOffsetsByTimestampStrategy", "latest")
        .load()
    )
    # The index finds the first message of then or later; older ones may come after it.
    arrived = f.unix_millis("timestamp")
    return found.where((arrived >= since_ms) & (arrived < until_ms))


def write_stream(
    frame: "DataFrame", settings: "PipelineSettings", topic: str
) -> "DataStreamWriter":
    """A writer of `key` and `value` to a topic, exactly once by its checkpoint."""
    return (
        frame.writeStream.format(FORMAT)
        .option("kafka.bootstrap.servers", settings.bootstrap)
        .option("topic", topic)
    )


def ensure(settings: "PipelineSettings", topic: str, *, like: str) -> None:
    """Make the topic if it is not there, with as many partitions as another has."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    with _cluster(settings) as cluster:
        try:
            # `topic` tries again while a broker restarts; it asks, for nothing is known yet.
            cluster.topic(topic)
        except UnknownTopic:
            partitions = cluster.topic(like).partitions
        else:
            return
    admin = AdminClient({"bootstrap.servers": settings.bootstrap, "log_level": 4})
    made = admin.create_topics([NewTopic(topic, num_partitions=partitions)])[topic]
    try:
        made.result(timeout=_CREATE_S)
    except KafkaException as error:
        if error.args[0].code() != _TOPIC_EXISTS:
            raise PipelineError(f"topic {topic!r} cannot be made: {error.args[0].str()}") from error


def readers(settings: "PipelineSettings", topic: str) -> dict[int, str]:
    """For each partition the name that tables keep its position under.

    The topic's id is in it: one that is deleted and made again begins at offset 0 again, and is another topic.
    """
    with _cluster(settings) as cluster:
        # A broker that restarts meanwhile must not end a job that runs for weeks.
        seen = cluster.topic(topic)
        return {number: f"{topic}/{number} {seen.id}" for number in seen.leaders}


def ends(settings: "PipelineSettings", topic: str) -> tuple[dict[int, int], dict[int, int]]:
    """The first offset of each partition, and the one after its last committed message."""
    with _cluster(settings) as cluster:
        partitions = cluster.topic(topic).leaders.keys()
        first = offsets_for(cluster, topic, partitions, _EARLIEST)
        last = offsets_for(cluster, topic, partitions, _LATEST)
        return (
            {number: at.offset if at else 0 for number, at in first.items()},
            {number: at.offset if at else 0 for number, at in last.items()},
        )


def _cluster(settings: "PipelineSettings") -> Cluster:
    # Made again for each question, so none has had an answer: a broker may be restarting.
    return Cluster(settings.bootstrap, first_contact_ms=LASTING_CONTACT_MS)


def _common(settings: "PipelineSettings", topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": settings.bootstrap,
        # Said, so that each turn of a job outlives a broker's restart, as its first one does.
        "kafka.default.api.timeout.ms": str(RETRY_MS),
        "subscribe": topic,
        "includeHeaders": "true",
    }


def _offsets(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(number): offset for number, offset in offsets.items()}})
