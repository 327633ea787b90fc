"""Changed offsets, which are taken once."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from respool.coordination.share.changed_ranges import RANGES_MAX, ChangedRanges


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5))))
def test_all_that_was_added_is_taken_once_sorted_and_apart(added: list[tuple[int, int]]) -> None:
    changed = ChangedRanges()
    for first, size in added:
        changed.add(first, first + size)
    assert bool(changed) == bool(added)
    taken = changed.take()
    assert {one for first, last in taken for one in range(first, last + 1)} == {
        one for first, size in added for one in range(first, first + size + 1)
    }
    assert all(one[1] + 1 < other[0] for one, other in pairwise(taken))
    assert not changed.take()


def test_many_ranges_become_one_that_holds_them_all() -> None:
    changed = ChangedRanges()
    for first in range(0, 10 * RANGES_MAX, 2):
        changed.add(first, first)
    taken = changed.take()
    assert len(taken) <= RANGES_MAX
    assert taken[0][0] == 0
    assert taken[-1][1] == 10 * RANGES_MAX - 2
