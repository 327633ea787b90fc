"""Whole batches in a piece of a segment."""

from hypothesis import given
from hypothesis import strategies as st

from archive.archived_log import batches
from respool.archive.batch_window import find_window, headers_in
from respool.model.ids import Offset


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    cut=st.integers(0, 3_000),
    offset=st.integers(0, 60),
    max_offset=st.integers(0, 80),
    bytes_max=st.integers(0, 2_000),
    at_least_one=st.booleans(),
)
def test_a_window_is_what_a_walk_over_all_batches_finds(  # noqa: PLR0917
    sizes: list[int], cut: int, offset: int, max_offset: int, bytes_max: int, at_least_one: bool
) -> None:
    made = batches(0, sizes)
    data = b"".join(made)[:cut]
    window = find_window(
        memoryview(data),
        offset=Offset(offset),
        max_offset=Offset(max_offset),
        bytes_max=bytes_max,
        at_least_one=at_least_one,
    )
    expected, position, first = b"", 0, 0
    for one, size in zip(made, sizes, strict=True):
        end = first + size
        if end > offset and end <= max_offset and position + len(one) <= len(data):
            fits = len(expected) + len(one) <= bytes_max
            if not (fits or (at_least_one and not expected)):
                break
            expected += one
        elif end > offset:
            break
        position, first = position + len(one), end
    assert data[window.begin : window.end] == expected
    if expected:
        assert not window.bytes_needed
    elif window.bytes_needed:
        assert window.bytes_needed > len(data)


def test_headers_are_those_of_whole_batches() -> None:
    made = batches(3, [2, 2, 2])
    data = memoryview(b"".join(made)[:-1])
    assert [(at, header.base_offset) for at, header in headers_in(data)] == [
        (0, 3),
        (len(made[0]), 5),
    ]
