"""Looks up the ends of partitions' copies, verifies that they are copies of this source, and starts copying there.

This happens when a partition is added, and after each of its failures.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from respool.client.kafka.codes import code_name
from respool.mirror.cluster_link import (
    EARLIEST,
    LATEST,
    PRODUCE_VERSIONS,
    REQUEST_MS,
    ClusterLink,
    LinkError,
    answers_of,
    produce_fields,
)
from respool.mirror.partition_copy import CopyState, PartitionCopy, difference, header_of
from respool.model.ids import Offset
from respool.records.markers import EndTransactionMarker
from respool.records.mirrored_batches import fillers_with_markers
from respool.wire.api_table import Api


class Stop(Protocol):
    def __call__(self, copy: PartitionCopy, why: str) -> None: ...


class OnLoss(Protocol):
    def __call__(self, copy: PartitionCopy, count: int, *, aborted: int, left_open: int) -> None:
        """The source deleted `count` offsets before they were copied.

        `aborted` transactions that were open there were aborted in the copy; `left_open` were not, since fewer offsets
        than transactions were missing.
        """


class StartOffsetFinder:
    def __init__(
        self,
        source: ClusterLink,
        target: ClusterLink,
        *,
        compacted: set[str],
        retry: Callable[[Iterable[PartitionCopy], str], None],
        stop: Stop,
        on_loss: OnLoss,
    ) -> None:
        """`retry` is called with partitions to look up again later, `stop` with one that has diverged."""
        self._source = source
        self._target = target
        self._compacted = compacted
        self._retry = retry
        self._stop = stop
        self._on_loss = on_loss

    async def begin(self, due: list[PartitionCopy]) -> None:
        """Look up the ends of these copies and start copying there, or schedule a retry."""
        places = [copy.place for copy in due]
        try:
            if any(copy.tries for copy in due):
                await self._source.refresh()
                await self._target.refresh()
        except LinkError as error:
            self._retry(due, str(error))
            return
        # The target first: the source may grow in the meantime.
        starts = await self._target.offsets(places, EARLIEST)
        ends = await self._target.offsets(places, LATEST)
        source_starts = await self._source.offsets(places, EARLIEST)
        source_ends = await self._source.offsets(places, LATEST)
        for copy in due:
            place = copy.place
            if place not in starts or place not in ends:
                self._retry(
                    [copy], f"{self._target.name} did not return the offsets of {copy.name}"
                )
            elif place not in source_starts or place not in source_ends:
                self._retry(
                    [copy], f"{self._source.name} did not return the offsets of {copy.name}"
                )
            else:
                copy.target_start, copy.target_end = starts[place], ends[place]
                copy.source_start, copy.source_end = source_starts[place], source_ends[place]
                try:
                    await self._begin(copy)
                except LinkError as error:
                    self._retry([copy], str(error))

    async def _begin(self, copy: PartitionCopy) -> None:
        if copy.goal is None:
            copy.goal = copy.source_end
        end, run, epoch = copy.target_end, copy.run, -1
        if end > copy.source_end:
            self._stop(
                copy,
                f"{copy.name} has messages up to offset {end} in the copy, and up to {copy.source_end} at the source: "
                "the source lost some, or was recreated",
            )
            return
        if end > max(copy.target_start, copy.source_start):
            mine = await self._target.first_batch(copy.place, end - 1)
            theirs = await self._source.first_batch(copy.place, end - 1)
            is_compacted = copy.place[0] in self._compacted
            different = difference(mine, theirs, end - 1, is_compacted=is_compacted)
            if different:
                self._stop(copy, f"{copy.name} is not what the source has: {different}")
                return
            header = header_of(theirs)
            # A batch that begins after the end does not reveal the epoch of the batch before the end.
            epoch = header.leader_epoch if header and header.base_offset < end else -1
        elif end < copy.source_start:
            end = await self._fill(copy)
        if copy.run == run and copy.state is CopyState.SEEKING:
            copy.begin(end, epoch)

    async def _fill(self, copy: PartitionCopy) -> int:
        """The source's log starts after the end of the copy: produce empty batches for the deleted offsets."""
        first = header_of(await self._source.first_batch(copy.place, copy.source_start))
        # If the source's log starts inside a batch, the whole batch is fetched.
        begin = copy.source_start if first is None else min(copy.source_start, first.base_offset)
        gap = max(0, begin - copy.target_end)
        ends = await self._abort_markers(copy, gap)
        left_open = max(0, len(ends) - gap)
        ends = ends[:gap]
        if copy.target_end > 0:
            count = copy.source_start - copy.target_end
            self._on_loss(copy, count, aborted=len(ends), left_open=left_open)
        if not gap:
            return copy.target_end
        data = fillers_with_markers(Offset(copy.target_end), Offset(begin), ends)
        leader = self._target.leader_of(copy.place)
        if leader is None:
            raise LinkError(f"{self._target.name}: {copy.name} has no leader")
        reply = await self._target.request(
            leader,
            Api.PRODUCE,
            produce_fields([(copy.place, data)]),
            versions=PRODUCE_VERSIONS,
            wait_ms=REQUEST_MS,
        )
        ((_, answer),) = answers_of(reply)
        if answer.error_code:
            raise LinkError(f"{self._target.name}: {copy.name}: {code_name(answer.error_code)}")
        return begin

    async def _abort_markers(self, copy: PartitionCopy, gap: int) -> list[EndTransactionMarker]:
        """Abort markers for the transactions that are open at the end of the copy.

        Their markers may be among the deleted records, so it is unknown whether they committed. If they stayed open,
        `read_committed` consumers would wait for them forever, and the producer's next transaction would be considered
        a part of them. If there are fewer offsets than transactions, those that are still open at the source come last.
        """
        found = await self._target.open_transactions(copy.place)
        if len(found) > gap:
            open_at_source = await self._open_at_source(copy)
            found.sort(key=lambda one: one.producer_id in open_at_source)
        return [
            EndTransactionMarker(
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                coordinator_epoch=one.epoch_of_end,
                is_commit=False,
            )
            for one in found
        ]

    async def _open_at_source(self, copy: PartitionCopy) -> set[int]:
        """Producers whose open transactions at the source began before the end of the copy; empty on a failure."""
        try:
            found = await self._source.open_transactions(copy.place)
        except LinkError:
            return set()
        return {one.producer_id for one in found if one.start_offset < copy.target_end}
