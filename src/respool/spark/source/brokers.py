"""The driver's requests to brokers: topics, start and end offsets of partitions, and message sizes."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self, TypeAlias

from respool.client.arrow.errors import ReadError
from respool.client.arrow.reading.read_plan import PartitionRange, ReadPlan
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import BrokerUnreachable, NoBroker, UnknownTopic
from respool.client.kafka.list_offsets import offsets_for
from respool.model.errors import RespoolError
from respool.spark.client_options import BOOTSTRAP
from respool.spark.option_values import BadOption
from respool.spark.source.source_options import SourceOptions
from respool.spark.source.start_points import EARLIEST, LATEST
from respool.spark.source.stream_plan import Place

# Per partition, to estimate the size of its next messages.
SAMPLE_BYTES = 64 * 1024
SAMPLE_OFFSETS = 1_000
SAMPLE_SECONDS = 10.0

Offsets: TypeAlias = Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSeen:
    # None if the brokers do not support topic ids.
    id: str | None
    # The requested partitions.
    partitions: tuple[int, ...]


class BrokersAway(RespoolError):
    """No broker answered within the retry limit."""


class Brokers:
    """Use it as a context manager, or call `close`."""

    def __init__(
        self, options: SourceOptions, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        client = options.client
        self.cluster: Cluster = client.cluster(first_contact_ms=client.first_contact_ms)
        self._options = options
        self._monotonic = monotonic
        self._seen: dict[str, TopicSeen] = {}
        self._seen_at: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.cluster.close()

    # -- topics --------------------------------------------------------------------------------------------------------

    def topics(self, *, known: Iterable[str] = ()) -> dict[str, TopicSeen]:
        """The existing ones of the requested topics. With a pattern, `known` topics are checked even if not listed.

        The result is cached for the option partition.metadata.cache.ttl.ms.
        """
        ttl_s = self._options.metadata_ttl_ms / 1000
        now = self._monotonic()
        if self._seen_at is not None and now - self._seen_at < ttl_s:
            return self._seen
        names = self._options.wanted.names
        if names is None:
            # A broker that has just started, or lost contact, may list too few topics: request known ones by name.
            pattern = self._options.wanted.pattern
            assert pattern is not None
            names = (*self._matching(pattern), *(one for one in known if pattern.fullmatch(one)))
        found = {name: self._wanted(name) for name in dict.fromkeys(names)}
        self._seen = {name: one for name, one in found.items() if one is not None}
        self._seen_at = now
        return self._seen

    def all_topics(self) -> dict[str, TopicSeen]:
        """Like `topics`, but every named topic must exist.

        Raises:
            BadOption: a named topic or partition does not exist.
        """
        found = self.topics()
        for name in self._options.wanted.names or ():
            if name not in found:
                raise BadOption(
                    f"{self._options.wanted.option} names the topic {name!r}, which is not there: create it, or ask "
                    "which there are with `respool topic list`"
                )
        return found

    def find(self, name: str) -> TopicSeen | None:
        """A topic with all its partitions, requested or not; None if it does not exist."""
        try:
            seen = self.cluster.retrying(lambda: self.cluster.refresh(name))
        except UnknownTopic:
            return None
        except BrokerUnreachable as error:
            raise self._away(error) from error
        topic_id = None if seen.id is None else str(seen.id)
        return TopicSeen(id=topic_id, partitions=tuple(seen.leaders))

    def _wanted(self, name: str) -> TopicSeen | None:
        seen, assigned = self.find(name), self._options.wanted.assigned
        if seen is None or assigned is None:
            return seen
        _check_assigned(name, seen, assigned[name])
        return TopicSeen(id=seen.id, partitions=assigned[name])

    def _matching(self, pattern: re.Pattern[str]) -> list[str]:
        try:
            topics = self.cluster.retrying(self.cluster.refresh_all)
        except BrokerUnreachable as error:
            raise self._away(error) from error
        return sorted(
            one.name
            for one in topics.values()
            if not one.is_internal and pattern.fullmatch(one.name)
        )

    def _away(self, error: BrokerUnreachable) -> BrokersAway:
        if isinstance(error, NoBroker):
            return BrokersAway(str(error))
        return BrokersAway(f"{BOOTSTRAP} = {self._options.client.bootstrap!r}: {error}")

    # -- offsets -------------------------------------------------------------------------------------------------------

    def earliest(self, topic: str, partitions: Iterable[int]) -> Offsets:
        return self._ends(topic, partitions, EARLIEST)

    def latest(self, topic: str, partitions: Iterable[int]) -> Offsets:
        """The end of the readable messages: with read_committed, before the first open transaction."""
        return self._ends(topic, partitions, LATEST)

    def high_watermarks(self, topic: str, partitions: Iterable[int]) -> Offsets:
        found = offsets_for(self.cluster, topic, partitions, LATEST, isolation="read_uncommitted")
        return {number: 0 if one is None else one.offset for number, one in found.items()}

    def at_time(self, topic: str, partitions: Iterable[int], ms: int) -> Mapping[int, int | None]:
        """The first offset at or after this time; None if there is none."""
        found = offsets_for(self.cluster, topic, partitions, ms, isolation=self._options.isolation)
        return {number: None if one is None else one.offset for number, one in found.items()}

    def _ends(self, topic: str, partitions: Iterable[int], which: int) -> Offsets:
        found = offsets_for(
            self.cluster, topic, partitions, which, isolation=self._options.isolation
        )
        return {number: 0 if one is None else one.offset for number, one in found.items()}

    # -- sizes ---------------------------------------------------------------------------------------------------------

    def bytes_an_offset(
        self, start: Mapping[Place, int], end: Mapping[Place, int]
    ) -> dict[Place, float]:
        """The decoded bytes per offset of the next messages, from a sample at each partition's start.

        A partition without a sample within the time limit gets the average of the others.
        """
        found: dict[Place, float] = {}
        for topic in sorted({topic for topic, _ in end}):
            ranges = tuple(
                PartitionRange(
                    partition=partition,
                    begin=start[topic, partition],
                    end=min(end[topic, partition], start[topic, partition] + SAMPLE_OFFSETS),
                )
                for name, partition in sorted(end)
                if name == topic and start[topic, partition] < end[topic, partition]
            )
            if ranges:
                found |= self._sampled(topic, ranges)
        usual = sum(found.values()) / len(found) if found else 0.0
        return {place: found.get(place, usual) for place in end}

    def _sampled(self, topic: str, ranges: tuple[PartitionRange, ...]) -> dict[Place, float]:
        # These import the kernels, which nothing else on the driver needs.
        from respool.client.arrow.reading.projection import Projection
        from respool.client.arrow.reading.stream import BatchStream, ReadSettings

        plan = ReadPlan(topic=topic, topic_id=self.cluster.topic(topic).id, ranges=ranges)
        settings = ReadSettings(isolation=self._options.isolation, fetch_bytes=SAMPLE_BYTES)
        begins = {one.partition: one.begin for one in ranges}
        found: dict[Place, float] = {}
        deadline = self._monotonic() + SAMPLE_SECONDS
        with BatchStream(self.cluster, plan, Projection(topic, None, None), settings) as stream:
            while len(found) < len(begins):
                try:
                    piece = stream.next_piece(max(0.0, deadline - self._monotonic()))
                except (TimeoutError, ReadError):
                    # An error of a partition is reported by the task that reads it.
                    break
                if piece is None:
                    break
                offsets = piece.next_offset - begins[piece.partition]
                if offsets > 0:
                    found.setdefault((topic, piece.partition), piece.size / offsets)
        return found


def _check_assigned(name: str, seen: TopicSeen, partitions: tuple[int, ...]) -> None:
    for partition in partitions:
        if partition not in seen.partitions:
            count = len(seen.partitions)
            raise BadOption(
                f"assign has partition {partition} of {name!r}, which has {count}: 0 to {count - 1}"
            )
