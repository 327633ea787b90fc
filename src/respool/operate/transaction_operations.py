"""List, describe and abort transactions: by fencing the producer or, without a coordinator, by an abort marker.

A transaction is known to its coordinator (by transactional id) and to each partition it has written to (by producer
id). They agree, except for a moment at its beginning and end, or after a failure.

A transaction hangs if nothing will ever end it. In a partition it is open from its first record to its marker.
During that time its coordinator lists the partition: it adds the partition before the first record, and removes it
after the marker. So:

```
  1. partitions: which transactions are open?    2. coordinators: whose are they?    3. partitions: still open?
```
A transaction that is open at 1 and still at 3, and was on no list at 2, hangs. One that is just ending is recognised
without waiting.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Protocol

from respool.client.kafka import transactions as client_transactions
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.metadata import Place
from respool.client.kafka.producer_ids import fence_producer
from respool.client.kafka.transactions import (
    OpenTransaction,
    TransactionDescription,
    TransactionListing,
)
from respool.model.operator_errors import NotFound
from respool.operate.errors import client_errors_translated

# Coordinators check timeouts periodically, by their own clocks.
GRACE_MS = 60_000


class TransactionOperations:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # Partitions that did not report their open transactions, and why.
        self.unasked: dict[Place, str] = {}

    def find(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        open_longer_than_ms: int | None = None,
    ) -> list[TransactionListing]:
        """The transactions that meet all conditions, by transactional id."""
        with client_errors_translated():
            return client_transactions.list_transactions(
                self._cluster,
                states=states,
                producer_ids=producer_ids,
                open_longer_than_ms=open_longer_than_ms,
            )

    def describe(self, names: Sequence[str]) -> dict[str, TransactionDescription]:
        """The existing transactions among these."""
        with client_errors_translated():
            return client_transactions.describe_transactions(self._cluster, names)

    def get(self, name: str) -> TransactionDescription:
        """
        Raises:
            NotFound: no producer had this transactional id; the hint names a similarly spelled one.
        """
        found = self.describe([name]).get(name)
        if found is not None:
            return found
        alike = get_close_matches(name, [one.transactional_id for one in self.find()], n=1)
        raise NotFound(
            f"there is no transactional id {name!r} at {self._cluster.bootstrap}",
            hint=f"did you mean {alike[0]}?" if alike else "see: respool transaction list",
        )

    def fence(self, transaction: TransactionDescription) -> int:
        """End the producer's open transaction by fencing it; return its new producer epoch."""
        with client_errors_translated():
            return fence_producer(
                self._cluster, transaction.transactional_id, timeout_ms=transaction.timeout_ms
            ).epoch

    def open_in(self, places: Iterable[Place]) -> list[OpenTransaction]:
        """The open transactions in these partitions, according to the leaders; `unasked` lists the other partitions."""
        with client_errors_translated():
            found, unasked = client_transactions.open_transactions(self._cluster, places)
        self.unasked |= unasked
        return found

    def abort_in_partition(self, transaction: OpenTransaction) -> None:
        """Write an abort marker to one partition, whatever the coordinator's state."""
        with client_errors_translated():
            client_transactions.write_abort_marker(self._cluster, transaction)


# -- hanging ---------------------------------------------------------------------------------------------------------


class HangingReason(StrEnum):
    # No coordinator knows the producer.
    UNKNOWN = "no coordinator knows its producer"
    # The coordinator knows the producer, but not that it has written to this partition.
    NOT_LISTED = "its coordinator does not know of this partition"
    # The coordinator should have ended it long ago.
    OVERDUE = "open for longer than its timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransaction:
    write: OpenTransaction
    why: HangingReason
    # None: no coordinator knows the transaction.
    transaction: TransactionDescription | None = None


class TransactionSource(Protocol):
    """The requests that `find_hanging` needs; `TransactionOperations` implements it."""

    def open_in(self, places: Iterable[Place]) -> list[OpenTransaction]: ...

    def find(self, *, producer_ids: Collection[int]) -> list[TransactionListing]: ...

    def describe(self, names: Sequence[str]) -> dict[str, TransactionDescription]: ...


def find_hanging(
    source: TransactionSource, places: Iterable[Place], *, now_ms: int
) -> list[HangingTransaction]:
    """The hanging transactions of these partitions."""
    seen = source.open_in(places)
    if not seen:
        return []
    known = owners_of(source, seen)
    suspects = [one for write in seen if (one := judge(write, known, now_ms=now_ms))]
    still_open = {
        _identity(write) for write in source.open_in({one.write.place for one in suspects})
    }
    return [one for one in suspects if _identity(one.write) in still_open]


def owners_of(
    source: TransactionSource, writes: Iterable[OpenTransaction]
) -> Mapping[int, TransactionDescription]:
    """The coordinators' descriptions of the transactions that made these writes, by producer id."""
    listed = source.find(producer_ids={write.producer_id for write in writes})
    described = source.describe([info.transactional_id for info in listed])
    return {one.producer_id: one for one in described.values()}


def judge(
    write: OpenTransaction, known: Mapping[int, TransactionDescription], *, now_ms: int
) -> HangingTransaction | None:
    """Why the transaction hangs, or None; it may also have ended just now."""
    transaction = known.get(write.producer_id)
    if transaction is None:
        return HangingTransaction(write=write, why=HangingReason.UNKNOWN)
    if write.place not in transaction.partitions:
        return HangingTransaction(
            write=write, why=HangingReason.NOT_LISTED, transaction=transaction
        )
    started_ms = transaction.started_ms
    if started_ms is not None and now_ms > started_ms + transaction.timeout_ms + GRACE_MS:
        return HangingTransaction(write=write, why=HangingReason.OVERDUE, transaction=transaction)
    return None


def _identity(write: OpenTransaction) -> tuple[Place, int, int]:
    return write.place, write.producer_id, write.start_offset
