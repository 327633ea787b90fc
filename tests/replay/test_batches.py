from dataclasses import replace
from typing import Any

import pytest

from respool.model.ids import Offset
from respool.records.record import Record
from respool.replay.batches import BatchBuilder, CopyBatch
from respool.replay.copy_plan import CopyPlan, ProducerId, Span
from respool.replay.copy_position import CopyPosition, Origin
from respool.replay.request import MessageFilter

ALL = MessageFilter()
PLAN = CopyPlan(
    topic="rides",
    into="copy",
    spans={0: Span(0, 1000), 1: Span(0, 1000)},
    producers={0: ProducerId(1, 0), 1: ProducerId(2, 0)},
    source_count=2,
    target_ends={0: 0, 1: 0},
)


def message(offset: int, *, key: bytes = b"k", size: int = 10, value: bytes = b"") -> Record:
    return Record(
        offset=Offset(offset),
        timestamp=1000 + offset,
        key=key,
        value=value or b"x" * size,
        headers=(("h", b"1"),),
    )


def batches(
    position: CopyPosition | None = None, selection: MessageFilter = ALL, **settings: Any
) -> BatchBuilder:
    return BatchBuilder(
        PLAN, position or CopyPosition(PLAN), replay_id="aa", selection=selection, **settings
    )


def numbers(batch: CopyBatch) -> list[int]:
    return [int(dict(record.headers)["respool-replay-number"] or b"") for record in batch.records]


def test_a_message_keeps_everything_and_gets_its_origin() -> None:
    collected = batches()
    assert collected.add(0, message(7)) is None
    (batch,) = collected.take_open()
    (record,) = batch.records
    assert (record.key, record.value, record.timestamp_ms) == (b"k", b"x" * 10, 1007)
    assert record.headers[0] == ("h", b"1")
    assert dict(record.headers)["respool-source"] == b"rides/0/7"
    assert batch.last == Origin(0, 7, 0)
    assert not collected.has_open


def test_batches_are_per_source_partition_and_numbered_without_gaps() -> None:
    collected = batches(batch_records=3)
    full = [
        collected.add(offset % 2, message(offset, value=b"%d" % (offset % 2)))
        for offset in range(10)
    ]
    done = [batch for batch in full if batch is not None] + collected.take_open()
    assert all({each.value for each in one.records} == {b"%d" % one.source} for one in done)
    for source in (0, 1):
        mine = [batch for batch in done if batch.source == source]
        assert [number for batch in mine for number in numbers(batch)] == [0, 1, 2, 3, 4]
        assert [batch.first_number for batch in mine] == [0, 3]


def test_a_batch_is_full_by_its_bytes_too_and_a_huge_message_has_one_of_its_own() -> None:
    collected = batches(batch_bytes=1000)
    assert collected.add(0, message(0, size=500)) is None
    full = collected.add(0, message(1, size=5000))
    assert full is not None
    assert len(full.records) == 1
    next_full = collected.add(0, message(2, size=10))
    assert next_full is not None
    assert next_full.first_offset == 1
    assert next_full.last_offset == 1


def test_what_is_there_already_is_passed_over_and_numbers_go_on() -> None:
    position = CopyPosition(PLAN)
    position.done_below[0] = 3
    position.on_copy(0, Origin(0, 5, 4), at_offset=4)
    collected = batches(position)
    assert collected.added_below[0] == 6
    for offset in (6, 7):
        collected.add(0, message(offset))
    (batch,) = collected.take_open()
    assert (batch.first_offset, numbers(batch)) == (6, [5, 6])


def test_keys_choose_the_messages() -> None:
    collected = batches(selection=MessageFilter(keys=frozenset({b"a"})))
    for offset, key in enumerate([b"a", b"b", b"a", b"c"]):
        collected.add(0, message(offset, key=key))
    (batch,) = collected.take_open()
    assert [record.key for record in batch.records] == [b"a", b"a"]
    assert collected.added_below[0] == 4


def test_done_is_what_nothing_waits_for_any_more() -> None:
    collected = batches(batch_records=2)
    collected.add(0, message(0))
    full = collected.add(0, message(1))
    assert full is not None
    collected.add(0, message(2))
    assert collected.done_below(0, [full]) == 0
    assert collected.done_below(0, []) == 2
    collected.take_open()
    assert collected.done_below(0, []) == 3
    assert collected.done_below(1, [full]) == 0


def test_messages_out_of_order_are_a_mistake_of_ours() -> None:
    collected = batches()
    collected.add(0, message(5))
    with pytest.raises(AssertionError):
        collected.add(0, message(5))


# -- rewritten records


def test_rewritten_records_are_copied_and_others_left_out() -> None:
    def rewrite(one: Record) -> Record | None:
        return replace(one, value=b"new") if one.offset % 2 else None

    made = batches(rewrite=rewrite)
    for offset in range(4):
        made.add(0, message(offset))
    (batch,) = made.take_open()
    assert [one.value for one in batch.records] == [b"new", b"new"]
    assert numbers(batch) == [0, 1]
    assert made.added_below[0] == 4
