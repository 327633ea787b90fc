"""All options of the source, parsed once on the driver. Invalid or contradictory options are refused by name."""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from respool.model.seek_target import Earliest, Latest
from respool.spark.client_options import SECURITY_NAMES, ClientOptions, security_of
from respool.spark.option_values import BadOption, Options
from respool.spark.options_kafka import PRODUCERS
from respool.spark.source.java_pattern import topic_pattern
from respool.spark.source.start_points import Point, assigned, point_of
from respool.spark.source.tags_option import tags_of

MAX_TRIGGER_DELAY_MS = 15 * 60_000
POLL_MS = 120_000
GROUP_PREFIX = "spark-respool"
GROUP_LENGTH_MAX = 200
SPLITS_MAX = 100_000
# The default for batch reads: about one second of a task's work.
BATCH_SPLIT_ROWS = 1_000_000

Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]
Kind: TypeAlias = Literal["batch", "stream"]

# All options; queried first, so that a misspelled name is reported before the option that it leaves missing.
NAMES = (
    "assign",
    "bootstrap",
    "commitOffsets",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "includeHeaders",
    "isolation",
    "kafka.bootstrap.servers",
    "kafka.client.id",
    "kafka.client.rack",
    "kafka.default.api.timeout.ms",
    "kafka.fetch.max.bytes",
    "kafka.group.id",
    "kafka.isolation.level",
    "kafka.max.partition.fetch.bytes",
    "kafka.request.timeout.ms",
    "kafka.security.protocol",
    "kafka.socket.connection.setup.timeout.ms",
    "kafkaConsumer.pollTimeoutMs",
    "maxBytesPerTrigger",
    "maxLateness",
    "maxOffsetsPerTrigger",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "minPartitions",
    "partition.metadata.cache.ttl.ms",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
    "tags",
)
_WAYS = ("assign", "subscribe", "subscribePattern")
_ENDING = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_TRIGGERS = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The topics to read: by name, by partitions, or by pattern. One of the three is set."""

    option: str
    named: tuple[str, ...] = ()
    assigned: dict[str, tuple[int, ...]] | None = None
    pattern: re.Pattern[str] | None = None

    @property
    def names(self) -> tuple[str, ...] | None:
        """The topics' names; None if only the brokers know them."""
        if self.pattern is not None:
            return None
        return self.named if self.assigned is None else tuple(self.assigned)

    def has(self, topic: str) -> bool:
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        return topic in (self.names or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    client: ClientOptions
    wanted: Wanted
    start: Point
    end: Point
    # For a start time later than every message: an error, or the log end.
    unmatched_start: Literal["error", "latest"]
    fail_on_data_loss: bool
    isolation: Isolation
    include_headers: bool
    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    max_bytes: int | None
    min_partitions: int | None
    max_records: int | None
    # How long a task retries transient errors.
    poll_ms: int
    offset_retries: int
    offset_retry_ms: int
    metadata_ttl_ms: int
    # The group for which progress is committed; None: no commits.
    group: str | None
    # The maximum delay between a message's timestamp and its append; None: unknown.
    lateness_ms: int | None
    # The maximum size of one fetch; None: the client's default.
    fetch_bytes: int | None
    # The rack of the tasks; None: each executor's own setting is used (`reading.RACK_VARIABLE`).
    rack: str | None
    # The condition that all rows fulfill, as text; None: all messages are read.
    tags: str | None

    @classmethod
    def of(cls, options: Options, kind: Kind | None = None) -> "SourceOptions":
        """`kind` is None if not known yet; then options that depend on it are not refused.

        Raises:
            BadOption
        """
        # First of all: a security setting without support here must be refused whatever other mistakes there are.
        security_of(options)
        options.refuse_unknown(also=(*PRODUCERS, *NAMES, *SECURITY_NAMES))
        if kind == "stream":
            options.refuse(_ENDING, "a stream has no end; this is for batch reads")
        wanted = _wanted(options)
        start = point_of(options, "starting", default=Latest() if kind == "stream" else Earliest())
        end = point_of(options, "ending", default=Latest())
        if kind == "batch":
            start.refuse(Latest(), "a batch read would begin where the log ends")
        end.refuse(Earliest(), "a read would end where the log begins")
        least, most = _offsets_a_trigger(options)
        lateness = options.has("maxLateness")
        return cls(
            client=ClientOptions.of(options),
            wanted=wanted,
            start=start,
            end=end,
            unmatched_start=cast(
                Literal["error", "latest"],
                options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error"),
            ),
            fail_on_data_loss=options.flag("failOnDataLoss", default=True),
            isolation=_isolation(options),
            include_headers=options.flag("includeHeaders", default=False),
            max_offsets=most,
            min_offsets=least,
            max_delay_ms=options.milliseconds("maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
            max_bytes=options.byte_count("maxBytesPerTrigger"),
            min_partitions=options.whole("minPartitions", least=1, most=SPLITS_MAX),
            max_records=options.whole("maxRecordsPerPartition", least=1),
            poll_ms=_whole(options, "kafkaConsumer.pollTimeoutMs", POLL_MS, least=1),
            offset_retries=_whole(options, "fetchOffset.numRetries", 3),
            offset_retry_ms=options.milliseconds("fetchOffset.retryIntervalMs", 10),
            metadata_ttl_ms=_whole(options, "partition.metadata.cache.ttl.ms", -1, least=-1),
            group=_group(options, wanted),
            lateness_ms=options.milliseconds("maxLateness", 0) if lateness else None,
            fetch_bytes=_fetch_bytes(options),
            rack=options.text("kafka.client.rack"),
            tags=tags_of(options),
        )


def trigger_options_given(options: Options) -> list[str]:
    """The given options that only apply to streams."""
    return [name for name in _TRIGGERS if options.has(name)]


def _whole(options: Options, name: str, default: int, *, least: int = 0) -> int:
    found = options.whole(name, default, least=least)
    assert found is not None
    return found


def _wanted(options: Options) -> Wanted:
    given = {name: options.text(name) for name in _WAYS}
    said = {name: text for name, text in given.items() if text is not None}
    if len(said) != 1:
        what = f"{' and '.join(said)} are both given" if said else "none is given"
        raise BadOption(
            f"which topics are read is said by one of the options {', '.join(_WAYS)}; {what}"
        )
    ((option, text),) = said.items()
    if option == "assign":
        return Wanted(option=option, assigned=assigned(option, text))
    if option == "subscribePattern":
        return Wanted(option=option, pattern=topic_pattern(option, text))
    named = tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
    if not named:
        raise BadOption(f"{option} = {text!r}: names of topics, with commas between them")
    return Wanted(option=option, named=named)


def _offsets_a_trigger(options: Options) -> tuple[int | None, int | None]:
    most = options.whole("maxOffsetsPerTrigger", least=1)
    least = options.whole("minOffsetsPerTrigger", least=1)
    if most is not None and least is not None and least > most:
        raise BadOption(
            f"minOffsetsPerTrigger = {least} contradicts maxOffsetsPerTrigger = {most}: it must not be more"
        )
    return least, most


def _isolation(options: Options) -> Isolation:
    choices = ("read_committed", "read_uncommitted")
    ours, kafkas = options.has("isolation"), options.has("kafka.isolation.level")
    found = [
        options.choice(name, choices, choices[0])
        for name, is_given in (("isolation", ours), ("kafka.isolation.level", kafkas))
        if is_given
    ]
    if len(set(found)) > 1:
        raise BadOption(
            f"isolation = {found[0]!r} and kafka.isolation.level = {found[1]!r} contradict each other"
        )
    return cast(Isolation, found[0] if found else choices[0])


def _fetch_bytes(options: Options) -> int | None:
    sizes = [
        options.whole(name, least=1)
        for name in ("kafka.fetch.max.bytes", "kafka.max.partition.fetch.bytes")
    ]
    return min((one for one in sizes if one is not None), default=None)


def _group(options: Options, wanted: Wanted) -> str | None:
    name, prefix = options.text("kafka.group.id"), options.text("groupIdPrefix")
    is_on = options.flag("commitOffsets", default=True)
    if name == "":
        raise BadOption("kafka.group.id is empty: leave it out, or name a group")
    if not is_on:
        return None
    if name is not None:
        return name
    what = wanted.pattern.pattern if wanted.pattern is not None else "-".join(wanted.names or ())
    return f"{prefix or GROUP_PREFIX}-{what}"[:GROUP_LENGTH_MAX]
