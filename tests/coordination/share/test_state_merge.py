"""Updates of a share partition's stored state, against a dictionary of every offset."""

from hypothesis import given
from hypothesis import strategies as st

from respool.coordination.share.share_state import (
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    ShareState,
    ShareStateUpdate,
    StateBatch,
)
from respool.coordination.share.state_merge import apply_update, merge_batches
from respool.model.ids import LeaderEpoch, Offset


@st.composite
def batch_lists(draw: st.DrawFn) -> list[StateBatch]:
    bounds = sorted(draw(st.sets(st.integers(0, 30), max_size=12)))
    return [
        StateBatch(
            first,
            last,
            draw(st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED])),
            draw(st.integers(0, 2)),
        )
        for first, last in zip(bounds[::2], bounds[1::2], strict=False)
    ]


def by_offset(batches: tuple[StateBatch, ...] | list[StateBatch]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for one in batches:
        for offset in range(one.first, one.last + 1):
            assert offset not in found
            finished = one.state in {ACKNOWLEDGED, ARCHIVED}
            found[offset] = (one.state, -1 if finished else one.delivery_count)
    return found


@given(batch_lists(), batch_lists(), st.integers(0, 30))
def test_new_batches_replace_what_they_overlap(
    old: list[StateBatch], new: list[StateBatch], start: int
) -> None:
    merged = merge_batches(old, new, start_offset=Offset(start))
    expected = {
        offset: state
        for offset, state in (by_offset(old) | by_offset(new)).items()
        if offset >= start
    }
    assert by_offset(merged) == expected
    assert list(merged) == sorted(merged)


def test_adjacent_finished_batches_are_one_whatever_their_counts() -> None:
    old = [StateBatch(0, 4, ACKNOWLEDGED, 1)]
    new = [StateBatch(5, 9, ACKNOWLEDGED, 3)]
    assert merge_batches(old, new, start_offset=Offset(0)) == (StateBatch(0, 9, ACKNOWLEDGED, 3),)


def test_an_update_without_a_start_keeps_the_old_one() -> None:
    state = ShareState(state_epoch=1, leader_epoch=LeaderEpoch(2), start_offset=Offset(5))
    update = ShareStateUpdate(
        state_epoch=1, leader_epoch=LeaderEpoch(2), batches=(StateBatch(3, 6, AVAILABLE, 1),)
    )
    changed = apply_update(state, update)
    assert changed.start_offset == 5
    assert changed.batches == (StateBatch(5, 6, AVAILABLE, 1),)
