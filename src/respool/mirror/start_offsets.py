"""Finds out where copies of partitions end, that they are copies of this source, and what is fetched next.

It is done when a partition is begun with, and again whenever something went wrong with it.
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
from respool.records.mirrored_batches import gap_with_ends
from respool.wire.api_table import Api


class Stop(Protocol):
    def __call__(self, copy: PartitionCopy, why: str) -> None: ...


class OnLoss(Protocol):
    def __call__(self, copy: PartitionCopy, count: int, *, aborted: int, left_open: int) -> None:
        """The source deleted so many offsets before they were copied.

        So many transactions that were open there were aborted, and so many were not, for want of offsets.
        """


class StartOffsetFinder:
    def __init__(
        self,
        source: ClusterLink,
        target: ClusterLink,
        *,
        compacted: set[str],
        again: Callable[[Iterable[PartitionCopy], str], None],
        stop: Stop,
        on_loss: OnLoss,
    ) -> None:
        """`again` is told what is to be tried later and why, `stop` what is no copy of this source."""
        self._source = source
        self._target = target
        self._compacted = compacted
        self._again = again
        self._stop = stop
        self._on_loss = on_loss

    async def begin(self, due: list[PartitionCopy]) -> None:
        """Find out where these end, and let them go on from there; or say when to try again."""
        places = [copy.place for copy in due]
        try:
            if any(copy.tries for copy in due):
                await self._source.refresh()
                await self._target.refresh()
        except LinkError as error:
            self._again(due, str(error))
            return
        # The target first: the source may only grow meanwhile.
        starts = await self._target.offsets(places, EARLIEST)
        ends = await self._target.offsets(places, LATEST)
        source_starts = await self._source.offsets(places, EARLIEST)
        source_ends = await self._source.offsets(places, LATEST)
        for copy in due:
            place = copy.place
            if place not in starts or place not in ends:
                self._again([copy], f"{self._target.name} does not say where {copy.name} ends")
            elif place not in source_starts or place not in source_ends:
                self._again([copy], f"{self._source.name} does not say where {copy.name} ends")
            else:
                copy.target_start, copy.target_end = starts[place], ends[place]
                copy.source_start, copy.source_end = source_starts[place], source_ends[place]
                try:
                    await self._begin(copy)
                except LinkError as error:
                    self._again([copy], str(error))

    async def _begin(self, copy: PartitionCopy) -> None:
        if copy.goal is None:
            copy.goal = copy.source_end
        end, run, epoch = copy.target_end, copy.run, -1
        if end > copy.source_end:
            self._stop(
                copy,
                f"{copy.name} has messages up to offset {end} in the copy, and up to {copy.source_end} at the source: "
                "the source has lost some, or was recreated",
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
            # Of a batch that begins later nothing is known about what lies before.
            epoch = header.leader_epoch if header and header.base_offset < end else -1
        elif end < copy.source_start:
            end = await self._fill(copy)
        if copy.run == run and copy.state is CopyState.SEEKING:
            copy.begin(end, epoch)

    async def _fill(self, copy: PartitionCopy) -> int:
        """The source begins after the copy's end: let empty batches stand for what it deleted."""
        first = header_of(await self._source.first_batch(copy.place, copy.source_start))
        # The source may start inside a batch, and that comes whole.
        begin = copy.source_start if first is None else min(copy.source_start, first.base_offset)
        room = max(0, begin - copy.target_end)
        ends = await self._open_ends(copy, room)
        left_open = max(0, len(ends) - room)
        ends = ends[:room]
        if copy.target_end > 0:
            count = copy.source_start - copy.target_end
            self._on_loss(copy, count, aborted=len(ends), left_open=left_open)
        if not room:
            return copy.target_end
        data = gap_with_ends(Offset(copy.target_end), Offset(begin), ends)
        leader = self._target.leader_of(copy.place)
        if leader is None:
            raise LinkError(f"{self._target.name}: nobody leads {copy.name}")
        reply = await self._target.ask(
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

    async def _open_ends(self, copy: PartitionCopy, room: int) -> list[EndTransactionMarker]:
        """Ends for the transactions that are open where the copy ends: theirs may be among what the source deleted.

        Nobody can tell any more whether that is so, and how they ended. Left open, readers of committed messages would
        wait before them for ever, and the producer's next transaction would be taken for a part of them.

        Where there is no room for all, those come last that are open at the source as well: they did not end there.
        """
        found = await self._target.open_transactions(copy.place)
        if len(found) > room:
            going_on = await self._open_at_source(copy)
            found.sort(key=lambda one: one.producer_id in going_on)
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
        """Producers whose transactions there began before the copy's end; none where it does not know the question."""
        try:
            found = await self._source.open_transactions(copy.place)
        except LinkError:
            return set()
        return {one.producer_id for one in found if one.start_offset < copy.target_end}
