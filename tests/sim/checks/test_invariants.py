"""What a restart must bring back is compared, and what it may change is not."""

from types import SimpleNamespace
from typing import Any

from respool.coordination.decision import Ticket
from respool.coordination.transactions.transaction_coordinator_shard import (
    TransactionCoordinatorShard,
)
from respool.coordination.transactions.transaction_requests import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    TransactionRequest,
)
from respool.log.producers.producer_state import ProducerState
from respool.model.coordinator_settings import TransactionSettings
from respool.model.ids import ProducerId, TopicPartition
from respool.sim.checks.history import History
from respool.sim.checks.invariants import Inside, Replica, compare, transactions_under_way

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


class Coordinator:
    """The only one of a broker, with one transaction."""

    def __init__(self) -> None:
        self.machine = TransactionCoordinatorShard(TransactionSettings())
        self.runtime = SimpleNamespace(machine=self.machine, is_active=True)
        self.broker: Any = SimpleNamespace(
            transactions=SimpleNamespace(runtimes=[(0, self.runtime)])
        )

    def ask(self, request: TransactionRequest) -> None:
        for record in self.machine.decide(request, ticket=Ticket(1), now_ms=1).records:
            self.machine.replay(record)

    @property
    def is_quiet(self) -> bool:
        return not list(transactions_under_way(self.broker))


def test_a_transaction_is_under_way_from_its_first_partition_until_all_are_marked() -> None:
    coordinator, who, me = Coordinator(), "bank", ProducerId(7)
    coordinator.ask(InitProducerId(transactional_id=who, timeout_ms=100, new_producer_id=me))
    assert coordinator.is_quiet
    names = (TopicPartition("rides", 0),)
    one: dict[str, Any] = {"transactional_id": who, "producer_id": me, "producer_epoch": 0}
    coordinator.ask(AddPartitions(**one, partitions=names))
    assert not coordinator.is_quiet
    coordinator.ask(EndTransaction(**one, is_commit=True))
    assert not coordinator.is_quiet
    coordinator.ask(MarkersWritten(**one, partitions=names))
    assert coordinator.is_quiet


def test_a_coordinator_that_does_not_work_yet_is_waited_for() -> None:
    coordinator = Coordinator()
    coordinator.runtime.is_active = False
    assert not coordinator.is_quiet
