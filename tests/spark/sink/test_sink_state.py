"""A sink's state as text, and sums over rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
