"""The list of segments: found by offset and by time, and never changed in place."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.log.index.segment_indexes import IndexSettings
from respool.log.index.time_index import TimeEntry
from respool.log.segment import Segment
from respool.log.segments import Segments
from respool.model.ids import Offset
from respool.sim.disk.simulated_disk import SimDisk

SETTINGS = IndexSettings(interval_bytes=100, bytes_max=960)
DISK = SimDisk(Random(1))


def segment(base_offset: int, *, largest: int = -1, size: int = 10) -> Segment:
    made = Segment(DISK, "t-0", Offset(base_offset), SETTINGS, size=size, now_ms=0)
    made._largest = TimeEntry(largest, Offset(base_offset))
    return made


def test_an_offset_is_found_in_the_segment_that_begins_before_it() -> None:
    segments = Segments([segment(10), segment(20), segment(35)])
    assert [segments.index_of(Offset(o)) for o in (9, 10, 19, 20, 34, 35, 999)] == [
        -1, 0, 0, 1, 1, 2, 2,
    ]  # fmt: skip
    assert [segments.end_of(i, log_end=Offset(50)) for i in range(3)] == [20, 35, 50]


def test_a_log_is_never_without_a_segment() -> None:
    with pytest.raises(AssertionError):
        Segments([])
    with pytest.raises(AssertionError):
        Segments([segment(0)]).without_first(1)


def test_a_change_makes_a_new_list() -> None:
    segments = Segments([segment(10), segment(20)])
    longer = segments.with_new(segment(30))
    assert [one.base_offset for one in longer.all] == [10, 20, 30]
    assert [one.base_offset for one in longer.without_first(2).all] == [30]
    assert [one.base_offset for one in longer.up_to(1).all] == [10]
    assert [one.base_offset for one in segments.all] == [10, 20]
    assert longer.active.base_offset == 30
    assert longer.first.base_offset == 10
    assert longer.size_bytes == 30


def test_a_new_segment_must_come_after_the_last() -> None:
    with pytest.raises(AssertionError):
        Segments([segment(10)]).with_new(segment(10))


@given(
    largest=st.lists(st.integers(-1, 20), min_size=1, max_size=12),
    asked=st.lists(st.integers(-1, 22), min_size=1, max_size=5),
    dropped=st.integers(0, 11),
)
def test_the_first_segment_that_reaches_a_time_is_found(
    largest: list[int], asked: list[int], dropped: int
) -> None:
    """However the segments' largest timestamps jump, and however the list came about."""
    segments = Segments([segment(0, largest=largest[0])])
    for number, timestamp in enumerate(largest[1:], start=1):
        segments.first_reaching(asked[0])
        segments = segments.with_new(segment(number, largest=timestamp))
    dropped = min(dropped, len(largest) - 1)
    shorter = segments.without_first(dropped)
    for timestamp in asked:
        for some, times in ((segments, largest), (shorter, largest[dropped:])):
            reaching = [n for n, time in enumerate(times[:-1]) if time >= timestamp]
            assert some.first_reaching(timestamp) == (reaching[0] if reaching else len(times) - 1)
