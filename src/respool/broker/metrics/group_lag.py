"""Consumer lag of groups, in messages and in seconds, published by each group's coordinator.

- lag in messages: from the committed offset, or the log start if that is later, to the high watermark
- lag in seconds: the age of the first record that the group has not consumed, by the record's timestamp; 0 without one

Looked up every `metrics_lag_interval_ms`, for all partitions at once. A scrape reads the last values, but the age keeps
growing with the clock. For partitions that other brokers lead, their leaders are asked.
"""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from respool.broker.coordinators.group_coordinators import Groups
from respool.broker.metadata.catalog import Catalog
from respool.broker.metrics.record_ages import RecordAges
from respool.broker.metrics.remote_ends import RemoteEnds
from respool.broker.metrics.series_budget import SeriesBudget, SeriesKind
from respool.broker.metrics.turns import in_turns
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.model.errors import RequestError
from respool.model.ids import BrokerId, Offset, TopicPartition
from respool.model.name_filter import NameFilter
from respool.ports.clock import Clock
from respool.ports.metrics import Family

LABELS = ("group", "topic", "partition")
# Committed offset, lag in messages and lag in seconds.
SERIES_PER_POSITION = 3
# Positions handled per turn of the event loop: about a millisecond.
POSITIONS_PER_TURN = 200


class _Position(NamedTuple):
    """A group's position in a partition."""

    group: str
    # The topic or view of which it has committed the offset.
    topic: str
    # Where the records are: in the partition of that topic, or of the view's parent.
    name: TopicPartition
    committed: Offset

    @property
    def labels(self) -> tuple[str, str, str]:
        return self.group, self.topic, str(self.name.partition)


class _Lag(NamedTuple):
    labels: tuple[str, str, str]
    committed: Offset
    # None if the partition's leader did not answer.
    messages: int | None
    # The timestamp of the first record not consumed; None if there is no such record or its timestamp is unknown.
    timestamp: int | None


class GroupLag:
    def __init__(
        self,
        *,
        groups: Groups,
        partitions: Partitions,
        catalog: Catalog,
        ages: RecordAges,
        remote: RemoteEnds | None,
        names: NameFilter,
        topic_names: NameFilter,
        budget: SeriesBudget,
        clock: Clock,
    ) -> None:
        """`remote` is None for a single broker."""
        self._groups = groups
        self._partitions = partitions
        self._catalog = catalog
        self._ages = ages
        self._remote = remote
        self._names = names
        self._topic_names = topic_names
        self._budget = budget
        self._clock = clock
        self._lags: list[_Lag] = []
        # Timestamps of the records at the groups' positions in the last lookup.
        self._times: dict[tuple[Partition, Offset], int] = {}

    def collect(self) -> Iterator[Family]:
        lags, now_ms = self._lags, self._clock.now_ms()
        yield Family(
            "respool_group_committed_offset",
            "gauge",
            "The offset a group has committed: what it reads next.",
            LABELS,
            ((one.labels, one.committed) for one in lags),
        )
        yield Family(
            "respool_group_lag_messages",
            "gauge",
            "Messages that a group has not consumed.",
            LABELS,
            ((one.labels, one.messages) for one in lags if one.messages is not None),
        )
        yield Family(
            "respool_group_lag_seconds",
            "gauge",
            "Age of the first message that a group has not consumed; 0 when it has consumed all.",
            LABELS,
            (
                (one.labels, seconds)
                for one in lags
                if (seconds := _seconds(one, now_ms)) is not None
            ),
        )

    async def refresh(self) -> None:
        lags: list[_Lag] = []
        times: dict[tuple[Partition, Offset], int] = {}
        remote: dict[BrokerId | None, list[_Position]] = {}
        async for turn in in_turns(await self._positions(), POSITIONS_PER_TURN):
            local: list[tuple[_Position, Partition]] = []
            for position in turn:
                found = self._led_here(position.name)
                if found is not None:
                    local.append((position, found))
                else:
                    remote.setdefault(self._leader_of(position.name), []).append(position)
            lags += await self._local_lags(local, times)
        for broker, positions in remote.items():
            async for turn in in_turns(positions, POSITIONS_PER_TURN):
                lags += await self._remote_lags(broker, turn)
        self._lags, self._times = lags, times

    # -- positions ---------------------------------------------------------------------------------------------------

    async def _positions(self) -> list[_Position]:
        """Return the positions that have series, for groups that this broker coordinates."""
        found: list[_Position] = []
        dropped = looked_at = 0
        kept = set()
        for offsets in self._groups.committed() if self._partitions.may_act else ():
            for group in tuple(offsets.group_ids()):
                if not self._names.passes(group):
                    continue
                for topic, number, committed in offsets.committed_of(group):
                    looked_at += 1
                    if looked_at % POSITIONS_PER_TURN == 0:
                        await asyncio.sleep(0)
                    if not self._is_wanted(topic, number, committed):
                        continue
                    log = TopicPartition(self._catalog.image.log_name(topic), number)
                    position = _Position(group, topic, log, committed)
                    if self._budget.admit(SeriesKind.GROUP, position.labels, SERIES_PER_POSITION):
                        found.append(position)
                        kept.add(position.labels)
                    else:
                        dropped += SERIES_PER_POSITION
        self._budget.retain(SeriesKind.GROUP, kept)
        self._budget.dropped[SeriesKind.GROUP] = dropped
        return found

    def _is_wanted(self, topic: str, number: int, committed: Offset) -> bool:
        return (
            committed >= 0
            and self._topic_names.passes(topic)
            and self._catalog.image.has_partition(self._catalog.image.log_name(topic), number)
        )

    def _led_here(self, name: TopicPartition) -> Partition | None:
        try:
            found = self._partitions.find_leader(*name)
        except RequestError:
            return None
        return found if found.is_online else None

    def _runs(self, broker: BrokerId) -> bool:
        return broker in self._catalog.image.brokers

    def _leader_of(self, name: TopicPartition) -> BrokerId | None:
        image = self._catalog.image
        if not image.has_partition(*name):
            return None
        return image.topics[name.topic].partitions[name.partition].leader

    # -- lag ---------------------------------------------------------------------------------------------------------

    async def _local_lags(
        self,
        local: list[tuple[_Position, Partition]],
        times: dict[tuple[Partition, Offset], int],
    ) -> list[_Lag]:
        """Return the lags in partitions led here. Timestamps that were looked up are added to `times`."""
        behind = [
            (partition, max(position.committed, partition.log_start))
            for position, partition in local
            if max(position.committed, partition.log_start) < partition.high_watermark
        ]
        known = {key: self._times[key] for key in behind if key in self._times}
        known |= await self._ages.look_up(dict.fromkeys(key for key in behind if key not in known))
        times.update(known)
        return [
            _lag(
                position,
                begin := max(position.committed, partition.log_start),
                partition.high_watermark,
                known.get((partition, begin)),
            )
            for position, partition in local
        ]

    async def _remote_lags(self, broker: BrokerId | None, positions: list[_Position]) -> list[_Lag]:
        ends = {}
        if self._remote is not None and broker is not None and self._runs(broker):
            wanted: dict[TopicPartition, list[Offset]] = {}
            for one in positions:
                wanted.setdefault(one.name, []).append(one.committed)
            ends = await self._remote.ask(broker, wanted)
        lags = []
        for one in positions:
            end = ends.get(one.name)
            if end is None:
                lags.append(_Lag(one.labels, one.committed, None, None))
            else:
                begin = max(one.committed, end.log_start)
                time = end.times.get(one.committed)
                lags.append(_lag(one, begin, end.high_watermark, time))
        return lags


def _lag(position: _Position, begin: Offset, end: Offset, timestamp: int | None) -> _Lag:
    messages = max(0, end - begin)
    return _Lag(position.labels, position.committed, messages, timestamp if messages else None)


def _seconds(lag: _Lag, now_ms: int) -> float | None:
    if lag.messages is None:
        return None
    if not lag.messages:
        return 0
    # A record with a timestamp in the future has age 0.
    return None if lag.timestamp is None else max(0, now_ms - lag.timestamp) / 1000
