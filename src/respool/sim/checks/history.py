"""What clients did and read in a simulated run, and the violations found so far.

Each operation is recorded when it begins and when its outcome is known: "ok", "fail" (it certainly has no effect) or
"info" (unknown). Every value that is sent is unique. Rule names (A1, B3, ...) are those of the reliability notes:

    A1 two values at one offset          A2 an acknowledged value is lost       A3 ... is never read
    A4 an idempotent value twice         A5 bytes nobody sent                   A6 a failed transaction is read
    A7 read before its commit            A8 a transaction in part               A9 a value in another transaction
    A11, A12 reading skips or goes back  A13, A14 sends out of order            A15 a hole between offsets
    A16 an end goes down                 A17 read beyond the end                A18 an epoch goes down
    A21 records vanish before their time A22 a correct producer stopped by INVALID_TXN_STATE
    B1 one partition, two owners         B2 a stale member commits              B3 a committed offset is lost
    B5 skipped by a group                B9 offsets before their commit
    V1 a view shows other records, or skips one          V2 a view's reader passes its end
    V3 a view's group keeps a lag though its parent is silent
    D1 to D5 of delayed records: see `delay_history.py`  R1 a message is neither handled nor buried, or twice
    P1 to P4 of topics that are shrunk: see `layout_history.py`
    C, D internal invariants (invariants.py), and that all clients finish after the faults have ended
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from respool.model.ids import TopicPartition
from respool.records.build import NewRecord

VIOLATIONS_MAX = 50
Outcome = Literal["ok", "fail", "info"]


@dataclass(slots=True, eq=False)
class Sent:
    """One record that a producer sent, maybe several times."""

    value: bytes
    record: NewRecord
    name: TopicPartition
    producer: str
    # Sent with acks=all and idempotence.
    is_idempotent: bool
    # Whether an acknowledgement promises that the record survives every fault of this run.
    is_durable: bool
    transaction: "SentTransaction | None" = None
    # The highest acknowledged offset of the partition when this record was sent.
    floor: int = -1
    outcome: Outcome = "info"
    offset: int = -1


@dataclass(slots=True, eq=False)
class SentTransaction:
    number: int
    producer: str
    writes: list[Sent] = field(default_factory=list)
    # The offset that it committed for its group.
    group_offset: int | None = None
    is_commit_invoked: bool = False
    # ok: committed. fail: it must never be read. info: either, but as a whole.
    outcome: Outcome = "fail"


@dataclass(slots=True)
class GroupView:
    """State shared by all members of a group."""

    # The newest generation with an assignment, and the assignment of each generation by member.
    generation: int = -1
    shares: dict[int, dict[str, set[TopicPartition]]] = field(default_factory=dict)
    # The highest acknowledged committed offset.
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    # Offsets of records that were delivered to a member.
    delivered: dict[TopicPartition, set[int]] = field(default_factory=dict)


class ViewRead(NamedTuple):
    """A reader of a view moved from one offset to another, and was shown these."""

    view: str
    parent: TopicPartition
    # Whether the view shows a record.
    shows: Callable[[NewRecord], bool]
    is_committed: bool
    begin: int
    end: int
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


class History:
    def __init__(self) -> None:
        self.sends: dict[bytes, Sent] = {}
        self.transactions: list[SentTransaction] = []
        # The value at each offset, as acknowledged or read.
        self.seen: dict[TopicPartition, dict[int, bytes]] = {}
        # Values read with each isolation level, and their places.
        self.read_committed: dict[bytes, tuple[TopicPartition, int]] = {}
        self.read_uncommitted: dict[bytes, tuple[TopicPartition, int]] = {}
        self.view_reads: list[ViewRead] = []
        self.counts: Counter[str] = Counter()
        self.violations: list[Violation] = []
        # Called with each violation as it is found.
        self.on_violation: Callable[[Violation], None] = lambda _: None
        self._numbers = itertools.count(1)
        self._acknowledged: dict[TopicPartition, int] = {}

    def violate(self, rule: str, text: str) -> None:
        # The first few explain the bug; a broken log violates rules without end.
        if len(self.violations) < VIOLATIONS_MAX:
            violation = Violation(rule, text)
            self.violations.append(violation)
            self.on_violation(violation)

    # -- sending -----------------------------------------------------------------------------------------------------

    def on_send(self, sends: Iterable[Sent]) -> None:
        for sent in sends:
            assert sent.value not in self.sends
            sent.floor = self._acknowledged.get(sent.name, -1)
            self.sends[sent.value] = sent

    def on_sent(self, sends: Iterable[Sent], base_offset: int) -> None:
        """The records were acknowledged; `base_offset` is -1 when the broker recognized them as duplicates."""
        for number, sent in enumerate(sends):
            self.counts["sends acknowledged"] += 1
            sent.outcome = "ok"
            if base_offset < 0:
                continue
            sent.offset = offset = base_offset + number
            if not sent.is_durable:
                continue
            if offset <= sent.floor:
                self.violate(
                    "A14", f"{_text(sent)} at {offset}, {sent.floor} was acknowledged before"
                )
            self._acknowledged[sent.name] = max(offset, self._acknowledged.get(sent.name, -1))
            self._see(sent.name, offset, sent.value, "was acknowledged")

    # -- reading -----------------------------------------------------------------------------------------------------

    def on_read(
        self, name: TopicPartition, offset: int, record: NewRecord, *, is_committed: bool
    ) -> None:
        self.counts["records read"] += 1
        value = record.value or b""
        sent = self.sends.get(value)
        if sent is None:
            self.violate("A5", f"{name}@{offset}: {value[:60]!r} was never sent")
            return
        if sent.record != record or sent.name != name:
            self.violate("A5", f"{name}@{offset}: {record} is not what was sent: {sent.record}")
        self._see(name, offset, value, "was read")
        if is_committed:
            transaction = sent.transaction
            if transaction is not None and not transaction.is_commit_invoked:
                self.violate(
                    "A7", f"{_text(sent)} at {offset} read before its commit was asked for"
                )
        reads = self.read_committed if is_committed else self.read_uncommitted
        before = reads.setdefault(value, (name, offset))
        if before != (name, offset) and sent.is_idempotent:
            self.violate("A4", f"{_text(sent)} is at {before[1]} and at {offset}")

    # -- transactions ------------------------------------------------------------------------------------------------

    def new_transaction(self, producer: str) -> SentTransaction:
        transaction = SentTransaction(number=next(self._numbers), producer=producer)
        self.transactions.append(transaction)
        self.counts["transactions"] += 1
        return transaction

    def _see(self, name: TopicPartition, offset: int, value: bytes, how: str) -> None:
        before = self.seen.setdefault(name, {}).setdefault(offset, value)
        if before != value:
            self.violate("A1", f"{name}@{offset}: {value[:40]!r} {how}, it was {before[:40]!r}")


def _text(sent: Sent) -> str:
    return f"{sent.name} {sent.value[:40]!r}"
