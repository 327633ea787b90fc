"""A sink's state as text, and sums over rows."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.columnar.row_sum import row_sum
from respool.spark.sink.errors import StateDamaged
from respool.spark.sink.state import GONE_MAX, Extent, Share, SinkState, Transaction

extents = st.builds(
    Extent,
    rows=st.integers(0, 2**40),
    bytes=st.integers(0, 2**50),
    checksum=st.integers(0, 2**64 - 1),
)
shares = st.builds(
    Share,
    task=st.integers(0, 10_000),
    transaction=st.builds(Transaction, st.text(), st.integers(0, 2**63), st.integers(0, 2**15)),
    extent=extents,
    is_settled=st.booleans(),
    is_lost=st.booleans(),
)
states = st.builds(
    SinkState,
    run=st.text(),
    gone=st.lists(st.text()).map(tuple),
    batch=st.integers(-1, 2**40),
    tasks=st.integers(0, 10_000),
    shares=st.lists(shares).map(tuple),
    given_up=st.integers(-1, 2**40),
)


@given(state=states)
def test_a_state_is_the_same_after_it_was_text(state: SinkState) -> None:
    assert SinkState.from_json(state.to_json()) == state


@pytest.mark.parametrize("text", ["", "{}", '{"format": 2}', '{"format": 1, "run": "a"}', "[1]"])
def test_what_is_no_state_is_told(text: str) -> None:
    with pytest.raises(StateDamaged):
        SinkState.from_json(text)


def test_only_so_many_runs_are_remembered() -> None:
    state = SinkState()
    for number in range(2 * GONE_MAX):
        state = state.taken_over_by(f"run {number}")
    assert state.run == f"run {2 * GONE_MAX - 1}"
    assert len(state.gone) == GONE_MAX
    assert state.gone[-1] == f"run {2 * GONE_MAX - 2}"


rows = st.lists(st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9)))


def summed(some: list[tuple[bytes | None, bytes | None]]) -> int:
    keys, values = [one[0] for one in some], [one[1] for one in some]
    return row_sum(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))[0]


@given(some=rows, dice=st.randoms(use_true_random=False), cut=st.integers(0, 20))
def test_a_sum_does_not_depend_on_order_or_batches(some: list, dice: object, cut: int) -> None:  # type: ignore[type-arg]
    mixed = list(some)
    dice.shuffle(mixed)  # type: ignore[attr-defined]
    parts = summed(mixed[:cut]) + summed(mixed[cut:])
    assert parts % 2**64 == summed(some) % 2**64


@given(some=rows, others=rows)
def test_other_rows_have_another_sum(some: list, others: list) -> None:  # type: ignore[type-arg]
    def known(rows: list) -> list[str]:  # type: ignore[type-arg]
        return sorted(map(repr, rows))

    assert (summed(some) == summed(others)) == (known(some) == known(others))


def test_swapped_values_have_another_sum() -> None:
    assert summed([(b"a", b"1"), (b"b", b"2")]) != summed([(b"a", b"2"), (b"b", b"1")])
    assert summed([(None, b"a")]) != summed([(b"a", None)])
    assert summed([(b"", b"a")]) != summed([(None, b"a")])
