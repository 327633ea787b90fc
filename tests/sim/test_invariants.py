"""What a restart must bring back is compared, and what it may change is not."""

from respool.log.producer_state import ProducerState
from respool.model.ids import TopicPartition
from respool.sim.history import History
from respool.sim.invariants import Inside, Replica, compare

RIDES: Replica = ("broker-1", TopicPartition("rides", 0))


def inside(log_end: int, *, next_sequence: int = 0) -> dict[Replica, Inside]:
    state = ProducerState(producer_id=7, epoch=1, next_sequence=next_sequence, active_at_ms=0)
    return {RIDES: Inside(log_end, {7: state})}


def rules(before: dict[Replica, Inside], after: dict[Replica, Inside]) -> list[str]:
    history = History()
    compare(before, after, history)
    return [one.rule for one in history.violations]


def test_the_same_is_the_same_and_an_end_may_be_written_again() -> None:
    assert rules(inside(5), inside(5)) == []
    assert rules(inside(5), inside(6)) == []


def test_a_log_that_became_shorter_is_found() -> None:
    assert rules(inside(5), inside(4)) == ["C16"]


def test_a_producer_that_is_known_otherwise_is_found() -> None:
    assert rules(inside(5), inside(5, next_sequence=3)) == ["C11"]
    assert rules(inside(5), {RIDES: Inside(5, {})}) == ["C11"]
