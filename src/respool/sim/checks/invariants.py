"""Invariants of an idle broker, checked from outside its own code.

C3   log start <= last stable offset <= high watermark <= log end
C11  a partition's producer state agrees with its log, however the log is read
D    a transaction that its client has abandoned is ended by its coordinator, even if it wrote no records for which a
     reader would have to wait
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from respool.broker.broker import Broker
from respool.coordination.decision import Ticket
from respool.coordination.transactions.transaction_requests import (
    ListTransactions,
    TransactionState,
)
from respool.log.partition_log import ProducerState
from respool.model.ids import TopicPartition
from respool.sim.checks.history import History

# A partition on a machine: (host, partition).
Replica = tuple[str, TopicPartition]

# The states in which a coordinator still has something to write.
UNDER_WAY = ListTransactions(
    states=frozenset(
        one.kafka_name
        for one in (
            TransactionState.ONGOING,
            TransactionState.PREPARE_COMMIT,
            TransactionState.PREPARE_ABORT,
        )
    )
)


@dataclass(frozen=True, slots=True)
class Inside:
    """The state of one partition that must survive a restart."""

    log_end: int
    producers: dict[int, ProducerState]


def look_inside(
    broker: Broker, names: Iterable[TopicPartition], history: History
) -> dict[TopicPartition, Inside]:
    """Check the order of offsets in all partitions, and copy the state of the named ones."""
    for partition in broker.partitions:
        if not partition.is_online:
            history.violate(
                "D1", f"{partition.name} is offline though all is well: {partition.failure}"
            )
            continue
        marks = (
            partition.log_start,
            partition.last_stable_offset,
            partition.high_watermark,
            partition.log.log_end,
        )
        if list(marks) != sorted(marks):
            history.violate("C3", f"{partition.name}: start, stable, watermark, end are {marks}")
    found = {}
    held = {one.name: one for one in broker.partitions}
    for name in names:
        replica = held.get(name)
        if replica is not None and replica.is_online:
            states = replica.log.active_producers()
            copies = {one.producer_id: replace(one, coordinator_epoch=-1) for one in states}
            found[name] = Inside(replica.log.log_end, copies)
    return found


def transactions_under_way(broker: Broker) -> Iterator[str]:
    """Yield transactions that this broker's coordinators have not ended, or whose markers are not all written."""
    for number, runtime in broker.transactions.runtimes:
        if not runtime.is_active:
            yield f"coordinator {number} is not at work"
            continue
        # The decision is only inspected: nothing is written for it, and no timer is set.
        decision = runtime.machine.decide(UNDER_WAY, ticket=Ticket(-1), now_ms=0, wall_ms=0)
        for answer in decision.answers:
            yield from (str(one) for one in answer.reply.transactions)


def compare(
    before: Mapping[Replica, Inside], after: Mapping[Replica, Inside], history: History
) -> None:
    """Check that a restart changed nothing: neither clients nor coordinators wrote in between.

    A coordinator may forget in a crash that a transaction's markers are written; then a newer coordinator writes them
    again, which changes nothing else.
    """
    for name, one in before.items():
        other = after.get(name)
        if other is None or one == other:
            continue
        if other.log_end < one.log_end:
            history.violate("C16", f"{name} ended at {one.log_end}, now at {other.log_end}")
        for producer in sorted(one.producers.keys() | other.producers.keys()):
            was, now = one.producers.get(producer), other.producers.get(producer)
            if was != now:
                history.violate("C11", f"{name}: it knew {was}, after a restart {now}")
