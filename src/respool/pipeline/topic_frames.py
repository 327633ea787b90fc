"""Access to topics: options of `format("respool")`, offsets, and what was deleted before a table read it."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from respool.client.kafka.admin import create_topic
from respool.client.kafka.bootstrap import LASTING_CONTACT_MS
from respool.client.kafka.cluster import RETRY_MS, Cluster
from respool.client.kafka.codes import Code
from respool.client.kafka.errors import BrokerRefused, UnknownTopic
from respool.client.kafka.list_offsets import offsets_for
from respool.client.kafka.security_properties import properties_of
from respool.pipeline.jobs import EventsGone, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from respool.pipeline.job_settings import PipelineSettings

FORMAT = "respool"
_EARLIEST = -2
_LATEST = -1
# Arguments of `Cluster` -> the options of `format("respool")` with the same meaning.
_CLIENT_OPTIONS = {
    "client_id": "kafka.client.id",
    "connect_timeout_ms": "kafka.socket.connection.setup.timeout.ms",
    "request_timeout_ms": "kafka.request.timeout.ms",
    "retry_ms": "kafka.default.api.timeout.ms",
}


def read_stream(
    spark: "SparkSession", settings: "PipelineSettings", topic: str, *, group: str
) -> "DataFrame":
    """Read from the log start, or from the query's checkpoint.

    The group is for monitoring: `respool group lag` shows the query's position. The query resumes from its checkpoint.
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
    """Read offsets [start, end) of each partition; none where both are equal."""
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
    """Read records that arrived in [since, until): the start is found with the time index, the rest is filtered.

    It reads to the log end: timestamps need not increase, so records before `until` may follow a later one.
    """
    from pyspark.sql import functions as f

    found = (
        spark.read.format(FORMAT)
        .options(**_common(settings, topic))
        .option("startingTimestamp", str(since_ms))
        .option("startingOffsetsByTimestampStrategy", "latest")
        .load()
    )
    # The index finds the first record at that time or later; older ones may follow it.
    arrived = f.unix_millis("timestamp")
    return found.where((arrived >= since_ms) & (arrived < until_ms))


def write_stream(
    frame: "DataFrame", settings: "PipelineSettings", topic: str
) -> "DataStreamWriter":
    """Return a writer of `key` and `value` to a topic, exactly once with the help of its checkpoint."""
    return (
        frame.writeStream.format(FORMAT)
        .options(**connection_options(settings))
        .option("topic", topic)
    )


def ensure(settings: "PipelineSettings", topic: str, *, like: str) -> None:
    """Create the topic if it does not exist, with as many partitions as topic `like`."""
    with _cluster(settings) as cluster:
        try:
            # `topic` retries while a broker restarts; nothing is cached in the new client, so it sends a request.
            cluster.topic(topic)
        except UnknownTopic:
            partitions = cluster.topic(like).partitions
        else:
            return
        try:
            cluster.retrying(lambda: create_topic(cluster, topic, partitions=partitions))
        except BrokerRefused as error:
            # Created meanwhile, by another job or by the attempt before.
            if error.code != Code.topic_already_exists:
                raise PipelineError(f"topic {topic!r} cannot be made: {error}") from error


def readers(settings: "PipelineSettings", topic: str) -> dict[int, str]:
    """Return, for each partition, the name under which tables store its position.

    The name contains the topic's id: a re-created topic is another topic, which begins at offset 0 again.
    """
    with _cluster(settings) as cluster:
        # Retried: a broker restart must not fail a job that runs for weeks.
        seen = cluster.topic(topic)
        return {number: f"{topic}/{number} {seen.id}" for number in seen.leaders}


def ends(settings: "PipelineSettings", topic: str) -> tuple[dict[int, int], dict[int, int]]:
    """Return the log start and the high watermark of each partition."""
    with _cluster(settings) as cluster:
        partitions = cluster.topic(topic).leaders.keys()
        first = offsets_for(cluster, topic, partitions, _EARLIEST)
        last = offsets_for(cluster, topic, partitions, _LATEST)
        return (
            {number: at.offset if at else 0 for number, at in first.items()},
            {number: at.offset if at else 0 for number, at in last.items()},
        )


def _cluster(settings: "PipelineSettings") -> Cluster:
    # Each call makes a new client, so it must tolerate a restarting broker at first contact.
    return Cluster(
        settings.bootstrap,
        first_contact_ms=LASTING_CONTACT_MS,
        security=settings.security,
        **settings.client,
    )


def connection_options(settings: "PipelineSettings") -> dict[str, str]:
    """How sources and sinks connect. Spark redacts the values of passwords where it shows options."""
    return {
        "kafka.bootstrap.servers": settings.bootstrap,
        **{_CLIENT_OPTIONS[name]: str(value) for name, value in settings.client.items()},
        **{f"kafka.{name}": value for name, value in properties_of(settings.security).items()},
    }


def _common(settings: "PipelineSettings", topic: str) -> dict[str, str]:
    return {
        # Set explicitly, so that each round of a job tolerates a broker restart, as the first does.
        "kafka.default.api.timeout.ms": str(RETRY_MS),
        **connection_options(settings),
        "subscribe": topic,
        "includeHeaders": "true",
    }


def _offsets(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(number): offset for number, offset in offsets.items()}})


def lost(
    topic: str,
    first: Mapping[int, int],
    known: Mapping[int, int | None],
    *,
    is_accepted: bool,
    table: str,
) -> dict[int, int]:
    """Return, per partition, how many offsets lie between the table's position (`known`) and the log start (`first`).

    Raises:
        EventsGone: there are such offsets, and the loss was not accepted.
    """
    gaps = {
        number: (at, first[number])
        for number, at in known.items()
        if at is not None and number in first and first[number] > at
    }
    if gaps and not is_accepted:
        told = ", ".join(
            f"partition {number}: offsets {at} to {begin - 1}"
            for number, (at, begin) in sorted(gaps.items())
        )
        raise EventsGone(
            f"{topic} no longer has events that {table} has not read yet ({told}): they were deleted, by retention or "
            "by hand; to continue without them give --accept-loss, and for the next time raise the topic's retention"
        )
    return {number: begin - at for number, (at, begin) in gaps.items()}
