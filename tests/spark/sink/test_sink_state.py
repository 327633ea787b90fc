"""A sink's state as text, and sums over rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.spark.sink.errors import StateDamaged
from respool.spark.sink.state import GONE_MAX, Extent, Share, SinkState, TaskTransaction

extents = st.builds(
    Extent,
    rows=st.integers(0, 2**40),
    bytes=st.integers(0, 2**50),
    checksum=st.integers(0, 2**64 - 1),
)
shares = st.builds(
    Share,
    task=st.integers(0, 10_000),
    transaction=st.builds(TaskTransaction, st.text(), st.integers(0, 2**63), st.integers(0, 2**15)),
    extent=extents,
    is_resolved=st.booleans(),
    is_lost=st.booleans(),
)
states = st.builds(
    SinkState,
    run=st.text(),
    gone=st.lists(st.text()).map(tuple),
    batch=st.integers(-1, 2**40),
    tasks=st.integers(0, 10_000),
    shares=st.lists(shares).map(tuple),
    failed_batch=st.integers(-1, 2**40),
)


@given(state=states)
def test_a_state_is_the_same_after_it_was_text(state: SinkState) -> None:
    assert SinkState.from_json(state.to_json()) == state


def test_the_stored_text_keeps_the_names_of_its_fields_for_other_releases() -> None:
    text = (
        '{"format":1,"run":"b","gone":["a"],"batch":7,"tasks":1,"shares":[{"task":0,"transaction":["id",5,1],'
        '"extent":{"rows":2,"bytes":3,"checksum":4},"is_settled":true,"is_lost":false}],"given_up":8}'
    )
    share = Share(
        task=0,
        transaction=TaskTransaction("id", 5, 1),
        extent=Extent(rows=2, bytes=3, checksum=4),
        is_resolved=True,
    )
    state = SinkState(run="b", gone=("a",), batch=7, tasks=1, shares=(share,), failed_batch=8)
    assert state.to_json() == text
    assert SinkState.from_json(text) == state


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
