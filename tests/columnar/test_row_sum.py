"""The sum over rows: the same for the same rows in any order, another for others."""

from random import Random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from respool.columnar.row_sum import row_sum

Row = tuple[bytes | None, bytes | None]

# Longer than a few machine words, and of every length between.
fields = st.none() | st.binary(max_size=30)
rows = st.lists(st.tuples(fields, fields), max_size=20)


def summed(some: list[Row]) -> int:
    keys, values = [one[0] for one in some], [one[1] for one in some]
    return row_sum(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))[0]


@given(some=rows, rng=st.randoms(use_true_random=False), cut=st.integers(0, 20))
def test_a_sum_does_not_depend_on_order_or_batches(some: list[Row], rng: Random, cut: int) -> None:
    mixed = list(some)
    rng.shuffle(mixed)
    parts = summed(mixed[:cut]) + summed(mixed[cut:])
    assert parts % 2**64 == summed(some) % 2**64


@given(some=rows, others=rows)
def test_other_rows_have_another_sum(some: list[Row], others: list[Row]) -> None:
    def known(rows: list[Row]) -> list[str]:
        return sorted(map(repr, rows))

    assert (summed(some) == summed(others)) == (known(some) == known(others))


def test_swapped_values_have_another_sum() -> None:
    assert summed([(b"a", b"1"), (b"b", b"2")]) != summed([(b"a", b"2"), (b"b", b"1")])
    assert summed([(None, b"a")]) != summed([(b"a", None)])
    assert summed([(b"", b"a")]) != summed([(None, b"a")])


@given(value=st.binary(min_size=1, max_size=40), at=st.integers(0, 39), bit=st.integers(0, 7))
def test_each_bit_of_a_value_counts(value: bytes, at: int, bit: int) -> None:
    other = bytearray(value)
    other[at % len(value)] ^= 1 << bit
    assert summed([(b"k", value)]) != summed([(b"k", bytes(other))])
    assert summed([(value, b"v")]) != summed([(bytes(other), b"v")])


def test_what_lies_beside_a_value_does_not_count() -> None:
    whole = pa.array([b"beside it", b"a value of twenty two!", b"beside it too"])
    alone = pa.array([b"a value of twenty two!"])
    nothing = pa.nulls(1, pa.binary())
    assert row_sum(nothing, whole.slice(1, 1)) == row_sum(nothing, alone)
