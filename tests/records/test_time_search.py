"""Runs of records of one size are searched in slices, with the same result as parsing each record."""

from itertools import accumulate

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from records.record_examples import FUZZ_EXAMPLES, NOON_MS, batch_of
from respool.model.errors import CorruptMessage
from respool.records import time_search
from respool.records.batch import RecordBatch, records_of, seal
from respool.records.build import NewRecord, append_record, build_batch
from respool.records.record import iterate_times
from respool.records.time_search import (
    RUN_RECORDS_MIN,
    DeltaMinimums,
    FoundDelta,
    UnusualRecords,
    find_delta,
)

RECORDS_MAX = 360
LIMIT = 2**22


def batch(sizes: list[int], timestamp_deltas: list[int], offset_deltas: list[int]) -> RecordBatch:
    body = bytearray()
    for size, timestamp, offset in zip(sizes, timestamp_deltas, offset_deltas, strict=True):
        record = NewRecord(value=b"v" * size, timestamp_ms=NOON_MS + timestamp)
        append_record(body, record, offset_delta=offset, base_timestamp=NOON_MS)
    header = batch_of(build_batch([NewRecord(value=b"v", timestamp_ms=NOON_MS)])).header
    return seal(header._replace(last_offset_delta=offset_deltas[-1], record_count=len(sizes)), body)


def even_batch(records: int, *, timestamp_step: int, size: int = 100) -> RecordBatch:
    numbers = list(range(records))
    return batch([size] * records, [timestamp_step * number for number in numbers], numbers)


def strictly(one: RecordBatch, wanted: DeltaMinimums) -> FoundDelta | None:
    for offset, timestamp in iterate_times(one, limit=LIMIT):
        found = FoundDelta(offset - one.header.base_offset, timestamp - one.header.base_timestamp)
        if (
            found.timestamp_delta >= wanted.timestamp_delta
            and found.offset_delta >= wanted.offset_delta
        ):
            return found
    return None


def quickly(one: RecordBatch, wanted: DeltaMinimums) -> FoundDelta | None:
    return find_delta(
        bytes(records_of(one)),
        wanted,
        record_count=one.header.record_count,
        offset_delta_max=one.header.last_offset_delta,
    )


@pytest.mark.parametrize("timestamp_step", [0, 1, 7, 200, 4_000])
def test_every_time_is_found_in_records_of_one_size(timestamp_step: int) -> None:
    """Offsets take one byte, then two; timestamps up to three."""
    records = 220
    one = even_batch(records, timestamp_step=timestamp_step)
    for number in range(records + 1):
        for wanted in (
            DeltaMinimums(number * timestamp_step, 0),
            DeltaMinimums(number * timestamp_step - timestamp_step // 2, 0),
            DeltaMinimums(-1, number),
            DeltaMinimums(100 * timestamp_step, number),
        ):
            assert quickly(one, wanted) == strictly(one, wanted)


@pytest.mark.parametrize("timestamp_step", [0, 1, 4_000])
def test_records_of_one_size_are_not_parsed_one_by_one(
    timestamp_step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found_run = time_search._run
    in_runs = 0

    def counted(*arguments: int, **more: int) -> object:
        nonlocal in_runs
        times = found_run(*arguments, **more)  # type: ignore[arg-type]
        in_runs += len(times[0]) if times else 0
        return times

    monkeypatch.setattr(time_search, "_run", counted)
    records = 200
    assert (
        quickly(even_batch(records, timestamp_step=timestamp_step), DeltaMinimums(2**40, 0)) is None
    )
    # One before each run, and a few whose timestamp has fewer bytes than those of the next run.
    assert in_runs > records - 4 * RUN_RECORDS_MIN


# Few sizes and steps, so that there are runs, and runs that end.
shapes = st.lists(
    st.tuples(
        st.sampled_from([0, 9, 60, 100, 9_000]),
        st.integers(1, 90),
        st.sampled_from([0, 1, 1, 3, 700, -2, -70, 20_000]),
        st.sampled_from([1, 1, 1, 2]),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=FUZZ_EXAMPLES)
@given(
    shapes=shapes,
    wanted=st.builds(
        DeltaMinimums,
        st.integers(-200, 200) | st.integers(-(2**21), 2**21),
        st.integers(0, RECORDS_MAX),
    ),
    damage=st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), max_size=2),
)
@example(shapes=[(100, 90, 1, 1)], wanted=DeltaMinimums(80, 0), damage=[(8_800, 0)])
def test_runs_are_searched_as_if_every_record_were_parsed(
    shapes: list[tuple[int, int, int, int]], wanted: DeltaMinimums, damage: list[tuple[int, int]]
) -> None:
    sizes = [size for size, count, _, _ in shapes for _ in range(count)]
    times = list(accumulate(step for _, count, step, _ in shapes for _ in range(count)))
    offsets = list(accumulate(gap for _, count, _, gap in shapes for _ in range(count)))
    one = batch(sizes, times, offsets)
    body = bytearray(records_of(one))
    for at, byte in damage:
        body[at % len(body)] = byte
    one = seal(one.header, body)
    try:
        found = quickly(one, wanted)
    except (UnusualRecords, IndexError):
        # Parsed strictly then.
        return
    try:
        assert found == strictly(one, wanted)
    except CorruptMessage:
        pytest.fail("found in records that are corrupt before it")


def test_a_gap_between_offsets_ends_a_run() -> None:
    offsets = [*range(30), *range(40, 70)]
    one = batch([100] * 60, list(range(60)), offsets)
    assert quickly(one, DeltaMinimums(45, 0)) == FoundDelta(55, 45)


def test_a_run_beyond_the_last_offset_of_its_batch_is_unusual() -> None:
    one = even_batch(60, timestamp_step=1)
    one = seal(one.header._replace(last_offset_delta=40), records_of(one))
    assert quickly(one, DeltaMinimums(30, 0)) == FoundDelta(30, 30)
    with pytest.raises(UnusualRecords):
        quickly(one, DeltaMinimums(50, 0))
