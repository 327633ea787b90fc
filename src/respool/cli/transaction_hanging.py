"""Which open transactions nobody will ever end. Pure; `Lookout` is the order in which to ask.

A transaction is open in a partition from its first record there to its marker. All that time its coordinator has the
partition on its list: it adds it before the first record, and takes it off after the marker. So:

```
  1. partitions: which transactions are open?    2. coordinators: whose are they?    3. partitions: still open?
```
What is open at 1 and still at 3, and was on nobody's list at 2, hangs. No waiting is needed to tell it from one that
was just about to end.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from respool.cli.kafka_transactions import Transaction, TransactionInfo, by_producer
from respool.client.kafka.metadata import Place
from respool.client.kafka.transactions import OpenTransaction

# A coordinator looks at its clock now and then, and ours may be another than its.
GRACE_MS = 60_000


class Why(StrEnum):
    # No coordinator knows the producer.
    UNKNOWN = "no coordinator knows its producer"
    # One does, but not that it has written here.
    NOT_LISTED = "its coordinator does not know of this partition"
    # The coordinator should have ended it long ago.
    OVERDUE = "open for longer than its timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hanging:
    write: OpenTransaction
    why: Why
    # Whose it is; None when nobody knows.
    transaction: Transaction | None = None


class Asked(Protocol):
    """`kafka_transactions.Transactions` is one."""

    def open_writes(self, places: Iterable[Place]) -> list[OpenTransaction]: ...

    def find(self, *, producer_ids: set[int]) -> list[TransactionInfo]: ...

    def describe(self, names: list[str]) -> dict[str, Transaction]: ...


class Lookout:
    def __init__(self, transactions: Asked) -> None:
        self._transactions = transactions

    def find(self, places: Iterable[Place], *, now_ms: int) -> list[Hanging]:
        """Those that hang in these partitions."""
        seen = self._transactions.open_writes(places)
        if not seen:
            return []
        known = self.owners(seen)
        suspects = [one for write in seen if (one := judge(write, known, now_ms=now_ms))]
        still_open = {
            _identity(write)
            for write in self._transactions.open_writes({one.write.place for one in suspects})
        }
        return [one for one in suspects if _identity(one.write) in still_open]

    def owners(self, writes: Iterable[OpenTransaction]) -> Mapping[int, Transaction]:
        """By producer id, what the coordinators know of those who write."""
        listed = self._transactions.find(producer_ids={write.producer_id for write in writes})
        described = self._transactions.describe([info.transactional_id for info in listed])
        return by_producer(described.values())


def judge(
    write: OpenTransaction, known: Mapping[int, Transaction], *, now_ms: int
) -> Hanging | None:
    """What is wrong with it, if anything; it may be that it has just ended."""
    transaction = known.get(write.producer_id)
    if transaction is None:
        return Hanging(write=write, why=Why.UNKNOWN)
    if write.place not in transaction.partitions:
        return Hanging(write=write, why=Why.NOT_LISTED, transaction=transaction)
    started_ms = transaction.started_ms
    if started_ms is not None and now_ms > started_ms + transaction.timeout_ms + GRACE_MS:
        return Hanging(write=write, why=Why.OVERDUE, transaction=transaction)
    return None


def _identity(write: OpenTransaction) -> tuple[Place, int, int]:
    return write.place, write.producer_id, write.start_offset
