"""Checks a history after the faults have ended and the whole log has been read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from respool.model.ids import TopicPartition
from respool.sim.checks.history import GroupView, History, Sent, SentTransaction


@dataclass(slots=True)
class FinalReads:
    """What new readers found after the faults: values by offset, for each isolation level."""

    committed: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    uncommitted: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    # The offset that each producer's group has committed.
    group_offsets: dict[str, int] = field(default_factory=dict)


def check(history: History, final: FinalReads, groups: Mapping[str, GroupView]) -> None:
    """Report broken guarantees to the history."""
    checker = _Checker(history, final)
    for sent in history.sends.values():
        checker.check_sent(sent)
    for transaction in history.transactions:
        checker.check_transaction(transaction)
    checker.check_order()
    checker.check_reads_stay()
    checker.check_views()
    for producer, offset in final.group_offsets.items():
        checker.check_group_offset(producer, offset)
    for group, view in groups.items():
        checker.check_group(group, view)


class _Checker:
    def __init__(self, history: History, final: FinalReads) -> None:
        self._history = history
        self._final = final
        self._committed = _offsets_of(final.committed)
        self._uncommitted = _offsets_of(final.uncommitted)

    def check_sent(self, sent: Sent) -> None:
        """A2, A3: acknowledged records exist at their acknowledged offsets. A4: only once."""
        places = self._uncommitted.get(sent.value, ())
        if sent.is_idempotent and len(places) > 1:
            self._violate("A4", f"{_text(sent)} is at {places}")
        if sent.outcome != "ok" or not sent.is_durable:
            return
        if not places:
            self._violate("A2", f"{_text(sent)}, acknowledged at {sent.offset}, is gone")
        elif sent.offset >= 0 and (sent.name, sent.offset) not in places:
            self._violate("A1", f"{_text(sent)}, acknowledged at {sent.offset}, is at {places}")
        if sent.transaction is None and sent.value not in self._committed:
            self._violate("A3", f"{_text(sent)} is not shown to readers of committed records")

    def check_transaction(self, transaction: SentTransaction) -> None:
        """A6, A8, A9: a transaction is visible as a whole or not at all, according to its outcome."""
        visible = [one for one in transaction.writes if one.value in self._committed]
        acknowledged = [one for one in transaction.writes if one.outcome == "ok"]
        title = f"transaction {transaction.number} of {transaction.producer}"
        if transaction.outcome == "fail" and visible:
            self._violate("A6", f"{title} was not committed, {_text(visible[0])} is visible")
        if transaction.outcome == "ok" and visible != acknowledged:
            missing = [one for one in acknowledged if one not in visible]
            self._violate(
                "A8", f"{title} was committed, {[_text(one) for one in missing]} is not visible"
            )
        if transaction.outcome == "info" and visible and visible != acknowledged:
            self._violate(
                "A8", f"{title}: {len(visible)} of {len(acknowledged)} records are visible"
            )

    def check_order(self) -> None:
        """A13: in each partition, a producer's records for one partition are in the order they were sent."""
        last: dict[tuple[str, TopicPartition, TopicPartition], int] = {}
        for sent in self._history.sends.values():
            if not sent.is_idempotent:
                continue
            for name, offset in self._uncommitted.get(sent.value, ()):
                before = last.get((sent.producer, sent.name, name), -1)
                if offset < before:
                    self._violate("A13", f"{_text(sent)} is at {offset}, after {before}")
                last[sent.producer, sent.name, name] = offset

    def check_reads_stay(self) -> None:
        """A2: every record that any reader got still exists at its offset, and so do all records in between."""
        for reads, final in (
            (self._history.read_committed, self._committed),
            (self._history.read_uncommitted, self._uncommitted),
        ):
            for value, place in reads.items():
                if place not in final.get(value, ()):
                    self._violate(
                        "A2", f"{value[:40]!r} was read at {place[0]}@{place[1]} and is gone"
                    )
        for name, seen in self._final.uncommitted.items():
            for offset, value in seen.items():
                before = self._history.seen.get(name, {}).get(offset, value)
                if before != value:
                    self._violate("A1", f"{name}@{offset}: {value[:40]!r}, it was {before[:40]!r}")

    def check_views(self) -> None:
        """V1: between two positions, a view's reader was shown exactly the records that match, in order."""
        for read in self._history.view_reads:
            final = self._final.committed if read.is_committed else self._final.uncommitted
            expected = tuple(
                offset
                for offset, value in sorted(final.get(read.parent, {}).items())
                if read.begin <= offset < read.end
                and (sent := self._history.sends.get(value)) is not None
                and read.shows(sent.record)
            )
            if read.offsets != expected:
                self._violate(
                    "V1",
                    f"{read.view}-{read.parent.partition} from {read.begin} to {read.end} shows {read.offsets}, "
                    f"it should be {expected}",
                )

    def check_group_offset(self, producer: str, offset: int) -> None:
        """A8 for the offset that a transaction commits: the group has the offset of the last committed transaction."""
        possible = {-1}
        for transaction in self._history.transactions:
            if transaction.producer != producer or transaction.group_offset is None:
                continue
            if not transaction.is_commit_invoked:
                continue
            is_known = transaction.outcome == "ok" or any(
                one.value in self._committed for one in transaction.writes
            )
            if is_known:
                possible = {transaction.group_offset}
            elif not transaction.writes:
                possible.add(transaction.group_offset)
        if offset not in possible:
            self._violate("A8", f"{producer}'s group is at {offset}, it should be at {possible}")

    def check_group(self, group: str, view: GroupView) -> None:
        """B5: every record below a committed offset was delivered to a member."""
        for name, offset in view.committed.items():
            delivered = view.delivered.get(name, set())
            for one in self._final.committed.get(name, {}):
                if one < offset and one not in delivered:
                    self._violate(
                        "B5", f"{group}: {name}@{one} was never delivered, {offset} is committed"
                    )
                    break

    def _violate(self, rule: str, text: str) -> None:
        self._history.violate(rule, text)


def _offsets_of(
    reads: Mapping[TopicPartition, Mapping[int, bytes]],
) -> dict[bytes, Sequence[tuple[TopicPartition, int]]]:
    places: dict[bytes, list[tuple[TopicPartition, int]]] = {}
    for name, seen in reads.items():
        for offset, value in seen.items():
            places.setdefault(value, []).append((name, offset))
    return dict(places)


def _text(sent: Sent) -> str:
    return f"{sent.name} {sent.value[:40]!r}"
