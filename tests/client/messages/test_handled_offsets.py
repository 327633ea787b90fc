"""What is committed is done, and what is done was handed over: against a list of every message."""

from hypothesis import given
from hypothesis import strategies as st

from respool.client.messages.handled_offsets import Progress
from respool.client.messages.message import Place

A, B = ("rides", 0), ("rides", 1)


def test_what_is_in_hand_is_not_done() -> None:
    progress = Progress()
    progress.on_handed(A, 0)
    assert progress.to_commit() == {}
    progress.on_done()
    progress.on_handed(A, 1)
    assert progress.to_commit() == {A: 1}


def test_what_was_committed_is_not_committed_again() -> None:
    progress = Progress()
    progress.on_handed(A, 4)
    progress.on_done()
    progress.on_committed({A: 5})
    assert progress.to_commit() == {}


def test_a_commit_that_was_overtaken_leaves_the_rest_to_commit() -> None:
    progress = Progress()
    progress.on_handed(A, 4)
    progress.on_done()
    progress.on_handed(A, 5)
    progress.on_done()
    progress.on_committed({A: 5})
    assert progress.to_commit() == {A: 6}


def test_nothing_is_committed_for_a_partition_that_was_taken_away() -> None:
    progress = Progress()
    progress.on_handed(A, 4)
    progress.on_handed(B, 7)
    progress.forget([A])
    progress.on_done()
    assert progress.to_commit() == {B: 8}


def test_where_a_group_began_is_written_with_the_next_commit_or_when_it_leaves() -> None:
    progress = Progress()
    progress.on_begun({A: 3, B: 5})
    assert progress.to_commit() == {}
    assert progress.to_commit([A]) == {A: 3}
    progress.on_handed(B, 5)
    progress.on_done()
    assert progress.to_commit() == {A: 3, B: 6}
    progress.on_committed({A: 3, B: 6})
    assert progress.to_commit([A, B]) == {}


def test_where_a_group_began_is_not_told_of_a_partition_that_was_taken_away() -> None:
    progress = Progress()
    progress.on_begun({A: 3})
    progress.forget([A])
    assert progress.to_commit([A]) == {}


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("hand"), st.sampled_from([A, B])),
        st.tuples(st.sampled_from(["done", "commit"]), st.none()),
        st.tuples(st.sampled_from(["up to", "take away"]), st.sampled_from([A, B])),
    )
)


@given(_steps)
def test_a_commit_covers_exactly_what_was_handled_whatever_happens_in_between(
    steps: list[tuple[str, Place | None]],
) -> None:
    progress = Progress()
    next_offset: dict[Place, int] = {A: 0, B: 0}
    in_hand: list[tuple[Place, int]] = []
    handled: dict[Place, int] = {}
    for step, place in steps:
        match step:
            case "hand":
                assert place is not None
                progress.on_handed(place, next_offset[place])
                in_hand.append((place, next_offset[place]))
                next_offset[place] += 1
            case "done":
                progress.on_done()
                handled |= {one: offset + 1 for one, offset in in_hand}
                in_hand = []
            case "up to":
                mine = [offset for one, offset in in_hand if one == place]
                if mine and place is not None:
                    progress.on_done_up_to(place, mine[0])
                    handled[place] = mine[0] + 1
                    in_hand.remove((place, mine[0]))
            case "commit":
                assert progress.to_commit() == handled
                progress.on_committed(progress.to_commit())
                handled = {}
            case "take away":
                assert place is not None
                progress.forget([place])
                handled.pop(place, None)
                in_hand = [one for one in in_hand if one[0] != place]
    assert progress.to_commit() == handled
