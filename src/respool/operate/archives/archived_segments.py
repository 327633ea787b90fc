"""Verifies segments of an archive, and writes them to files."""

from collections.abc import AsyncIterator
from pathlib import Path

from respool.archive.manifest_entry import ArchivedSegment
from respool.archive.segment_summary import SegmentSummary
from respool.archive.segment_trailer import SegmentTrailer
from respool.model.archiving.archive_errors import ArchiveCorrupt, ObjectMissing
from respool.ports.object_store import ObjectStore


async def read_trailer(store: ObjectStore, segment: ArchivedSegment) -> SegmentTrailer:
    """
    Raises:
        ArchiveCorrupt: it is missing or damaged.
        ArchiveUnavailable: the store does not answer.
    """
    data = await _read(store, segment, segment.log_bytes, segment.size)
    trailer = SegmentTrailer.decode(data, name=segment.key)
    is_named = int.from_bytes(data[-4:], "big") == segment.trailer_crc
    if not is_named or trailer.base != segment.base or trailer.log_bytes != segment.log_bytes:
        raise ArchiveCorrupt(f"{segment.key}: its trailer is not the one that the manifest names")
    return trailer


async def read_chunks(
    store: ObjectStore, segment: ArchivedSegment
) -> AsyncIterator[bytes | memoryview]:
    """The bytes of the log, each chunk compared with its checksum, and each batch with its own. Raises as above."""
    trailer = await read_trailer(store, segment)
    summary = SegmentSummary(segment.base, name=segment.key, chunk_bytes=trailer.chunk_bytes)
    for number in range(len(trailer.chunk_sums)):
        begin = number * trailer.chunk_bytes
        end = min(begin + trailer.chunk_bytes, segment.log_bytes)
        data = await _read(store, segment, begin, end)
        trailer.check_chunk(number, data, name=segment.key)
        summary.feed(data)
        yield data
    summary.finish(trailer.next, aborted=(), producers=b"", epochs=())


async def verify_segment(store: ObjectStore, segment: ArchivedSegment) -> None:
    """Raises as `read_trailer`."""
    async for _ in read_chunks(store, segment):
        pass


async def download_segment(store: ObjectStore, segment: ArchivedSegment, folder: Path) -> Path:
    """Write the log's bytes to a file that Kafka's and our dump tools read. Raises as `read_trailer`."""
    path = folder / f"{segment.base:020d}.log"
    aside = path.with_suffix(".part")
    with aside.open("wb") as file:
        async for data in read_chunks(store, segment):
            file.write(data)
    return aside.replace(path)


async def _read(
    store: ObjectStore, segment: ArchivedSegment, begin: int, end: int
) -> bytes | memoryview:
    try:
        data = await store.read(segment.key, begin, end)
    except ObjectMissing as error:
        raise ArchiveCorrupt(f"{error}, but the manifest names it") from error
    if len(data) != end - begin:
        raise ArchiveCorrupt(f"{segment.key}: {len(data)} of {end - begin} bytes at byte {begin}")
    return data
