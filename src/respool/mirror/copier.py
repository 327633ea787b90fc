"""Copies partitions from one cluster's leaders to another's; record batches are copied unchanged.

```
 source --- fetch ---> prepare ---> produce, acks=all ---> target
        <-- one at a time          <-- several in flight
            for each leader
```
The position is not stored: it is the end of the copy. So after a crash on either side the next run looks up the end and
continues there. During a run, a partition's next fetch does not wait until its last batch is acknowledged; if one batch
is refused, those after it are refused too, and copying restarts from the end of the copy.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from respool.client.kafka.codes import Code, code_name, is_retriable
from respool.client.kafka.metadata import Place
from respool.client.kafka.versions import FETCH_BY_NAME
from respool.mirror.cluster_link import (
    FETCH_CHANNEL,
    PRODUCE_VERSIONS,
    REQUEST_MS,
    ClusterLink,
    LinkError,
    answers_of,
    by_topic,
    fetch_fields,
    produce_fields,
)
from respool.mirror.partition_copy import CopyState, PartitionCopy, StopReason
from respool.mirror.start_offsets import OnLoss, StartOffsetFinder
from respool.model.ids import Offset
from respool.records.mirrored_batches import OldFormat, Straddling, prepare
from respool.wire.api_table import Api

MIB = 1024 * 1024
FETCH_BYTES_MAX = 16 * MIB
PARTITION_BYTES_MAX = 8 * MIB
FETCH_WAIT_MS = 500
# Fetching waits while more than this is in flight to the target.
IN_FLIGHT_BYTES_MAX = 64 * MIB
POLL_SECONDS = 0.1
LOG_STARTS_SECONDS = 1.0
DELETE_MS = 10_000
# A corrupt batch may have been corrupted on the network; after this many tries it is considered corrupt at the source.
DAMAGED_TRIES_MAX = 5
# If the target's log is longer than its high watermark and the source was compacted in the meantime, a batch may not
# fit until the target's followers have caught up. After this many tries the copy is considered diverged.
DIFFERENT_TRIES_MAX = 8

# The target has no mirror of that name, or the batch does not fit the end of its log.
_DOES_NOT_FIT = {Code.policy_violation, Code.invalid_record}


class _InFlight(NamedTuple):
    """Batches of one partition in flight to the target."""

    copy: PartitionCopy
    run: int
    data: bytes
    end: int


class PartitionCopier:
    """`run` copies the partitions that were added, until it is cancelled."""

    def __init__(
        self,
        source: ClusterLink,
        target: ClusterLink,
        *,
        keep_longer: bool = False,
        compacted: set[str] | None = None,
        on_stopped: Callable[[str, StopReason, str], None],
        on_loss: OnLoss,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_stopped` is called for a topic that cannot be copied, with the reason; `on_loss` for records that the
        source deleted before they were copied. In `compacted` topics records may disappear from within a batch.
        """
        self._source = source
        self._target = target
        self._keep_longer = keep_longer
        self._on_stopped = on_stopped
        self._clock = clock
        self.partitions: dict[Place, PartitionCopy] = {}
        self._seek = StartOffsetFinder(
            source,
            target,
            compacted=set() if compacted is None else compacted,
            retry=self._retry,
            stop=self._stop,
            on_loss=on_loss,
        )
        # Set from any thread. While it is true, nothing is fetched; batches in flight to the target are completed.
        self.is_paused = False
        self.bytes_copied = 0
        self.offsets_copied = 0
        self._bytes_in_flight = 0
        self._has_capacity = asyncio.Event()
        self._fetchers: dict[int, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._turn = 0

    def add(self, places: Iterable[Place]) -> None:
        for place in places:
            self.partitions.setdefault(place, PartitionCopy(place=place))

    def drop_retired(self, topic: str, *, listed: int) -> None:
        """Forget partitions that were taken away at the source; their copies stay."""
        for place in [one for one in self.partitions if one[0] == topic and one[1] >= listed]:
            del self.partitions[place]

    def stop_topic(self, topic: str, reason: StopReason, why: str) -> None:
        copies = [copy for copy in self.partitions.values() if copy.place[0] == topic]
        was_stopped = all(copy.state is CopyState.STOPPED for copy in copies)
        for copy in copies:
            copy.stop(why)
        if not was_stopped:
            self._on_stopped(topic, reason, why)

    @property
    def is_done(self) -> bool:
        """True when everything that existed at the start is copied, apart from stopped partitions."""
        return all(
            copy.state is CopyState.STOPPED or copy.is_done(with_log_start=not self._keep_longer)
            for copy in self.partitions.values()
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._keep_seeking())
            if not self._keep_longer:
                self._tasks.create_task(self._keep_log_starts())
            while True:
                self._start_fetchers(self._tasks)
                await asyncio.sleep(POLL_SECONDS)

    # -- the end of the copy -------------------------------------------------------------------------------------------

    async def _keep_seeking(self) -> None:
        while True:
            now = self._clock()
            due = [
                copy
                for copy in self.partitions.values()
                if copy.state is CopyState.SEEKING and copy.due_at <= now
            ]
            if due:
                await self._seek.begin(due)
            await asyncio.sleep(POLL_SECONDS)

    def _retry(self, copies: Iterable[PartitionCopy], why: str) -> None:
        now = self._clock()
        for copy in copies:
            copy.seek_again(why, now)

    def _stop(self, copy: PartitionCopy, why: str, reason: StopReason = StopReason.DIFFERS) -> None:
        self.stop_topic(copy.place[0], reason, why)

    # -- fetching ------------------------------------------------------------------------------------------------------

    def _start_fetchers(self, tasks: asyncio.TaskGroup) -> None:
        for leader in self._source.by_leader(self.partitions):
            if leader not in self._fetchers:
                self._fetchers[leader] = tasks.create_task(self._keep_fetching(leader))

    async def _keep_fetching(self, leader: int) -> None:
        while True:
            while self._bytes_in_flight >= IN_FLIGHT_BYTES_MAX:
                self._has_capacity.clear()
                await self._has_capacity.wait()
            wanted = self._wanted_of(leader)
            if self.is_paused or not wanted:
                await asyncio.sleep(POLL_SECONDS)
                continue
            fields = fetch_fields(
                [(copy.place, copy.fetch_offset, copy.epoch) for copy in wanted],
                bytes_max=FETCH_BYTES_MAX,
                partition_bytes_max=PARTITION_BYTES_MAX,
                wait_ms=FETCH_WAIT_MS,
            )
            runs = [copy.run for copy in wanted]
            try:
                reply = await self._source.request(
                    leader,
                    Api.FETCH,
                    fields,
                    versions=FETCH_BY_NAME,
                    channel=FETCH_CHANNEL,
                    wait_ms=FETCH_WAIT_MS,
                )
            except LinkError as error:
                self._retry(wanted, str(error))
                continue
            if reply.error_code:
                self._retry(wanted, f"{self._source.name}: {code_name(reply.error_code)}")
                continue
            if self.is_paused:
                # Fetched again after the pause.
                continue
            self._on_fetched(
                {
                    copy.place: copy
                    for copy, run in zip(wanted, runs, strict=True)
                    if copy.run == run and copy.state is CopyState.COPYING
                },
                reply,
            )

    def _wanted_of(self, leader: int) -> list[PartitionCopy]:
        """The partitions that this broker leads, a different one first each time, since a reply may be full."""
        led = [
            copy
            for copy in self.partitions.values()
            if copy.state is CopyState.COPYING and self._source.leader_of(copy.place) == leader
        ]
        self._turn += 1
        at = self._turn % len(led) if led else 0
        # Requests group partitions by topic; the order within a topic matters.
        return led[at:] + led[:at]

    def _on_fetched(self, asked: dict[Place, PartitionCopy], reply: Any) -> None:
        pieces: dict[int, list[_InFlight]] = {}
        for topic in reply.responses:
            for answer in topic.partitions:
                copy = asked.get((topic.topic, answer.partition_index))
                if copy is None:
                    continue
                piece = self._on_partition_fetched(copy, answer)
                if piece is None:
                    continue
                leader = self._target.leader_of(copy.place)
                if leader is None:
                    self._retry([copy], f"{self._target.name}: {copy.name} has no leader")
                else:
                    pieces.setdefault(leader, []).append(piece)
        assert self._tasks is not None
        for leader, led in pieces.items():
            self._bytes_in_flight += sum(len(piece.data) for piece in led)
            # Tasks start in this order, so requests are sent in order: they share a connection.
            self._tasks.create_task(self._produce(leader, led))

    def _on_partition_fetched(self, copy: PartitionCopy, answer: Any) -> _InFlight | None:
        if answer.error_code:
            self._retry([copy], f"{self._source.name}: {copy.name}: {code_name(answer.error_code)}")
            return None
        if answer.diverging_epoch.epoch >= 0:
            self._stop(
                copy,
                f"{copy.name}: the source lost messages from offset {answer.diverging_epoch.end_offset} on; they "
                f"are copied up to {copy.position}",
            )
            return None
        copy.source_end = max(answer.high_watermark, copy.source_end)
        copy.source_start = max(answer.log_start_offset, copy.source_start)
        return self._prepare(copy, answer.records) if answer.records else None

    def _prepare(self, copy: PartitionCopy, records: bytes) -> _InFlight | None:
        try:
            prepared = prepare(records, begin=Offset(copy.position), is_empty=copy.is_empty)
        except Straddling as error:
            self._stop(copy, f"{copy.name} is not what the source has: {error}")
            return None
        except OldFormat:
            why = f"{copy.name} has messages at the source in a format from before Kafka 0.11"
            self._stop(copy, why, StopReason.REFUSED)
            return None
        if not prepared.data:
            return None
        copy.move_to(prepared.end, prepared.leader_epoch)
        return _InFlight(copy, copy.run, prepared.data, prepared.end)

    # -- producing -----------------------------------------------------------------------------------------------------

    async def _produce(self, leader: int, pieces: list[_InFlight]) -> None:
        by_place = {piece.copy.place: piece for piece in pieces}
        fields = produce_fields((place, piece.data) for place, piece in by_place.items())
        try:
            reply = await self._target.request(
                leader, Api.PRODUCE, fields, versions=PRODUCE_VERSIONS, wait_ms=REQUEST_MS
            )
        except LinkError as error:
            self._retry((piece.copy for piece in pieces if _is_valid(piece)), str(error))
            return
        finally:
            self._bytes_in_flight -= sum(len(piece.data) for piece in pieces)
            self._has_capacity.set()
        for place, answer in answers_of(reply):
            piece = by_place[place]
            if _is_valid(piece):
                await self._on_produced(piece, answer)

    async def _on_produced(self, piece: _InFlight, answer: Any) -> None:
        copy, code = piece.copy, int(answer.error_code)
        if not code:
            self.bytes_copied += len(piece.data)
            self.offsets_copied += max(0, piece.end - copy.target_end)
            copy.on_written(piece.end)
            return
        why = f"{self._target.name}: {copy.name}: {answer.error_message or code_name(answer.error_code)}"
        is_damaged = code == Code.corrupt_message
        # Out of order: an earlier request in flight failed.
        is_retriable_here = is_retriable(code) or code == Code.out_of_order_sequence_number
        if copy.tries < DAMAGED_TRIES_MAX if is_damaged else is_retriable_here:
            self._retry([copy], why)
        elif code not in _DOES_NOT_FIT:
            self._stop(copy, why, StopReason.REFUSED)
        else:
            is_mirror = await self._target.is_mirror(copy.place[0])
            if not _is_valid(piece):
                # Copying was restarted in the meantime.
                return
            if is_mirror is False:
                self._stop(
                    copy, f"{copy.place[0]} is no longer a mirror: {why}", StopReason.RELEASED
                )
            elif is_mirror is None or copy.tries < DIFFERENT_TRIES_MAX:
                self._retry([copy], why)
            else:
                self._stop(copy, why, StopReason.DIFFERS)

    # -- log starts ---------------------------------------------------------------------------------------

    async def _keep_log_starts(self) -> None:
        """Follow the source's log starts: delete from the copy what the source has deleted."""
        while True:
            await asyncio.sleep(LOG_STARTS_SECONDS if not self._has_late_starts() else POLL_SECONDS)
            behind = [copy for copy in self.partitions.values() if _starts_too_early(copy)]
            for leader, places in self._target.by_leader(copy.place for copy in behind).items():
                await self._raise_log_starts(leader, [one for one in behind if one.place in places])

    def _has_late_starts(self) -> bool:
        return any(map(_starts_too_early, self.partitions.values()))

    async def _raise_log_starts(self, leader: int, copies: list[PartitionCopy]) -> None:
        partitions = [
            (copy.place, {"partition_index": copy.place[1], "offset": copy.source_start})
            for copy in copies
        ]
        fields = {"topics": by_topic(partitions, topic="name"), "timeout": DELETE_MS}
        try:
            reply = await self._target.request(
                leader, Api.DELETE_RECORDS, fields, wait_ms=DELETE_MS
            )
        except LinkError:
            # It will be retried; the reason is reported by a fetch or produce request that fails too.
            await asyncio.sleep(LOG_STARTS_SECONDS)
            return
        for topic in reply.topics:
            for one in topic.partitions:
                copy = self.partitions[topic.name, one.partition_index]
                if not one.error_code:
                    copy.target_start = max(copy.target_start, one.low_watermark)


def _starts_too_early(copy: PartitionCopy) -> bool:
    return (
        copy.state is CopyState.COPYING and copy.target_start < copy.source_start <= copy.target_end
    )


def _is_valid(piece: _InFlight) -> bool:
    return piece.copy.run == piece.run and piece.copy.state is CopyState.COPYING
