"""Commits stop below what is not safe, whatever order answers come in."""

from hypothesis import given
from hypothesis import strategies as st

from respool.client.messages.retry.unconfirmed import RefusedRetry, Unconfirmed

A, B = ("rides", 0), ("rides", 1)


def test_a_commit_stops_below_the_lowest_message_that_is_not_acknowledged() -> None:
    waiting = Unconfirmed()
    for offset in (7, 5, 9):
        waiting.on_sent(A, offset)
    assert waiting.limited({A: 10, B: 10}) == {A: 5, B: 10}
    waiting.on_acknowledged(A, 5)
    assert waiting.limited({A: 10}) == {A: 7}
    waiting.on_acknowledged(A, 9)
    waiting.on_acknowledged(A, 7)
    assert waiting.limited({A: 10}) == {A: 10}
    assert not waiting.is_waiting


def test_an_offset_below_is_committed_as_it_is() -> None:
    waiting = Unconfirmed()
    waiting.on_sent(A, 7)
    assert waiting.limited({A: 3}) == {A: 3}


def test_a_message_sent_twice_is_safe_after_both_answers() -> None:
    waiting = Unconfirmed()
    waiting.on_sent(A, 5)
    waiting.on_sent(A, 5)
    waiting.on_acknowledged(A, 5)
    assert waiting.limited({A: 10}) == {A: 5}
    waiting.on_acknowledged(A, 5)
    assert waiting.limited({A: 10}) == {A: 10}


def test_the_first_refused_message_of_a_partition_is_where_reading_continues() -> None:
    waiting = Unconfirmed()
    for offset in (5, 6, 7):
        waiting.on_sent(A, offset)
    waiting.on_refused(A, 6, "second")
    waiting.on_refused(A, 5, "first")
    waiting.on_refused(A, 7, "third")
    assert waiting.limited({A: 10}) == {A: 5}
    assert waiting.take_refused() == [RefusedRetry(A, 5, "first")]
    assert not waiting.has_refused
    assert waiting.limited({A: 10}) == {A: 10}


def test_answers_for_a_partition_that_was_revoked_mean_nothing() -> None:
    waiting = Unconfirmed()
    waiting.on_sent(A, 5)
    waiting.on_sent(B, 5)
    waiting.forget([A])
    waiting.on_refused(A, 5, "late")
    waiting.on_acknowledged(A, 5)
    assert not waiting.has_refused
    assert waiting.limited({A: 10, B: 10}) == {A: 10, B: 5}


EVENTS = st.tuples(st.sampled_from(["sent", "yes", "no"]), st.integers(0, 5))


@given(st.lists(EVENTS))
def test_it_agrees_with_counting_in_a_list(events: list[tuple[str, int]]) -> None:
    waiting, under_way, refused = Unconfirmed(), [], set()
    for event, offset in events:
        match event:
            case "sent":
                waiting.on_sent(A, offset)
                under_way.append(offset)
            case "yes":
                waiting.on_acknowledged(A, offset)
            case "no":
                waiting.on_refused(A, offset, "")
                refused |= {offset} & set(under_way)
        if event != "sent" and offset in under_way:
            under_way.remove(offset)
        assert waiting.limited({A: 6}) == {A: min([6, *under_way, *refused])}
        assert waiting.is_waiting == bool(under_way)
