import pytest

from log.compaction_world import COMPACT, FOLDER, CompactionWorld, keyed
from respool.log.compaction import batch_chunks
from respool.log.compaction.batch_chunks import read_chunks
from respool.log.segment import Segment
from respool.model.errors import SegmentCorrupt


def segment_of(*sizes: int) -> tuple[CompactionWorld, Segment]:
    """One segment with a batch for each size of a value."""
    world = CompactionWorld.new(0, COMPACT)
    for size in sizes:
        world.append(keyed("k", b"v" * size))
    world.roll()
    return world, world.log._parts.segments.all[0]


@pytest.mark.parametrize("read_bytes", [61, 100, 300, 10_000])
def test_every_batch_comes_whole_and_once(read_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _, segment = segment_of(0, 10, 300, 5, 1, 100)
    monkeypatch.setattr(batch_chunks, "READ_BYTES", read_bytes)
    chunks = list(read_chunks(segment))
    assert [chunk.is_last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert b"".join(chunk.data for chunk in chunks) == segment.read(0, segment.size)
    headers = [one.header for chunk in chunks for one in chunk.batches]
    assert [one.base_offset for one in headers] == list(range(6))
    for chunk in chunks:
        for batch in chunk.batches:
            assert len(chunk.bytes_of(batch)) == batch.header.size


@pytest.mark.parametrize("at", [8, 16, 17, 25, 60, 65])
def test_a_damaged_batch_is_found(at: int) -> None:
    """In its length, magic, checksum, offsets, count, records."""
    world, segment = segment_of(10, 10, 10)
    world.disk.corrupt(f"{FOLDER}/{0:020d}.log", segment.size // 3 + at, mask=0x40)
    with pytest.raises(SegmentCorrupt, match=f"{0:020d}"):
        list(read_chunks(segment))


def test_offsets_that_go_back_are_found() -> None:
    """The checksum does not cover them."""
    world, segment = segment_of(10, 10, 10)
    world.disk.corrupt(f"{FOLDER}/{0:020d}.log", segment.size * 2 // 3 + 7, mask=0x02)
    with pytest.raises(SegmentCorrupt, match="offset 0 comes after 1"):
        list(read_chunks(segment))
