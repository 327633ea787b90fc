"""Batches copied between clusters with their offsets: what the mirror sends and the broker validates.

```
 source     | batch 0..4 | batch 5..9 |  (compacted away)  | batch 14..20 |
 sent       | batch 0..4 | batch 5..9 | empty batch 10..13 | batch 14..20 |
```
- The leader epoch of each is `MIRRORED`: the checksum does not cover it, the receiver overwrites it, and no producer
  sends it (they send -1 or 0). So the receiver recognises mirrored batches.
- There are no gaps: an empty batch, as compaction leaves them, covers offsets without records. So every batch starts
  where the previous one ends, and the receiver detects a lost one.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from respool.model.errors import CorruptMessage, InvalidRecord
from respool.model.ids import NO_PRODUCER_ID, NO_TIMESTAMP, LeaderEpoch, Offset
from respool.records.batch import (
    HEADER_BYTES,
    LENGTH_BYTES,
    LENGTH_MIN,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    pack_header,
    read_header,
    seal,
)
from respool.records.markers import EndTransactionMarker, build_marker

MIRRORED = LeaderEpoch(-2)
# The client id of a mirror. It also gets batches that compaction left without records; consumers do not.
MIRROR_CLIENT_ID = "respool-mirror"
# Maximum number of offsets of one empty batch: no segment spans more.
FILLER_OFFSETS_MAX = 2**31 - 1

# Base offset and length; the leader epoch after them; and the last offset delta.
_HEAD = Struct(">qi")
_EPOCH = Struct(">i")
_EPOCH_AT = 12
_DELTA = Struct(">i")
_DELTA_AT = 23


class MirroredBatches(NamedTuple):
    """Consecutive batches of a mirror, with checksums not verified yet."""

    base_offset: Offset
    # End offset of the last one.
    end: Offset
    data: bytes
    # The base offset of each: an offset that the previous ones may end with.
    bases: tuple[Offset, ...]


class Prepared(NamedTuple):
    # Ready to send; empty if no batch was whole.
    data: bytes
    # The base offset of the next batch.
    end: Offset
    # The last batch's leader epoch in the source; -1 if there is none.
    leader_epoch: LeaderEpoch
    batch_count: int


class OldFormat(Exception):
    """A message set from before Kafka 0.11, which has no batches."""


def read_mirrored(data: bytes) -> MirroredBatches | None:
    """Parse what a mirror sent; None if it comes from another client.

    Raises:
        CorruptMessage: it is incomplete, or contains no batch.
        InvalidRecord: a batch does not start where the previous one ends.
    """
    size = len(data)
    position, end = 0, None
    bases: list[Offset] = []
    while size - position >= HEADER_BYTES:
        header = read_header(data, position)
        if header.leader_epoch != MIRRORED:
            return None
        if header.magic != MAGIC or header.length < LENGTH_MIN or header.last_offset_delta < 0:
            break
        if end is not None and header.base_offset != end:
            raise InvalidRecord(
                f"a batch begins at offset {header.base_offset}, the one before it ends at {end}"
            )
        bases.append(header.base_offset)
        end = header.next_offset
        position += header.size
    if end is None or position != size:
        if not bases and not _looks_mirrored(data):
            return None
        raise CorruptMessage(f"no whole batch at byte {position} of {size}")
    return MirroredBatches(bases[0], end, data, tuple(bases))


def _looks_mirrored(data: bytes) -> bool:
    return (
        len(data) >= _EPOCH_AT + _EPOCH.size and _EPOCH.unpack_from(data, _EPOCH_AT)[0] == MIRRORED
    )


def prepare(records: bytes, *, begin: Offset, is_empty: bool = False) -> Prepared:
    """Prepare fetched records to be sent to a copy that ends at `begin`.

    A fetch inside a batch returns the whole batch, so earlier batches come first and are dropped. An incomplete last
    batch is dropped and fetched again. A copy that `is_empty` may start inside a batch, and gets all of it.

    Raises:
        OldFormat: there is a message set from before Kafka 0.11.
        Straddling: the copy ends inside a batch of the source.
    """
    data = bytearray(records)
    size = len(data)
    parts: list[bytes | memoryview] = []
    view = memoryview(data)
    position = run_from = count = 0
    end, epoch = begin, -1
    while size - position > MAGIC_AT:
        base_offset, length = _HEAD.unpack_from(data, position)
        after = position + LENGTH_BYTES + length
        if after > size:
            break
        if data[position + MAGIC_AT] != MAGIC:
            raise OldFormat
        (delta,) = _DELTA.unpack_from(data, position + _DELTA_AT)
        if base_offset + delta < end:
            run_from = position = after
            continue
        if base_offset < end and not (is_empty and not count):
            raise Straddling(base_offset, base_offset + delta, end)
        if base_offset > end:
            parts += (view[run_from:position], fillers(Offset(end), Offset(base_offset)))
            run_from = position
        (epoch,) = _EPOCH.unpack_from(data, position + _EPOCH_AT)
        _EPOCH.pack_into(data, position + _EPOCH_AT, MIRRORED)
        end = Offset(base_offset + delta + 1)
        count += 1
        position = after
    parts.append(view[run_from:position])
    return Prepared(b"".join(parts), Offset(end), LeaderEpoch(epoch), count)


class Straddling(Exception):
    """The copy ends inside a batch: its content differs from the source."""

    def __init__(self, base_offset: int, last_offset: int, end: int) -> None:
        super().__init__(
            f"the source has one batch from offset {base_offset} to {last_offset}, and the copy ends at {end}"
        )


def fillers(begin: Offset, end: Offset) -> bytes:
    """Empty batches for the offsets from `begin` up to, not including, `end`."""
    parts = []
    while begin < end:
        span = min(end - begin, FILLER_OFFSETS_MAX)
        parts.append(_filler(begin, span))
        begin = Offset(begin + span)
    return b"".join(parts)


def fillers_with_markers(begin: Offset, end: Offset, ends: Sequence[EndTransactionMarker]) -> bytes:
    """As `fillers`, with the gap's transaction markers at its end; there are at most as many as offsets."""
    first = Offset(end - len(ends))
    markers = [_mirrored_marker(marker, Offset(first + at)) for at, marker in enumerate(ends)]
    return b"".join((fillers(begin, first), *markers))


def _mirrored_marker(marker: EndTransactionMarker, offset: Offset) -> bytes:
    batch = build_marker(marker, timestamp_ms=NO_TIMESTAMP)
    header = batch.header._replace(base_offset=offset, leader_epoch=MIRRORED)
    # The checksum covers neither.
    return pack_header(header) + batch.data[HEADER_BYTES:]


def _filler(base_offset: Offset, span: int) -> bytes:
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=MIRRORED,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=span - 1,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    return bytes(seal(header, b"").data)
