import dataclasses

from log.compaction_world import COMPACT, CompactionWorld, keyed
from respool.log.compaction.compaction_span import GroupLimits
from respool.log.segment import Segment
from respool.model.ids import Offset

BIG = dataclasses.replace(COMPACT, segment_bytes=10_000, segment_index_bytes=10_000)
LIMITS = GroupLimits(bytes_max=10_000, index_bytes_max=10_000)


def segments_of(*sizes: int) -> list[Segment]:
    """Segments with so many batches of 100 bytes each."""
    world = CompactionWorld.new(0, BIG)
    for size in sizes:
        for number in range(size):
            world.append(keyed("k", b"." * (100 - 61 - 8), at_ms=number))
        world.roll()
    return list(world.log._parts.segments.all[:-1])


def have_room(limits: GroupLimits, *, size: int = 400, end: int = 9) -> bool:
    joined, following = segments_of(4, 5)
    assert (joined.size, following.size) == (400, 500)
    return limits.have_room_for(
        following,
        end=Offset(end),
        base_offset=joined.base_offset,
        size=size,
        indexes=joined.indexes(),
    )


def test_a_segment_is_joined_as_long_as_all_of_it_fits() -> None:
    assert have_room(LIMITS)
    limits = dataclasses.replace(LIMITS, bytes_max=900)
    assert have_room(limits)
    assert not have_room(limits, size=401)


def test_both_indexes_must_fit_too() -> None:
    joined, following = segments_of(4, 5)
    files = [(one.indexes().offsets.file, one.indexes().times.file) for one in (joined, following)]
    offsets, times = (
        sum(pair[kind].count * pair[kind].entry_bytes for pair in files) for kind in (0, 1)
    )
    assert times > offsets > 0
    assert have_room(dataclasses.replace(LIMITS, index_bytes_max=times))
    assert not have_room(dataclasses.replace(LIMITS, index_bytes_max=times - 1))


def test_a_tenth_over_the_limit_is_allowed_but_no_position_beyond_31_bits() -> None:
    limits = GroupLimits.of(BIG)
    assert (limits.bytes_max, limits.index_bytes_max) == (11_000, 11_000)
    largest = GroupLimits.of(dataclasses.replace(BIG, segment_bytes=2**31 - 1))
    assert 2**31 * 0.98 < largest.bytes_max < 2**31


def test_offsets_within_a_segment_have_31_bits() -> None:
    assert have_room(LIMITS, end=2**31)
    assert not have_room(LIMITS, end=2**31 + 1)
