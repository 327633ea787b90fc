from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.wire.codec import Request
from respool.wire.reply_order import ReplyOrder, ReplySlot
from wire.entities import examples


def request(correlation_id: int) -> Request:
    return Request(
        api=cast("Any", None),
        version=0,
        correlation_id=correlation_id,
        client_id=None,
        body=None,
        size=0,
    )


def test_a_reply_leaves_as_soon_as_it_is_there_when_none_is_before_it() -> None:
    session = ReplyOrder()
    slot = session.open_reply(request(1))
    assert session.waiting == 1
    assert session.take_ready() == []
    assert slot.fill([b"head", b"records"])
    assert session.take_ready() == [b"head", b"records"]
    assert session.waiting == 0
    assert session.take_ready() == []


def test_a_reply_waits_for_those_before_it() -> None:
    session = ReplyOrder()
    first, second, third = (session.open_reply(request(number)) for number in range(3))
    assert not third.fill([b"3"])
    assert not second.fill([b"2"])
    assert session.take_ready() == []
    assert session.waiting == 3
    assert first.fill([b"1"])
    assert session.take_ready() == [b"1", b"2", b"3"]
    assert session.waiting == 0


def test_a_request_without_reply_holds_nobody_up() -> None:
    session = ReplyOrder()
    silent, spoken = session.open_reply(request(1)), session.open_reply(request(2))
    assert not spoken.fill([b"2"])
    assert silent.skip()
    assert session.take_ready() == [b"2"]
    assert session.waiting == 0


def test_a_skipped_request_waits_its_turn_too() -> None:
    session = ReplyOrder()
    spoken, silent = session.open_reply(request(1)), session.open_reply(request(2))
    assert not silent.skip()
    assert session.waiting == 2
    assert spoken.fill([b"1"])
    assert session.take_ready() == [b"1"]
    assert session.waiting == 0


def test_a_second_reply_to_one_request_is_a_mistake_and_changes_nothing() -> None:
    session = ReplyOrder()
    slot = session.open_reply(request(5))
    slot.fill([b"once"])
    with pytest.raises(AssertionError, match="correlation_id=5"):
        slot.fill([b"twice"])
    with pytest.raises(AssertionError, match="correlation_id=5"):
        slot.skip()
    assert session.take_ready() == [b"once"]


@pytest.mark.long
@settings(max_examples=examples(200, long=5_000), deadline=None)
@given(st.data())
def test_replies_leave_in_the_order_of_their_requests_whenever_they_are_filled_or_taken(
    data: st.DataObject,
) -> None:
    session = ReplyOrder()
    open_slots: list[tuple[int, ReplySlot]] = []
    opened = 0
    silent: set[int] = set()
    sent: list[bytes | memoryview] = []
    for _ in range(data.draw(st.integers(1, 30))):
        match data.draw(st.sampled_from(["open", "fill", "skip", "take"])):
            case "open":
                open_slots.append((opened, session.open_reply(request(opened))))
                opened += 1
            case "take":
                sent += session.take_ready()
            case how if open_slots:
                number, slot = open_slots.pop(data.draw(st.integers(0, len(open_slots) - 1)))
                if how == "skip":
                    silent.add(number)
                    slot.skip()
                else:
                    slot.fill([b"%d" % number])
    while open_slots:
        number, slot = open_slots.pop()
        slot.fill([b"%d" % number])
    sent += session.take_ready()
    assert sent == [b"%d" % number for number in range(opened) if number not in silent]
    assert session.waiting == 0
