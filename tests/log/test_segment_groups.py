import dataclasses

from log.compaction_world import COMPACT, CompactionWorld, keyed
from respool.log.segment import Segment
from respool.log.segment_groups import group_segments
from respool.model.ids import Offset
from respool.model.topic_config import TopicConfig

BIG = dataclasses.replace(COMPACT, segment_bytes=10_000, segment_index_bytes=10_000)


def segments_of(*sizes: int) -> tuple[list[Segment], Offset]:
    """Segments with so many batches of 100 bytes each."""
    world = CompactionWorld.new(0, BIG)
    for size in sizes:
        for _ in range(size):
            world.append(keyed("k", b"." * (100 - 61 - 8)))
        world.roll()
    return list(world.log._segments.all[:-1]), world.log_end


def bases(segments: list[Segment], end: Offset, config: TopicConfig) -> list[list[int]]:
    groups = group_segments(segments, end=end, config=config)
    # Every segment is in one group, in order, and each group ends where the next begins.
    assert [one for group in groups for one in group.segments] == segments
    assert [group.end for group in groups] == [*(one.base_offset for one in groups[1:]), end]
    return [[segment.base_offset for segment in group.segments] for group in groups]


def test_segments_are_joined_as_long_as_they_fit_one() -> None:
    segments, end = segments_of(4, 3, 3, 5, 1, 9)
    assert [segment.size for segment in segments] == [400, 300, 300, 500, 100, 900]
    limit = dataclasses.replace(BIG, segment_bytes=1000)
    assert bases(segments, end, limit) == [[0, 4, 7], [10, 15], [16]]
    assert bases(segments, end, BIG) == [[0, 4, 7, 10, 15, 16]]


def test_a_segment_that_is_too_large_already_stays_alone() -> None:
    segments, end = segments_of(4, 1, 1)
    limit = dataclasses.replace(BIG, segment_bytes=250)
    assert bases(segments, end, limit) == [[0], [4, 5]]


def test_both_indexes_must_fit_one() -> None:
    segments, end = segments_of(5, 5, 5)
    entries = [segment.indexes().offsets.file.count for segment in segments]
    assert entries == [2, 2, 2]
    limit = dataclasses.replace(BIG, segment_index_bytes=2 * 2 * 12)
    times = [segment.indexes().times.file.count for segment in segments]
    assert max(times) <= 2
    assert bases(segments, end, limit) == [[0, 5, 10]]
    limit = dataclasses.replace(BIG, segment_index_bytes=2 * 2 * 8)
    assert bases(segments, end, limit) == [[0, 5], [10]]


def test_offsets_within_a_segment_have_31_bits() -> None:
    segments, _ = segments_of(1, 1, 1)
    # Two segments that lie far apart, as after a compaction of billions.
    segments[2].base_offset = Offset(2**31)
    assert bases(segments, Offset(2**31 + 1), BIG) == [[0, 1], [2**31]]
    segments[2].base_offset = Offset(2**31 - 1)
    assert bases(segments, Offset(2**31), BIG) == [[0, 1, 2**31 - 1]]
