"""One partition while it is read: no gap and nothing twice, whoever answers."""

from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.client.arrow.errors import BatchDamaged, LogTruncated, RetentionOvertook
from respool.client.kafka.reading.cursor import FETCH_BYTES_MIN, Cursor, FetchStep
from respool.records.build import NewRecord, build_batch
from respool.wire.fetch_reply import FetchedPart

TOPIC = uuid4()


def cursor(position: int = 0, end: int | None = None, **fields: Any) -> Cursor:
    return Cursor(topic="rides", partition=3, position=position, end=end, **fields)


def batch(base_offset: int, count: int, *, epoch: int = 4) -> bytes:
    records = [NewRecord(value=b"x" * 10, timestamp_ms=0)] * count
    return build_batch(records, base_offset=base_offset, leader_epoch=epoch)


def part(records: bytes = b"", **fields: Any) -> FetchedPart:
    values: dict[str, Any] = {
        "topic": TOPIC,
        "partition": 3,
        "error_code": 0,
        "high_watermark": 100,
        "last_stable_offset": 100,
        "log_start": 0,
        "aborted": (),
        "diverging": None,
        "leader": None,
    }
    return FetchedPart(records=memoryview(records), **{**values, **fields})


def test_the_position_moves_behind_the_last_whole_batch() -> None:
    reading = cursor()
    cut = batch(5, 5)[:-1]
    assert reading.on_answer(part(batch(0, 3) + batch(3, 2) + cut)) is FetchStep.TAKE
    assert (reading.position, reading.last_epoch) == (5, 4)


def test_a_batch_that_holds_the_position_in_its_middle_is_taken() -> None:
    reading = cursor(position=7)
    assert reading.on_answer(part(batch(5, 5))) is FetchStep.TAKE
    assert reading.position == 10


def test_a_gap_that_compaction_left_is_passed() -> None:
    reading = cursor(position=7)
    assert reading.on_answer(part(batch(50, 5))) is FetchStep.TAKE
    assert reading.position == 55


@pytest.mark.parametrize("records", [b"", batch(0, 5)[:40], batch(0, 5)[:-1], batch(0, 5)])
def test_without_a_whole_batch_from_the_position_on_nothing_moves(records: bytes) -> None:
    reading = cursor(position=5, last_epoch=2)
    assert reading.on_answer(part(records)) is FetchStep.WAIT
    assert (reading.position, reading.last_epoch) == (5, 2)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_every_offset_is_taken_once_however_replies_are_cut(
    counts: list[int], data: st.DataObject
) -> None:
    batches, base = [], 0
    for count in counts:
        batches.append((base, base + count, batch(base, count)))
        base += count
    reading, taken = cursor(end=base), 0
    while not reading.is_done:
        before = reading.position
        stored = b"".join(one for _, last, one in batches if last > before)
        at_least = len(next(one for _, last, one in batches if last > before))
        reading.on_answer(part(stored[: data.draw(st.integers(at_least, len(stored)))]))
        assert before == taken < reading.position
        assert reading.position in {last for _, last, _ in batches}
        taken = reading.position
    assert taken == base


@given(st.binary(max_size=300))
def test_bytes_that_are_no_batches_do_not_break_it(records: bytes) -> None:
    reading = cursor(position=5)
    with suppress(BatchDamaged):
        reading.on_answer(part(records))
    assert reading.position >= 5


def test_batches_whose_offsets_go_back_are_refused_and_nothing_moves() -> None:
    reading = cursor(position=5)
    for records in (batch(50, 5) + batch(10, 5), batch(5, 5) + batch(9, 1), batch(-9, 5)):
        with pytest.raises(BatchDamaged, match="log verify"):
            reading.on_answer(part(records))
        assert reading.position == 5


def test_a_log_that_lost_what_was_read_ends_the_read_and_says_from_where() -> None:
    reading = cursor(position=50, last_epoch=4)
    with pytest.raises(LogTruncated, match="offset 40") as caught:
        reading.on_answer(part(diverging=(3, 40)))
    assert (caught.value.partition, caught.value.offset, reading.position) == (3, 40, 50)


def test_a_log_start_beyond_the_position_ends_the_read_even_with_records() -> None:
    with pytest.raises(RetentionOvertook, match=r"DeleteRecords.*begins at 60") as caught:
        cursor(position=50).on_answer(part(batch(60, 2), log_start=60))
    assert (caught.value.offset, caught.value.first_offset) == (50, 60)


def test_out_of_range_is_told_apart_by_the_logs_bounds() -> None:
    reading = cursor(position=50)
    assert reading.on_answer(part(error_code=1, log_start=-1)) is FetchStep.ASK_BOUNDS
    with pytest.raises(RetentionOvertook):
        reading.on_bounds(51, 100)
    with pytest.raises(LogTruncated):
        reading.on_bounds(0, 49)
    reading.on_bounds(50, 50)
    assert reading.position == 50


def test_other_errors_are_for_others_to_judge() -> None:
    reading = cursor(position=50)
    assert reading.on_answer(part(error_code=6, log_start=-1)) is FetchStep.RETRY
    assert reading.position == 50


def test_not_more_is_fetched_than_the_rest_of_the_range_takes() -> None:
    reading = cursor(end=1_000_000)
    assert reading.bytes_wanted(8_000_000) == 8_000_000
    reading.on_answer(part(batch(0, 100_000)))
    reading.end = reading.position + 100_000
    size = len(batch(0, 100_000))
    assert size < reading.bytes_wanted(8_000_000) < 1.2 * size
    reading.end = reading.position + 1
    assert reading.bytes_wanted(8_000_000) == FETCH_BYTES_MIN
    assert cursor().bytes_wanted(5) == 5
