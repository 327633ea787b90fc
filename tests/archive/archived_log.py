"""Segments for tests of the archive: bytes of batches, and their manifest entries."""

from collections.abc import Sequence
from uuid import UUID
from zlib import crc32

from respool.archive.manifest_entry import ArchivedSegment, CutEntry, EntryAuthor, LogStartEntry
from respool.archive.object_keys import PartitionKeys, TopicKeys
from respool.archive.segment_summary import SegmentSummary
from respool.archive.segment_trailer import EpochStart, SegmentTrailer
from respool.model.ids import BrokerId, LeaderEpoch, Offset, TopicId
from respool.records.build import NewRecord, build_batch

TOPIC = TopicKeys("rides", TopicId(UUID(int=7)))
KEYS: PartitionKeys = TOPIC.partition(0)


def token(number: int) -> str:
    return f"{number:032x}"


def written(epoch: int = 0, *, number: int = 0, broker: int = 1) -> EntryAuthor:
    return EntryAuthor(
        leader_epoch=LeaderEpoch(epoch), broker=BrokerId(broker), token=token(number)
    )


def segment_entry(
    base: int,
    end: int,
    *,
    epoch: int = 0,
    number: int = 0,
    largest_timestamp: int = -1,
    log_bytes: int = 1000,
    epochs: Sequence[tuple[int, int]] = ((0, 0),),
    aborted_from: int = -1,
) -> ArchivedSegment:
    return ArchivedSegment(
        by=written(epoch, number=number),
        key=KEYS.segment(Offset(base), Offset(end), leader_epoch=epoch, token=token(number)),
        base=Offset(base),
        next=Offset(end),
        log_bytes=log_bytes,
        size=log_bytes + 200,
        trailer_crc=crc32(b"trailer"),
        largest_timestamp=largest_timestamp,
        epochs=tuple(EpochStart(LeaderEpoch(one), Offset(start)) for one, start in epochs),
        aborted_count=1 if aborted_from >= 0 else 0,
        aborted_from=Offset(aborted_from),
    )


def start_entry(log_start: int, *, epoch: int = 0, number: int = 0) -> LogStartEntry:
    return LogStartEntry(by=written(epoch, number=number), log_start=Offset(log_start))


def cut_entry(end: int, *, epoch: int = 0, number: int = 0) -> CutEntry:
    return CutEntry(by=written(epoch, number=number), end=Offset(end))


def batches(
    base: int, sizes: Sequence[int], *, value_bytes: int = 20, timestamp_ms: int = 1_000
) -> list[bytes]:
    """Batches with so many records each, a millisecond apart."""
    made, offset = [], base
    for size in sizes:
        records = [
            NewRecord(
                value=b"%d" % (offset + at) + b"." * value_bytes,
                timestamp_ms=timestamp_ms + offset + at,
            )
            for at in range(size)
        ]
        made.append(build_batch(records, base_offset=offset, leader_epoch=3))
        offset += size
    return made


def summarized(
    data: bytes, base: int, end: int, *, chunk_bytes: int = 256, piece: int = 100
) -> SegmentTrailer:
    """The trailer of a segment whose bytes come in pieces."""
    summary = SegmentSummary(Offset(base), name="test", chunk_bytes=chunk_bytes)
    for at in range(0, len(data), piece):
        summary.feed(data[at : at + piece])
    return summary.finish(
        Offset(end), aborted=(), producers=b"", epochs=[EpochStart(LeaderEpoch(3), Offset(0))]
    )
