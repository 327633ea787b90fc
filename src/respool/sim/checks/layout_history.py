"""What simulated clients did with a topic that is shrunk and grown: records lie in other partitions than were named.

P1 a group that reads the topic sees what a producer sent to one partition in its order, wherever it lies
P2 a producer's batch in a sealed log
P3 what was in a sealed log is gone: A2 and A3 of these sends
P4 a record where no layout of the topic would put it, or a change that is never completed
"""

from collections.abc import Iterable

from respool.model.ids import TopicPartition
from respool.records.build import NewRecord
from respool.sim.checks.history import History, Sent


class LayoutHistory(History):
    """The sends to the topic, apart from those that the other checks expect in the partitions that were named."""

    def __init__(self, main: History, *, partitions_max: int, forgets: bool) -> None:
        """`forgets`: partitions with records are taken away and begin again, so one offset has several values."""
        super().__init__()
        self._main = main
        self._counts = range(1, partitions_max + 1)
        self.forgets = forgets
        self.counts = main.counts

    def violate(self, rule: str, text: str) -> None:
        self._main.violate(rule, text)

    def on_sent(self, sends: Iterable[Sent], base_offset: int) -> None:
        sent = list(sends)
        self.counts["shrunk topics: records appended to heirs"] += base_offset < 0
        super().on_sent(sent, -1 if self.forgets else base_offset)

    def on_read(
        self, name: TopicPartition, offset: int, record: NewRecord, *, is_committed: bool
    ) -> None:
        self.counts["shrunk topics: records read"] += 1
        value = record.value or b""
        sent = self.sends.get(value)
        if sent is None or sent.record != record:
            self.violate("A5", f"{name}@{offset}: {value[:60]!r} is not what was sent")
            return
        named = sent.name.partition
        if name.partition not in {named, *(named % count for count in self._counts)}:
            self.violate("P4", f"{name}@{offset}: {value[:60]!r} was sent to partition {named}")
        if not self.forgets:
            self._see(name, offset, value, "was read")
        if is_committed:
            transaction = sent.transaction
            if transaction is not None and not transaction.is_commit_invoked:
                self.violate("A7", f"{name}@{offset}: {value[:40]!r} read before its commit")
        reads = self.read_committed if is_committed else self.read_uncommitted
        before = reads.setdefault(value, (name, offset))
        if before != (name, offset) and sent.is_idempotent:
            self.violate("A4", f"{value[:40]!r} is at {before} and at {(name, offset)}")


class ShownOrder:
    """P1: what one group was shown first of each producer's records for each partition."""

    def __init__(self, history: LayoutHistory) -> None:
        self._history = history
        self._seen: set[bytes] = set()
        # The number of the last record, by producer and partition that was named.
        self._last: dict[tuple[str, int], int] = {}

    def on_record(self, record: NewRecord) -> None:
        value = record.value or b""
        sent = self._history.sends.get(value)
        if sent is None or value in self._seen:
            # It may be delivered again, when what was read was not committed.
            return
        self._seen.add(value)
        number = int(value.split(b".")[1])
        key = sent.producer, sent.name.partition
        if number < self._last.get(key, 0):
            self._history.violate(
                "P1", f"{sent.name}: record {value[:40]!r} was shown after number {self._last[key]}"
            )
        self._last[key] = max(number, self._last.get(key, 0))
