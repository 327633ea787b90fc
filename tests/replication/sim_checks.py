"""What must never be seen, looked at after every step.

A record is exposed when some replica's high watermark passes it: from then on consumers may have read it, and its
producer may have been told that it is safe. So the record at that offset is the same for ever, on everyone who may
come to lead.
"""

from replication.sim_log import Entry, MemoryLog
from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId, LeaderEpoch, Offset


class Violation(AssertionError):
    """A promise was broken."""


class Checker:
    def __init__(self) -> None:
        self._exposed: dict[int, Entry] = {}
        self.exposed_end = 0
        self._acknowledged: dict[int, int] = {}
        self._last_acknowledged = -1
        # Up to here everyone was told that it is deleted.
        self._deleted_end = 0
        self._leaders: dict[int, tuple[BrokerId, int]] = {}
        self._last_epoch = -1

    @property
    def acknowledged(self) -> int:
        return len(self._acknowledged)

    @property
    def last_acknowledged(self) -> int:
        return self._last_acknowledged

    def on_high_watermark(self, who: BrokerId, log: MemoryLog, before: int, now: int) -> None:
        if not log.log_start <= now <= log.log_end:
            raise Violation(f"{who}: high watermark {now}, log {log.log_start} to {log.log_end}")
        for offset in range(max(before, log.log_start), now):
            entry = log.entry(offset)
            assert entry is not None
            known = self._exposed.setdefault(offset, entry)
            if known != entry:
                raise Violation(f"{who}: {entry} exposed at {offset}, before it was {known}")
            acknowledged = self._acknowledged.get(offset)
            if acknowledged is not None and acknowledged != entry[1]:
                raise Violation(f"{who}: {entry} at {offset}, acknowledged was {acknowledged}")
        self.exposed_end = max(self.exposed_end, now)

    def on_acknowledged(
        self, who: BrokerId, offset: int, value: int, *, acknowledged_before: int
    ) -> None:
        if offset <= acknowledged_before:
            raise Violation(f"{who}: {value} at {offset}, sent after {acknowledged_before}")
        if self._acknowledged.setdefault(offset, value) != value:
            raise Violation(f"{who}: two values acknowledged at {offset}")
        known = self._exposed.get(offset)
        if known is not None and known[1] != value:
            raise Violation(f"{who}: {value} acknowledged at {offset}, exposed is {known}")
        self._last_acknowledged = max(self._last_acknowledged, offset)

    def on_leader(
        self, who: BrokerId, incarnation: int, epoch: LeaderEpoch, log: MemoryLog
    ) -> None:
        if self._leaders.setdefault(epoch, (who, incarnation)) != (who, incarnation):
            raise Violation(
                f"epoch {epoch} has the leaders {self._leaders[epoch]} and {(who, incarnation)}"
            )
        if epoch > self._last_epoch:
            self._last_epoch = epoch
            self.check_complete(who, log, log.log_end, "was elected")
            if log.log_start < self._deleted_end:
                raise Violation(
                    f"{who} was elected with a start of {log.log_start}, {self._deleted_end} is deleted"
                )

    def on_deleted(self, low_watermark: Offset) -> None:
        self._deleted_end = max(self._deleted_end, low_watermark)

    def check_complete(self, who: BrokerId, log: MemoryLog, end: Offset, why: str) -> None:
        """It may lead, or does: it has all that was ever exposed or acknowledged."""
        if max(self.exposed_end, self._last_acknowledged + 1) > end:
            raise Violation(
                f"{who} {why} with an end of {end}, exposed is {self.exposed_end},"
                f" acknowledged {self._last_acknowledged + 1}"
            )
        last = self.exposed_end - 1
        if last >= log.log_start and log.entry(last) != self._exposed[last]:
            raise Violation(
                f"{who} {why} with {log.entry(last)} at {last}, exposed was {self._exposed[last]}"
            )

    def check_all_of(self, who: BrokerId, log: MemoryLog) -> None:
        """At the end everything is looked at."""
        self.check_complete(who, log, log.log_end, "is healed")
        for offset in range(log.log_start, self.exposed_end):
            if log.entry(offset) != self._exposed.get(offset):
                raise Violation(f"{who}: {log.entry(offset)} at {offset}")
        for offset, value in self._acknowledged.items():
            entry = log.entry(offset)
            if offset >= log.log_start and (entry is None or entry[1] != value):
                raise Violation(f"{who}: {entry} at {offset}, acknowledged was {value}")
        for offset, (epoch, _) in enumerate(log.entries, log.log_start):
            if log.epochs.epoch_at(Offset(offset)) != epoch:
                raise Violation(f"{who}: epoch {epoch} at {offset}, known are {log.epochs.entries}")

    def check_maximal(
        self, who: BrokerId, maximal: frozenset[BrokerId], image: PartitionImage
    ) -> None:
        if not maximal.issuperset(image.isr):
            raise Violation(f"{who} counts {sorted(maximal)}, the ISR is {image.isr}")
