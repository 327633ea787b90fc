"""The entry points for reading: topics as Arrow tables and as streams of record batches."""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from respool.client.arrow.reading.conditions import TagFilter, condition_of
from respool.client.arrow.reading.projection import Projection
from respool.client.arrow.reading.read_bounds import PartitionOffsets, When, parse_point
from respool.client.arrow.reading.read_plan import (
    Facts,
    Found,
    Missing,
    PartitionRange,
    ReadPlan,
    ReadRequest,
    Retention,
    chosen_partitions,
    plan_range,
)
from respool.client.arrow.reading.stream import BUFFER_BYTES, FETCH_BYTES, BatchStream, ReadSettings
from respool.client.kafka.cluster import RETRY_MS, Cluster
from respool.client.kafka.configs import ConfigResource, describe_configs
from respool.client.kafka.errors import BadArgument, BrokerRefused
from respool.client.kafka.list_offsets import (
    EARLIEST,
    LATEST,
    Isolation,
    OffsetAt,
    offsets_for,
)
from respool.client.kafka.security import IN_THE_CLEAR, Security
from respool.columnar.decode_columns import DECOMPRESSED_MAX
from respool.model.seek_target import AtOffset, AtTime, Earliest, Latest, parse_log_end

if TYPE_CHECKING:
    import pyarrow.compute as pc

_MILLISECOND = timedelta(milliseconds=1)


def read_table(
    topic: str,
    *,
    bootstrap: str | None = None,
    since: When = None,
    until: When = None,
    partitions: Iterable[int] | None = None,
    columns: Sequence[str] | None = None,
    where: "pc.Expression | None" = None,
    tags: TagFilter | None = None,
    isolation: Isolation = "read_committed",
    missing: Missing = "error",
    lateness: timedelta | None = None,
    fetch_bytes: int = FETCH_BYTES,
    buffer_bytes: int = BUFFER_BYTES,
    parallel: int | None = None,
    decompressed_max: int = DECOMPRESSED_MAX,
    rack: str = "",
    retry_ms: int = RETRY_MS,
    security: Security = IN_THE_CLEAR,
) -> pa.Table:
    """Read the current messages of a topic into a table, ordered by partition and offset.

    Args:
        bootstrap: HOST:PORT of one broker or of several, separated by commas; None is RESPOOL_BROKER of the
            environment, or else this machine's own broker.
        since: Where to begin: a datetime with a zone, a timedelta (before now), an offset, {partition: offset}, text as
            on the command line ("3 days ago"), "earliest" or "latest". A time means messages of that time or later.
        until: Where to end, in the same forms, exclusive. The default is the current log end.
        partitions: The partitions to read; the default is all, or those named in `since` and `until`.
        columns: The columns, in order: topic, partition, key, value, offset, timestamp, timestamp_type, headers.
        where: A pyarrow.compute expression over these columns; rows that do not match are dropped during the read.
        tags: Header names and values, as {"region": ["eu", "us"], "tag": "paid"}, or a condition in the language of
            views, as text. Other messages are dropped before they are decoded.
        isolation: "read_committed" leaves out messages of aborted and open transactions.
        missing: What to do if messages in the range have been deleted: "error", or "available" to read the rest.
        lateness: The maximum delay between a message's timestamp and its append. With it, a time in `until` ends the
            read early; without it the rest of the log is searched for late messages.
        fetch_bytes, buffer_bytes, parallel, decompressed_max: See `ReadSettings`.
        rack: The reader's rack, as in the brokers' configuration: reads from replicas there rather than remote leaders.
        retry_ms: How long to retry when brokers are unavailable; one second if none has ever answered.
        security: TLS and a login, for brokers that require them.

    Raises:
        ClientError: one of its subclasses; no partial result is returned.
    """
    by_partition: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
    with stream_batches(
        topic,
        bootstrap=bootstrap,
        since=since,
        until=until,
        partitions=partitions,
        columns=columns,
        where=where,
        tags=tags,
        isolation=isolation,
        follow=False,
        missing=missing,
        lateness=lateness,
        fetch_bytes=fetch_bytes,
        buffer_bytes=buffer_bytes,
        parallel=parallel,
        decompressed_max=decompressed_max,
        rack=rack,
        retry_ms=retry_ms,
        security=security,
    ) as stream:
        while (piece := stream.next_piece()) is not None:
            if piece.batch is not None:
                by_partition[piece.partition].append(piece.batch)
    batches = [batch for partition in sorted(by_partition) for batch in by_partition[partition]]
    return pa.Table.from_batches(batches, stream.schema)


def stream_batches(
    topic: str,
    *,
    bootstrap: str | None = None,
    since: When = None,
    until: When = None,
    partitions: Iterable[int] | None = None,
    columns: Sequence[str] | None = None,
    where: "pc.Expression | None" = None,
    tags: TagFilter | None = None,
    isolation: Isolation = "read_committed",
    follow: bool = True,
    missing: Missing = "error",
    lateness: timedelta | None = None,
    fetch_bytes: int = FETCH_BYTES,
    buffer_bytes: int = BUFFER_BYTES,
    parallel: int | None = None,
    decompressed_max: int = DECOMPRESSED_MAX,
    rack: str = "",
    retry_ms: int = RETRY_MS,
    security: Security = IN_THE_CLEAR,
) -> BatchStream:
    """Read a topic's messages as record batches, in memory that does not grow with the topic; see `read_table`.

    With `follow`, it continues with new messages, and with partitions added to the topic, until it is closed or reaches
    the offsets in `until` ("latest": the current log end). Without `follow` it ends at the current log end.

    Raises:
        ClientError: one of its subclasses; also while iterating.
    """
    settings = ReadSettings(
        isolation=isolation,
        fetch_bytes=fetch_bytes,
        buffer_bytes=buffer_bytes,
        parallel=parallel,
        decompressed_max=decompressed_max,
        rack=rack,
    )
    projection = Projection(topic, columns, where)
    condition = condition_of(tags, where)
    with Cluster(bootstrap, retry_ms=retry_ms, security=security) as cluster:
        plan = plan_read(
            cluster,
            topic,
            since=since,
            until=until,
            partitions=partitions,
            isolation=isolation,
            follow=follow,
            missing=missing,
            lateness=lateness,
        )
        grows = (
            follow
            and until is None
            and partitions is None
            and len(plan.ranges) == _count(cluster, topic)
        )
        return BatchStream(
            cluster,
            plan,
            projection,
            settings,
            condition=condition,
            known_partitions=len(plan.ranges) if grows else None,
        )


def read_range(
    cluster: Cluster,
    plan: ReadPlan,
    partition: int,
    *,
    columns: Sequence[str] | None = None,
    where: "pc.Expression | None" = None,
    tags: TagFilter | None = None,
    settings: ReadSettings | None = None,
) -> BatchStream:
    """Read one partition of a plan, possibly from another process: for callers that distribute a read themselves."""
    ranges = tuple(one for one in plan.ranges if one.partition == partition)
    if not ranges:
        raise BadArgument(f"the plan has no partition {partition}")
    part = replace(plan, ranges=ranges)
    projection = Projection(plan.topic, columns, where)
    condition = condition_of(tags, where)
    return BatchStream(cluster, part, projection, settings or ReadSettings(), condition=condition)


def plan_read(
    cluster: Cluster,
    topic: str,
    *,
    since: When = None,
    until: When = None,
    partitions: Iterable[int] | None = None,
    isolation: Isolation = "read_committed",
    follow: bool = False,
    missing: Missing = "error",
    lateness: timedelta | None = None,
    now_ms: int | None = None,
) -> ReadPlan:
    """Resolve the offsets to read. Nothing is read yet; messages that arrive later do not change the plan.

    Raises:
        BadArgument, UnknownTopic, UnknownPartition, OutsideRetention, OffsetBeyondEnd, BrokerUnreachable
    """
    if missing not in {"error", "available"}:
        raise BadArgument(f"missing = {missing!r}: 'error' or 'available'")
    if lateness is not None and lateness < timedelta(0):
        raise BadArgument(f"lateness = {lateness!r}: messages cannot come before they are written")
    if not isinstance(topic, str):
        raise BadArgument(f"topic = {topic!r}: the name of one topic, as text")
    if not topic:
        raise BadArgument("topic is empty")
    now_ms = round(time.time() * 1000) if now_ms is None else now_ms
    if follow and isinstance(until, str) and parse_log_end(until) == Latest():
        # Given explicitly, "latest" means the current log end.
        follow = False
    request = ReadRequest(
        topic=topic,
        since=parse_point("since", since, default=Earliest(), now_ms=now_ms),
        until=parse_point("until", until, default=Latest(), now_ms=now_ms),
        follow=follow,
        missing=missing,
        now_ms=now_ms,
    )
    seen = cluster.retrying(lambda: cluster.refresh(topic))
    chosen = chosen_partitions(request, partitions, seen.leaders)
    for partition in chosen:
        seen.leader_of(partition)
    return ReadPlan(
        topic=topic,
        topic_id=seen.id,
        ranges=_ranges(cluster, request, chosen, isolation, lateness),
        follow=follow,
        since_ms=request.since.ms if isinstance(request.since, AtTime) else None,
        until_ms=request.until.ms if isinstance(request.until, AtTime) else None,
    )


def _ranges(
    cluster: Cluster,
    request: ReadRequest,
    partitions: Sequence[int],
    isolation: Isolation,
    lateness: timedelta | None,
) -> tuple[PartitionRange, ...]:
    def look_up(at: int, isolation: Isolation = isolation) -> dict[int, OffsetAt | None]:
        return offsets_for(cluster, request.topic, partitions, at, isolation=isolation)

    # The ends first: a message that arrives during these requests lies beyond them, whatever its time.
    ends = look_up(LATEST)
    highs = (
        look_up(LATEST, "read_uncommitted")
        if isinstance(request.since, AtOffset | PartitionOffsets)
        else ends
    )
    starts = look_up(EARLIEST)
    nothing: dict[int, OffsetAt | None] = {}
    is_time = isinstance(request.since, AtTime)
    since_at = look_up(request.since.ms) if isinstance(request.since, AtTime) else nothing
    firsts = look_up(0) if is_time else nothing
    until_at = nothing
    if isinstance(request.until, AtTime) and lateness is not None:
        until_at = look_up(request.until.ms + lateness // _MILLISECOND)
    has_deleted = any(one is not None and one.offset > 0 for one in starts.values())
    retention = retention_of(cluster, request.topic) if is_time and has_deleted else None
    ranges = []
    for partition in partitions:
        facts = Facts(
            partition=partition,
            log_start=_offset(starts[partition]),
            end=_offset(ends[partition]),
            high_watermark=_offset(highs[partition]),
            first=_found(firsts.get(partition)),
            since_at=_found(since_at.get(partition)),
            until_at=_found(until_at.get(partition)),
        )
        ranges.append(plan_range(request, facts, retention))
    return tuple(ranges)


def _offset(at: OffsetAt | None) -> int:
    return 0 if at is None else at.offset


def _found(at: OffsetAt | None) -> Found | None:
    return None if at is None else Found(offset=at.offset, timestamp_ms=at.timestamp_ms)


def _count(cluster: Cluster, topic: str) -> int:
    return cluster.topic(topic).partitions


def retention_of(cluster: Cluster, topic: str) -> Retention | None:
    """Fetch the topic's retention; None if the broker does not report it.

    Raises:
        BrokerUnreachable: no broker answers.
    """

    def attempt() -> Retention | None:
        keys = ["retention.ms", "retention.bytes", "cleanup.policy"]
        try:
            found = describe_configs(cluster, ConfigResource.TOPIC, [topic], keys=keys)[topic]
        except BrokerRefused:
            return None
        values = {name: entry.value or "" for name, entry in found.items()}
        if "delete" not in values.get("cleanup.policy", ""):
            # Compaction removes only messages that newer ones replace.
            return Retention(ms=-1, bytes=-1)
        try:
            return Retention(ms=int(values["retention.ms"]), bytes=int(values["retention.bytes"]))
        except (KeyError, ValueError):
            return None

    return cluster.retrying(attempt)
