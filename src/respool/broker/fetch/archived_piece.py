"""A piece of an archived log in memory, with the interface that filtered reads need of a log."""

from respool.archive.batch_window import find_window
from respool.broker.archive.archived_reads import ArchivedBatches
from respool.log.partition_log import AbortedTransaction, ReadSpec
from respool.log.tagged_read import TagCursor, TaggedBatches
from respool.model.ids import Offset


class ArchivedPiece:
    # An archived log is never truncated.
    truncations = 0
    first_base_offset = Offset(0)

    def __init__(self, found: ArchivedBatches) -> None:
        self._data = memoryview(found.records)
        self._aborted = found.aborted or ()
        self._end = found.end

    def within(self, spec: ReadSpec) -> ReadSpec:
        """The reader's spec, as far as the piece reaches."""
        return spec._replace(max_offset=min(spec.max_offset, self._end))

    def read(self, spec: ReadSpec) -> memoryview:
        window = find_window(
            self._data,
            offset=spec.offset,
            max_offset=spec.max_offset,
            bytes_max=spec.bytes_max,
            at_least_one=spec.at_least_one,
            with_empty=spec.with_empty,
        )
        return self._data[window.begin : window.end]

    def read_tagged(self, cursor: TagCursor, spec: ReadSpec) -> TaggedBatches | None:
        """There is no tag index: everything is scanned."""
        del cursor, spec
        return None

    def has_aborted_from(self, offset: Offset) -> bool:
        del offset
        return bool(self._aborted)

    def aborted_in(
        self, offset: Offset, end: Offset, *, cached_only: bool = False
    ) -> list[AbortedTransaction]:
        del cached_only
        return [one for one in self._aborted if one.overlaps(offset, end)]
