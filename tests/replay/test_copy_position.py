import json

from respool.model.ids import Offset
from respool.records.record import Record
from respool.replay.copy_plan import CopyPlan, ProducerId, Span
from respool.replay.copy_position import (
    CHECKPOINT_PAIRS_MAX,
    CopyPosition,
    Origin,
    headers_of,
    origin_of,
)

ONE_TO_ONE = CopyPlan(
    topic="rides",
    into="copy",
    spans={0: Span(10, 20), 1: Span(0, 5)},
    producers={0: ProducerId(1, 0), 1: ProducerId(2, 0)},
    source_count=2,
    target_ends={0: 100, 1: 200},
)
TWO_TO_THREE = CopyPlan(
    topic="rides",
    into="copy",
    spans=ONE_TO_ONE.spans,
    producers=ONE_TO_ONE.producers,
    source_count=2,
    target_ends={0: 0, 1: 0, 2: 0},
)


def message(*headers: tuple[str, bytes | None]) -> Record:
    return Record(offset=Offset(0), timestamp=0, key=None, value=None, headers=headers)


def test_a_copy_tells_where_it_comes_from() -> None:
    headers = headers_of("aa", "some/topic", partition=3, offset=4711, number=12)
    assert dict(headers)["respool-source"] == b"some/topic/3/4711"
    assert origin_of(message(("h", b"1"), *headers), "aa") == Origin(3, 4711, 12)


def test_messages_of_others_are_passed_over() -> None:
    headers = headers_of("aa", "rides", partition=3, offset=4711, number=12)
    assert origin_of(message(), "aa") is None
    assert origin_of(message(*headers), "bb") is None
    assert origin_of(message(headers[0]), "aa") is None


def test_a_copy_of_a_copy_belongs_to_the_last_one() -> None:
    first = headers_of("aa", "rides", partition=3, offset=4711, number=12)
    second = headers_of("bb", "copy", partition=0, offset=7, number=0)
    assert origin_of(message(*first, *second), "bb") == Origin(0, 7, 0)
    assert origin_of(message(*first, *second), "aa") is None


def test_a_new_replay_begins_at_the_beginning() -> None:
    position = CopyPosition(ONE_TO_ONE)
    assert [position.read_from(0), position.read_from(1)] == [10, 0]
    assert position.next_number(0, 0) == 0
    assert not position.is_copied(0, 0, 10)
    assert (position.copied, position.is_complete) == (0, False)


def test_the_last_copy_tells_that_all_before_it_are_there() -> None:
    position = CopyPosition(ONE_TO_ONE)
    position.on_copy(0, Origin(0, 12, 2), at_offset=130)
    assert position.read_from(0) == 13
    assert position.is_copied(0, 0, 12)
    assert not position.is_copied(0, 0, 13)
    assert position.next_number(0, 0) == 3
    assert position.read_to[0] == 131
    # A batch that came twice is answered with its first place.
    position.on_copy(0, Origin(0, 11, 1), at_offset=110)
    assert (position.read_from(0), position.read_to[0]) == (13, 131)


def test_of_several_targets_the_one_furthest_behind_counts() -> None:
    position = CopyPosition(TWO_TO_THREE)
    position.on_copy(0, Origin(0, 15, 3), at_offset=3)
    assert position.read_from(0) == 10
    position.on_copy(1, Origin(0, 12, 0), at_offset=0)
    position.on_copy(2, Origin(0, 17, 1), at_offset=1)
    assert position.read_from(0) == 13
    assert position.is_copied(0, 2, 16)
    assert not position.is_copied(0, 1, 16)
    # A checkpoint knows better: nothing before it goes to the first or second.
    position.done_below[0] = 16
    assert position.read_from(0) == 16
    assert position.copied == 4 + 1 + 2


def test_it_is_complete_when_every_span_is() -> None:
    position = CopyPosition(ONE_TO_ONE)
    position.done_below[0] = 20
    assert not position.is_complete
    position.done_below[1] = 5
    assert position.is_complete


def test_a_checkpoint_is_read_back_as_it_was_recorded() -> None:
    position = CopyPosition(TWO_TO_THREE)
    position.on_copy(1, Origin(0, 12, 4), at_offset=9)
    position.done_below[1] = 3
    document = json.loads(json.dumps(position.to_document()))
    again = CopyPosition.from_document(TWO_TO_THREE, document)
    assert again.to_document() == position.to_document()
    assert again.is_copied(0, 1, 12)
    assert again.read_to == {0: 0, 1: 10, 2: 0}


def test_a_checkpoint_too_large_to_record_is_left_out() -> None:
    position = CopyPosition(TWO_TO_THREE)
    for source in range(CHECKPOINT_PAIRS_MAX + 1):
        position.on_copy(0, Origin(source, 1, 0), at_offset=0)
    assert position.to_document() is None
    assert CopyPosition.from_document(TWO_TO_THREE, None).read_from(0) == 10
