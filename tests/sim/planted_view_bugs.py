"""Mistakes that reading views may have, made on purpose. As `planted_bugs.py`; each with a seed that finds it."""

from collections.abc import Mapping
from typing import Any

import pytest

from respool.broker.fetch.partition_read import PartitionRead
from respool.broker.views import filtered_read
from respool.broker.views.chunk_verdicts import AbortedBatches
from respool.broker.views.filtered_read import FilteredRead
from respool.broker.views.filtered_records import FilteredRecords
from respool.model.ids import Offset
from respool.records.batch import MAGIC, BatchHeader, seal
from respool.wire.hot_replies import FetchedPartition
from sim.planted_bugs import Plant


def an_empty_batch_for_the_marker(patch: pytest.MonkeyPatch) -> None:
    """It moves the fetch position of clients, and not what their groups commit."""

    def build(*, last_offset: Offset, leader_epoch: Any, timestamp_ms: int) -> bytes:
        header = BatchHeader(
            last_offset, 0, leader_epoch, MAGIC, 0, 0, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 0
        )
        return bytes(seal(header, b"").data)

    patch.setattr(filtered_read, "build_skip_marker", build)


def a_marker_at_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A read_committed reader that has seen everything up to an open transaction is moved past it."""
    end = FilteredRead._end_with_marker

    def end_with_marker(self: FilteredRead) -> FilteredRecords:
        if self.scanned.offset >= self._spec.max_offset:
            self.scanned = self.scanned._replace(offset=self._source.log.synced_end)  # type: ignore[attr-defined]
        return end(self)

    patch.setattr(FilteredRead, "_end_with_marker", end_with_marker)


def aborted_batches_are_shown(patch: pytest.MonkeyPatch) -> None:
    """They are sifted like all others, while no list of aborted transactions is sent."""
    patch.setattr(AbortedBatches, "has", lambda self, header: False)


def aborted_transactions_are_listed_without_their_markers(patch: pytest.MonkeyPatch) -> None:
    """A client ignores the producer from there on, because its marker never comes."""
    read = PartitionRead.read

    def read_and_list(
        self: PartitionRead, partition: Any, target: Any, *args: Any, **more: Any
    ) -> FetchedPartition:
        fetched = read(self, partition, target, *args, **more)
        if not isinstance(fetched.records, FilteredRecords) or fetched.aborted is None:
            return fetched
        aborted = partition.log.aborted_in(
            Offset(target.fetch_offset), Offset(fetched.last_stable_offset)
        )
        return fetched._replace(aborted=[(one.producer_id, one.first_offset) for one in aborted])

    patch.setattr(AbortedBatches, "has", lambda self, header: False)
    patch.setattr(PartitionRead, "read", read_and_list)


# The seed of a single broker that finds each.
VIEW_PLANTS: Mapping[Plant, int] = {
    an_empty_batch_for_the_marker: 5,
    a_marker_at_the_high_watermark: 1,
    aborted_batches_are_shown: 13,
    aborted_transactions_are_listed_without_their_markers: 3,
}
