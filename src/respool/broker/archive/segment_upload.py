"""The upload of one segment: read in another thread, summarized, sent part by part."""

from collections.abc import AsyncIterator
from typing import Protocol

from respool.archive.manifest_entry import ArchivedSegment, EntryAuthor
from respool.archive.segment_summary import SegmentSummary
from respool.archive.segment_trailer import ArchivedAbort, EpochStart, SegmentTrailer
from respool.log.archive_source import SegmentToArchive
from respool.ports.object_store import ObjectStore
from respool.ports.offload import Offload

# The piece that a thread reads and summarizes at a time, in a few milliseconds.
PIECE_BYTES = 4 * 1024 * 1024


class UploadPace(Protocol):
    async def wait(self, byte_count: int) -> None:
        """Wait until this number of bytes may be sent."""


class SegmentUpload:
    def __init__(
        self,
        store: ObjectStore,
        source: SegmentToArchive,
        *,
        offload: Offload,
        key: str,
        pace: UploadPace,
    ) -> None:
        self._store = store
        self._source = source
        self._offload = offload
        self._key = key
        self._pace = pace
        self._trailer: SegmentTrailer | None = None
        self._trailer_bytes = b""
        self._largest_timestamp = -1

    async def run(self, by: EntryAuthor) -> ArchivedSegment:
        """Write the object; return the entry that names it.

        Raises:
            ArchiveUnavailable: the store failed.
            ArchiveCorrupt: a local batch is damaged; nothing was written.
            StorageError: the disk failed, or the segment was removed meanwhile.
        """
        await self._store.write(self._key, self._parts())
        trailer, source = self._trailer, self._source
        assert trailer is not None
        aborted = trailer.aborted
        return ArchivedSegment(
            by=by,
            key=self._key,
            base=source.begin,
            next=source.end,
            log_bytes=trailer.log_bytes,
            size=trailer.log_bytes + len(self._trailer_bytes),
            trailer_crc=int.from_bytes(self._trailer_bytes[-4:], "big"),
            largest_timestamp=self._largest_timestamp,
            epochs=_epochs_within(trailer),
            aborted_count=len(aborted),
            aborted_from=min((one.first_offset for one in aborted), default=source.begin),
        )

    async def _parts(self) -> AsyncIterator[bytes | memoryview]:
        source, run = self._source, self._offload.run
        summary = SegmentSummary(source.begin, name=source.path)
        position, end = await run(source.locate)
        while position < end:
            size = min(PIECE_BYTES, end - position)

            def read(position: int = position, size: int = size) -> bytes | memoryview:
                data = source.read(position, size)
                summary.feed(data)
                return data

            data = await run(read)
            position += size
            await self._pace.wait(size)
            yield data
        aborted = await run(source.aborted)
        self._trailer = summary.finish(
            source.end,
            aborted=[
                ArchivedAbort(one.producer_id, one.first_offset, one.last_offset) for one in aborted
            ],
            producers=await run(source.producer_snapshot),
            epochs=[EpochStart(*one) for one in source.epochs],
        )
        self._largest_timestamp = summary.largest_timestamp
        self._trailer_bytes = await run(self._trailer.encode)
        yield self._trailer_bytes


def _epochs_within(trailer: SegmentTrailer) -> tuple[EpochStart, ...]:
    """The epochs that begin in the segment, and the one in effect at its start."""
    before = [one for one in trailer.epochs if one.start_offset <= trailer.base]
    return (*before[-1:], *(one for one in trailer.epochs if one.start_offset > trailer.base))
