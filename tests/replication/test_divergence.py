from hypothesis import given
from hypothesis import strategies as st

from replication.sim_log import Entry, MemoryLog
from respool.model.ids import LeaderEpoch, Offset
from respool.replication.divergence import EndOfEpoch, agreed_end, diverging_epoch


def log_of(*epochs: int) -> MemoryLog:
    log = MemoryLog()
    log.append([(epoch, 0) for epoch in epochs])
    return log


def test_a_log_that_is_a_prefix_agrees() -> None:
    leader = log_of(1, 1, 2, 2)
    assert (
        diverging_epoch(leader, fetch_offset=Offset(3), last_fetched_epoch=LeaderEpoch(2)) is None
    )


def test_who_has_no_record_has_nothing_to_compare() -> None:
    assert (
        diverging_epoch(log_of(1), fetch_offset=Offset(0), last_fetched_epoch=LeaderEpoch(-1))
        is None
    )


def test_an_epoch_that_is_longer_than_the_leaders_has_parted() -> None:
    leader = log_of(1, 1, 2)
    parted = diverging_epoch(leader, fetch_offset=Offset(4), last_fetched_epoch=LeaderEpoch(1))
    assert parted == EndOfEpoch(epoch=LeaderEpoch(1), end=Offset(2))


def test_an_epoch_that_the_leader_never_saw_has_parted() -> None:
    leader = log_of(1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4)
    parted = diverging_epoch(leader, fetch_offset=Offset(12), last_fetched_epoch=LeaderEpoch(3))
    assert parted == EndOfEpoch(epoch=LeaderEpoch(2), end=Offset(9))
    follower = log_of(1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 3)
    assert parted is not None
    assert agreed_end(follower, parted, log_end=Offset(12)) == 5


def test_the_smaller_one_of_both_ends_is_taken() -> None:
    follower = log_of(1, 1, 1, 2)
    for theirs, end in ((2, 2), (3, 3), (4, 3)):
        parted = EndOfEpoch(epoch=LeaderEpoch(1), end=Offset(theirs))
        assert agreed_end(follower, parted, log_end=Offset(4)) == end


@st.composite
def parted_logs(draw: st.DrawFn) -> tuple[list[Entry], list[Entry]]:
    """Two logs as they come about: the same up to some point, then written in different epochs, each by one leader."""
    epochs = sorted(draw(st.lists(st.integers(0, 12), max_size=12)))
    shared = [(epoch, number) for number, epoch in enumerate(epochs)]
    last = epochs[-1] if epochs else -1
    # Each later epoch is on one side only.
    rest = sorted(draw(st.lists(st.integers(last + 1, last + 6), max_size=16)))
    later = [(epoch, 100 + number) for number, epoch in enumerate(rest)]
    ours = [entry for entry in later if entry[0] % 2]
    theirs = [entry for entry in later if not entry[0] % 2]
    return shared + ours, shared + theirs


@given(parted_logs())
def test_repeated_cutting_ends_where_the_logs_part(logs: tuple[list[Entry], list[Entry]]) -> None:
    ours, theirs = logs
    leader, follower = MemoryLog(), MemoryLog()
    leader.append(theirs)
    # A leader enters its epoch before anybody asks.
    leader.begin_epoch(LeaderEpoch(20))
    follower.append(ours)
    shared = 0
    while shared < min(len(ours), len(theirs)) and ours[shared] == theirs[shared]:
        shared += 1
    for _ in range(40):
        parted = diverging_epoch(
            leader, fetch_offset=follower.log_end, last_fetched_epoch=follower.last_epoch
        )
        if parted is None:
            break
        end = agreed_end(follower, parted, log_end=follower.log_end)
        before = (follower.log_end, follower.epochs.entries)
        follower.truncate_to(end)
        assert (follower.log_end, follower.epochs.entries) != before, "it would go on for ever"
    # Nothing of what was shared is gone, and nothing else is left.
    assert follower.entries == ours[:shared]
