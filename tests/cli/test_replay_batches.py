import pytest

from respool.cli.message_format import ReadMessage
from respool.cli.replay_batches import Batch, Batches
from respool.cli.replay_plan import CopyPlan, ProducerId, Span
from respool.cli.replay_position import Origin, Position

PLAN = CopyPlan(
    topic="rides",
    into="copy",
    spans={0: Span(0, 1000), 1: Span(0, 1000)},
    producers={0: ProducerId(1, 0), 1: ProducerId(2, 0)},
    source_count=2,
    target_ends={0: 0, 1: 0},
)


def message(offset: int, *, source: int = 0, key: bytes = b"k", size: int = 10) -> ReadMessage:
    return ReadMessage(
        topic="rides",
        partition=source,
        offset=offset,
        timestamp_ms=1000 + offset,
        key=key,
        value=b"x" * size,
        headers=(("h", b"1"),),
    )


def batches(position: Position | None = None, **settings: int) -> Batches:
    return Batches(PLAN, position or Position(PLAN), replay_id="aa", keys=None, **settings)


def numbers(batch: Batch) -> list[int]:
    return [int(dict(record.headers)["respool-replay-number"] or b"") for record in batch.records]


def test_a_message_keeps_everything_and_gets_its_origin() -> None:
    collected = batches()
    assert collected.add(message(7)) is None
    (batch,) = collected.take_all()
    (record,) = batch.records
    assert (record.key, record.value, record.timestamp_ms) == (b"k", b"x" * 10, 1007)
    assert record.headers[0] == ("h", b"1")
    assert dict(record.headers)["respool-source"] == b"rides/0/7"
    assert batch.last == Origin(0, 7, 0)
    assert not collected.has_open


def test_batches_are_per_source_partition_and_numbered_without_gaps() -> None:
    collected = batches(batch_records=3)
    full = [collected.add(message(offset, source=offset % 2)) for offset in range(10)]
    done = [batch for batch in full if batch is not None] + collected.take_all()
    assert all(len({record.value for record in batch.records}) == 1 for batch in done)
    for source in (0, 1):
        mine = [batch for batch in done if batch.source == source]
        assert [number for batch in mine for number in numbers(batch)] == [0, 1, 2, 3, 4]
        assert [batch.first_number for batch in mine] == [0, 3]


def test_a_batch_is_full_by_its_bytes_too_and_a_huge_message_has_one_of_its_own() -> None:
    collected = batches(batch_bytes=1000)
    assert collected.add(message(0, size=500)) is None
    full = collected.add(message(1, size=5000))
    assert full is not None
    assert len(full.records) == 1
    next_full = collected.add(message(2, size=10))
    assert next_full is not None
    assert next_full.first_offset == 1
    assert next_full.last_offset == 1


def test_what_is_there_already_is_passed_over_and_numbers_go_on() -> None:
    position = Position(PLAN)
    position.done_below[0] = 3
    position.on_copy(0, Origin(0, 5, 4), at_offset=4)
    collected = batches(position)
    assert collected.looked_below[0] == 6
    for offset in (6, 7):
        collected.add(message(offset))
    (batch,) = collected.take_all()
    assert (batch.first_offset, numbers(batch)) == (6, [5, 6])


def test_keys_choose_the_messages() -> None:
    collected = Batches(PLAN, Position(PLAN), replay_id="aa", keys=frozenset({b"a"}))
    for offset, key in enumerate([b"a", b"b", b"a", b"c"]):
        collected.add(message(offset, key=key))
    (batch,) = collected.take_all()
    assert [record.key for record in batch.records] == [b"a", b"a"]
    assert collected.looked_below[0] == 4


def test_done_is_what_nothing_waits_for_any_more() -> None:
    collected = batches(batch_records=2)
    collected.add(message(0))
    full = collected.add(message(1))
    assert full is not None
    collected.add(message(2))
    assert collected.done_below(0, [full]) == 0
    assert collected.done_below(0, []) == 2
    collected.take_all()
    assert collected.done_below(0, []) == 3
    assert collected.done_below(1, [full]) == 0


def test_messages_out_of_order_are_a_mistake_of_ours() -> None:
    collected = batches()
    collected.add(message(5))
    with pytest.raises(AssertionError):
        collected.add(message(5))
