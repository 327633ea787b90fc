"""What a member writes down, and when it tries again; the library is a list of what it was asked for."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.client.messages.errors import CommitFailed, Fenced
from respool.client.messages.group_commits import GroupCommits, HandledUpTo
from respool.client.messages.library import KafkaError, KafkaException, TopicPartition
from respool.client.messages.message import Place

A, B = ("rides", 0), ("rides", 1)


class Library:
    """Commits nothing; says what it is told to say."""

    def __init__(self) -> None:
        self.asked: list[tuple[dict[Place, int], bool]] = []
        self.raises: KafkaException | None = None

    def commit(self, *, offsets: Sequence[Any], asynchronous: bool) -> list[Any]:
        asked = {(one.topic, one.partition): one.offset for one in offsets}
        self.asked.append((asked, asynchronous))
        if self.raises is not None:
            raise self.raises
        return list(offsets)


def failing(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
def commits(library: Library) -> GroupCommits:
    made = GroupCommits(library, every_ms=5_000)
    made.progress.on_handed(A, 6)
    made.progress.on_done()
    return made


def test_what_is_done_is_written_once(library: Library, commits: GroupCommits) -> None:
    commits.write_done()
    commits.write_done()
    assert library.asked == [({A: 7}, False)]


@pytest.mark.parametrize("code", [KafkaError.REQUEST_TIMED_OUT, KafkaError.REBALANCE_IN_PROGRESS])
def test_what_could_not_be_written_now_is_written_with_the_next(
    library: Library, commits: GroupCommits, code: int
) -> None:
    library.raises = failing(code)
    commits.write_done()
    library.raises = None
    commits.progress.on_handed(B, 0)
    commits.progress.on_done()
    commits.write_done()
    assert library.asked == [({A: 7}, False), ({A: 7, B: 1}, False)]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, CommitFailed),
        (KafkaError.FENCED_INSTANCE_ID, Fenced),
    ],
)
def test_what_does_not_pass_is_told(
    library: Library, commits: GroupCommits, code: int, told: type[Exception]
) -> None:
    library.raises = failing(code)
    with pytest.raises(told):
        commits.write_done()
    assert commits.progress.to_commit() == {A: 7}


def test_where_a_group_begins_is_written_until_it_is_heard_that_it_is(
    library: Library,
) -> None:
    now = 100.0
    commits = GroupCommits(library, every_ms=5_000, now=lambda: now)
    commits.begin({A: 0, B: 40})
    commits.on_started([A, B])
    commits.write_beginning_if_due()
    assert library.asked == [({A: 0, B: 40}, True)]

    commits.on_told(None, [TopicPartition("rides", 0, 0)])
    commits.on_told(KafkaError(KafkaError.NOT_COORDINATOR), [TopicPartition("rides", 1, 40)])
    commits.write_beginning_if_due()
    now += 1.0
    commits.write_beginning_if_due()
    assert library.asked[1:] == [({B: 40}, True)]

    commits.on_told(None, [TopicPartition("rides", 1, 40)])
    now += 60.0
    commits.write_beginning_if_due()
    assert len(library.asked) == 2


def test_where_a_group_begins_is_written_when_all_of_it_is_read_or_after_a_second(
    library: Library,
) -> None:
    now = 100.0
    commits = GroupCommits(library, every_ms=5_000, now=lambda: now)
    commits.begin({A: 0, B: 40})
    commits.on_started([A])
    commits.write_beginning_if_due()
    assert (library.asked, commits.unstarted) == ([], frozenset({B}))

    now += 1.0
    commits.write_beginning_if_due()
    assert (library.asked, commits.unstarted) == ([({A: 0, B: 40}, True)], frozenset())


def test_a_beginning_that_the_library_does_not_take_is_tried_again(
    library: Library,
) -> None:
    now = 100.0
    commits = GroupCommits(library, every_ms=5_000, now=lambda: now)
    library.raises = failing(KafkaError._STATE)
    commits.begin({A: 3})
    commits.on_started([A])
    library.raises = None
    now += 1.0
    commits.write_beginning_if_due()
    assert library.asked == [({A: 3}, True)] * 2


def test_commits_that_nobody_asks_for_are_due_after_a_while(library: Library) -> None:
    now = 100.0
    commits = GroupCommits(library, every_ms=5_000, now=lambda: now)
    assert not commits.is_due
    now += 5.0
    assert commits.is_due
    commits.write_done()
    assert not commits.is_due


def test_what_is_in_hand_is_not_done() -> None:
    progress = HandledUpTo()
    progress.on_handed(A, 0)
    assert progress.to_commit() == {}
    progress.on_done()
    progress.on_handed(A, 1)
    assert progress.to_commit() == {A: 1}


def test_what_was_committed_is_not_committed_again() -> None:
    progress = HandledUpTo()
    progress.on_handed(A, 4)
    progress.on_done()
    progress.on_committed({A: 5})
    assert progress.to_commit() == {}


def test_a_commit_that_was_overtaken_leaves_the_rest_to_commit() -> None:
    progress = HandledUpTo()
    progress.on_handed(A, 4)
    progress.on_done()
    progress.on_handed(A, 5)
    progress.on_done()
    progress.on_committed({A: 5})
    assert progress.to_commit() == {A: 6}


def test_nothing_is_committed_for_a_partition_that_was_taken_away() -> None:
    progress = HandledUpTo()
    progress.on_handed(A, 4)
    progress.on_handed(B, 7)
    progress.forget([A])
    progress.on_done()
    assert progress.to_commit() == {B: 8}


def test_where_a_group_began_is_written_with_the_next_commit_or_when_it_leaves() -> None:
    progress = HandledUpTo()
    progress.on_begun({A: 3, B: 5})
    assert progress.to_commit() == {}
    assert progress.to_commit([A]) == {A: 3}
    progress.on_handed(B, 5)
    progress.on_done()
    assert progress.to_commit() == {A: 3, B: 6}
    progress.on_committed({A: 3, B: 6})
    assert progress.to_commit([A, B]) == {}


def test_where_a_group_began_is_not_told_of_a_partition_that_was_taken_away() -> None:
    progress = HandledUpTo()
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
    progress = HandledUpTo()
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
