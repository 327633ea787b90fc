"""Cuts against a model that goes row by row."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from respool.client.arrow.writing.batch_encoder import BatchRows, split_batches
from respool.records.batch import HEADER_BYTES

ROW = st.tuples(st.integers(0, 4), st.integers(1, 60))


def cuts_of(rows: list[tuple[int, int]], batch_bytes: int) -> list[BatchRows]:
    partitions = np.array([partition for partition, _ in rows], dtype=np.int32)
    sizes = np.array([size for _, size in rows], dtype=np.int64)
    return list(split_batches(partitions, sizes, batch_bytes=batch_bytes))


def rows_of(one: BatchRows, count: int) -> list[int]:
    if isinstance(one.rows, slice):
        return list(range(count))[one.rows]
    return [int(row) for row in one.rows]


@given(rows=st.lists(ROW, max_size=60), room=st.integers(1, 120))
def test_every_row_is_in_one_cut_of_its_partition_in_order_and_within_the_bound(
    rows: list[tuple[int, int]], room: int
) -> None:
    found = cuts_of(rows, HEADER_BYTES + room)
    by_partition: dict[int, list[int]] = {}
    for one in found:
        numbers = rows_of(one, len(rows))
        size = sum(rows[number][1] for number in numbers)
        assert numbers
        assert size <= room or len(numbers) == 1
        assert one.size == size + HEADER_BYTES
        assert one.row_count == len(numbers)
        by_partition.setdefault(one.partition, []).extend(numbers)
    for partition, numbers in by_partition.items():
        assert numbers == [at for at, row in enumerate(rows) if row[0] == partition]
    assert sum(map(len, by_partition.values())) == len(rows)


@given(rows=st.lists(ROW, max_size=60), room=st.integers(1, 120))
def test_cuts_are_few(rows: list[tuple[int, int]], room: int) -> None:
    """Not many more than where each partition's rows are filled into batches one by one."""
    needed = 0
    filled: dict[int, int] = {}
    for partition, size in rows:
        if partition not in filled or filled[partition] + size > room:
            needed += 1
            filled[partition] = 0
        filled[partition] += size
    runs_max = 2 * sum(size for _, size in rows) // room
    assert needed <= len(cuts_of(rows, HEADER_BYTES + room)) <= needed + runs_max


def test_rows_that_lie_together_are_slices() -> None:
    found = cuts_of([(3, 10), (3, 10), (1, 10)], 1_000)
    assert [(one.partition, one.rows) for one in found] == [(3, slice(0, 2)), (1, slice(2, 3))]
    # Long runs need not be the only ones of their partition.
    found = cuts_of([(0, 10), (0, 10), (1, 10), (1, 10), (0, 10), (0, 10)], HEADER_BYTES + 20)
    assert [(one.partition, one.rows) for one in found] == [
        (0, slice(0, 2)),
        (1, slice(2, 4)),
        (0, slice(4, 6)),
    ]


def test_short_runs_are_gathered() -> None:
    found = cuts_of([(0, 1), (1, 1)] * 50, 1_000)
    assert [one.partition for one in found] == [0, 1]
    assert [one.row_count for one in found] == [50, 50]


def test_a_row_larger_than_a_batch_is_alone() -> None:
    found = cuts_of([(0, 10), (0, 500), (0, 10)], 100)
    assert [one.row_count for one in found] == [1, 1, 1]


def test_partitions_beyond_sixteen_bits_are_told_apart() -> None:
    found = cuts_of([(70_000, 1), (4_464, 1), (70_000, 1)], 100)
    assert {one.partition: rows_of(one, 3) for one in found} == {70_000: [0, 2], 4_464: [1]}


def test_no_rows_make_no_cut() -> None:
    assert cuts_of([], 100) == []
