"""Builds a partition's files byte by byte, so that dump and verify are tested without the code that writes logs."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from respool.records.batch import Codec
from respool.records.build import NewRecord, build_batch

TIME = 1_763_107_200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A batch in a file: where it lies and what the indexes may say of it."""

    position: int
    last_offset: int
    max_timestamp: int


def batch(
    base_offset: int,
    count: int = 2,
    *,
    timestamp: int = TIME,
    codec: Codec = Codec.NONE,
    leader_epoch: int = 0,
    producer_id: int = -1,
) -> bytes:
    """`count` records, one millisecond apart, whose values tell their offsets."""
    records = [
        NewRecord(
            key=b"k%d" % (base_offset + n),
            value=b"value %d" % (base_offset + n),
            timestamp_ms=timestamp + n,
            headers=(("h", b"1"),),
        )
        for n in range(count)
    ]
    has_producer = producer_id >= 0
    return build_batch(
        records,
        codec=codec,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=0 if has_producer else -1,
        base_sequence=base_offset if has_producer else -1,
    )


class Segment:
    """A `.log` with its indexes: every batch but the first has an entry in both."""

    def __init__(self, folder: Path, base_offset: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.base_offset = base_offset
        self.log = folder / f"{base_offset:020d}.log"
        self.index = self.log.with_suffix(".index")
        self.timeindex = self.log.with_suffix(".timeindex")

    def write(self, batches: Sequence[bytes], *, room: int = 0) -> list[Placed]:
        """Write all three files; `room` zero bytes stay behind the entries, as in a segment still being filled."""
        placed: list[Placed] = []
        position = 0
        for data in batches:
            base_offset, last_delta = (
                struct.unpack_from(">q", data)[0],
                struct.unpack_from(">i", data, 23)[0],
            )
            placed.append(
                Placed(
                    position=position,
                    last_offset=base_offset + last_delta,
                    max_timestamp=struct.unpack_from(">q", data, 35)[0],
                )
            )
            position += len(data)
        self.log.write_bytes(b"".join(batches))
        self.write_index([(each.last_offset, each.position) for each in placed[1:]], room=room)
        self.write_timeindex(
            [(each.max_timestamp, each.last_offset) for each in placed[1:]], room=room
        )
        return placed

    def write_index(self, entries: Sequence[tuple[int, int]], *, room: int = 0) -> None:
        packed = [struct.pack(">ii", offset - self.base_offset, at) for offset, at in entries]
        self.index.write_bytes(b"".join(packed) + bytes(room))

    def write_timeindex(self, entries: Sequence[tuple[int, int]], *, room: int = 0) -> None:
        packed = [struct.pack(">qi", time, offset - self.base_offset) for time, offset in entries]
        self.timeindex.write_bytes(b"".join(packed) + bytes(room))

    def flip_bit(self, position: int) -> None:
        data = bytearray(self.log.read_bytes())
        data[position] ^= 1
        self.log.write_bytes(data)


def three_batches(base_offset: int = 0) -> list[bytes]:
    return [batch(base_offset + 2 * n, timestamp=TIME + 10 * (base_offset + n)) for n in range(3)]
