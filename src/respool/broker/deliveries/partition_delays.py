"""One partition's delayed records and the log they come from. One job at a time, off the event loop.

It reads and decides; only the event loop appends (`delivery_worker.py`).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from respool.broker.deliveries.delivery_batches import build_batches
from respool.broker.deliveries.log_facts import CHUNK_BYTES, LogFacts
from respool.log.partition_log import PartitionLog
from respool.model.ids import Offset
from respool.model.topic_config import TopicConfig
from respool.ports.disk import Disk
from respool.records.batch import RecordBatch
from respool.records.build import NewRecord
from respool.timing.delay_records import Fact, WaitingRecord
from respool.timing.due_header import DelayRules
from respool.timing.pending import DueRecord, Pending

FOLDER = "pending"
# Maximum number of wheel entries that one job moves, and of records that it prepares.
STEP = 20_000
DELIVERED_TOGETHER = 1_000
DELIVERED_BYTES_MAX = 4 * 1024 * 1024
# Bytes of the log that one job feeds.
FED_BYTES_MAX = 8 * 1024 * 1024
# Maximum number of copies above the last stable offset, while a transaction is open below them.
IN_FLIGHT_MAX = 100_000
# The interval between checks while delivery is blocked.
NO_ROOM_MS = 100


class DueBatch(NamedTuple):
    """A batch of copies, and the records that it delivers."""

    batch: RecordBatch
    due: list[DueRecord]


@dataclass(slots=True, kw_only=True)
class Job:
    """The result of a job.

    Attributes:
        is_fed: all stable records were fed.
        is_busy: there is more to do at once.
        wake_at_ms: when the next record is due; None if no record waits.
        batches: the due records, to be appended in this order.
    """

    is_fed: bool = True
    is_busy: bool = False
    wake_at_ms: int | None = None
    batches: list[DueBatch] = field(default_factory=list)


def rules_of(config: TopicConfig) -> DelayRules:
    return DelayRules(
        levels_ms=config.respool_delay_levels.delays_ms, max_ms=config.respool_delay_max_ms
    )


class PartitionDelays:
    def __init__(
        self, disk: Disk, folder: str, log: PartitionLog, *, now_ms: int, entries_max: int
    ) -> None:
        """`folder` is the partition's."""
        self.log = log
        self._facts = LogFacts(log, rules_of(log.config))
        self.pending = Pending.open(
            disk,
            f"{folder}/{FOLDER}",
            now_ms=now_ms,
            log_start=log.local_start,
            log_end=log.log_end,
            entries_max=entries_max,
        )
        self._checkpointed_to = self.pending.scanned_to

    @property
    def read_bytes(self) -> int:
        """Bytes of the log that were read for what they say."""
        return self._facts.read_bytes

    @property
    def fits_log(self) -> bool:
        """False if the log was truncated below what was fed: it must be read again."""
        pending, log = self.pending, self.log
        if pending.scanned_to > log.log_end:
            return False
        last = Offset(pending.scanned_to - 1)
        return last < log.local_start or log.epoch_at(last) == pending.scanned_epoch

    def restart(self) -> None:
        """Forget everything, and read the log again."""
        self.pending.delete()

    @property
    def is_changed(self) -> bool:
        """True if the state has changed since the last checkpoint."""
        return self.pending.scanned_to != self._checkpointed_to and self.log.has_folder

    def follow(self, stable_end: Offset, *, now_ms: int) -> Job:
        """A follower's job: feed, and drop the cancelled records that the leader has skipped."""
        if not self._feed(stable_end):
            return Job(is_fed=False, is_busy=True)
        pending = self.pending
        advanced = pending.advance(
            now_ms, due_ms=pending.sweep_at_ms, deliver_max=DELIVERED_TOGETHER, step=STEP
        )
        facts = self._facts.facts_at((one.offset for one in advanced.deliver), bytes_max=2**62)
        for due in advanced.deliver:
            self._still_waiting(due, facts[due.offset])
        return Job(is_busy=advanced.is_busy)

    def lead(self, stable_end: Offset, *, now_ms: int, is_new: bool, deliver_max: int) -> Job:
        """A leader's job: feed, and prepare what is due.

        `is_new`: the first one since it leads, when everything that earlier leaders wrote is committed.
        """
        if not self._feed(stable_end):
            return Job(is_fed=False, is_busy=True)
        pending = self.pending
        if is_new:
            self._read_above()
        room = min(deliver_max, DELIVERED_TOGETHER, IN_FLIGHT_MAX - pending.in_flight)
        advanced = pending.advance(now_ms, deliver_max=max(0, room), step=STEP)
        wake_at_ms = advanced.wake_at_ms
        if room <= 0 and wake_at_ms is not None:
            wake_at_ms = max(wake_at_ms, now_ms + NO_ROOM_MS)
        due, copies, is_full = self._copies(advanced.deliver, now_ms)
        job = Job(is_busy=advanced.is_busy or is_full, wake_at_ms=wake_at_ms)
        at = 0
        for batch, count in build_batches(copies, self.log.config, now_ms=now_ms):
            job.batches.append(DueBatch(batch, due[at : at + count]))
            at += count
        return job

    def end_leading(self) -> None:
        self.pending.on_role_ended()

    def put_back(self, batches: list[DueBatch]) -> None:
        """These were not appended."""
        for one in batches:
            for due in one.due:
                self.pending.put_back(due.offset)

    # -- retention ---------------------------------------------------------------------------------------------------

    def carry(
        self, begin: Offset, new_start: Offset, *, now_ms: int
    ) -> tuple[list[RecordBatch], Offset] | None:
        """Prepare what must be appended again of about a chunk of log from `begin` on; return where the chunk ends.

        None: something must be delivered first.
        """
        begin = max(begin, self.log.local_start)
        if not self.pending.can_carry(begin, new_start):
            return None
        found = self._facts.read(begin, new_start)
        records = []
        for fact in found.facts:
            carried = self.pending.carry(
                fact, self._facts.id_at, now_ms=now_ms, new_start=new_start
            )
            if carried is not None:
                records.append(carried)
        built = build_batches(records, self.log.config, now_ms=now_ms)
        # Nothing is left below `new_start`, if the chunk brought nothing: its last batches end beyond it.
        end = found.end if found.end > begin else new_start
        return [batch for batch, _ in built], min(end, new_start)

    def count_waiting(self, end: Offset, *, now_ms: int) -> int:
        """How many records below `end` wait."""
        begin, count = self.log.local_start, 0
        while begin < end:
            # The last batch may end after `end`.
            found = self._facts.read(begin, self.pending.scanned_to)
            for fact in found.facts:
                count += (
                    isinstance(fact, WaitingRecord)
                    and fact.offset < end
                    and fact.due_after(now_ms) is not None
                    and not self.pending.is_superseded(fact, self._facts.id_at)
                )
            if found.end <= begin:
                break
            begin = found.end
        return count

    def write_checkpoint(self) -> None:
        self.pending.write_checkpoint()
        self._checkpointed_to = self.pending.scanned_to

    # ----------------------------------------------------------------------------------------------------------------

    def _feed(self, stable_end: Offset) -> bool:
        """Feed what is stable. Return False if there is more."""
        pending, log = self.pending, self.log
        fed = 0
        while fed < FED_BYTES_MAX:
            pending.skip_to(log.local_start)
            begin = pending.scanned_to
            # Without an end: a batch that ends beyond it comes with the next one.
            found = self._facts.read(begin, stable_end) if begin < stable_end else None
            if found is None or found.end <= begin:
                pending.on_log_start(min(log.local_start, begin))
                return True
            pending.on_stable(found.facts, end=found.end)
            pending.scanned_epoch = found.last_epoch
            fed += CHUNK_BYTES
        return False

    def _read_above(self) -> None:
        """Read the copies of earlier leaders above the last stable offset."""
        facts = []
        begin, end = self.pending.scanned_to, self.log.log_end
        while begin < end:
            found = self._facts.read(begin, end, is_stable=False)
            facts += found.facts
            if found.end <= begin:
                break
            begin = found.end
        self.pending.on_leading(facts)

    def _copies(
        self, due: list[DueRecord], now_ms: int
    ) -> tuple[list[DueRecord], list[NewRecord], bool]:
        """The copies of due records that were not cancelled; True if there was no room for all."""
        delivered: list[DueRecord] = []
        copies: list[NewRecord] = []
        facts = self._facts.facts_at((one.offset for one in due), bytes_max=DELIVERED_BYTES_MAX)
        for number, one in enumerate(due):
            if one.offset not in facts and number == 0:
                facts[one.offset] = self._facts.fact_at(one.offset)
            if one.offset not in facts:
                # Records are read by offset and delivered by time: the first that was not read, and all after it, come
                # next.
                for later in due[number:]:
                    self.pending.put_back(later.offset)
                return delivered, copies, True
            waiting = self._still_waiting(one, facts[one.offset])
            if waiting is not None:
                delivered.append(one)
                copies.append(self.pending.delivery(waiting, one.due_ms, now_ms=now_ms))
        return delivered, copies, len(due) == DELIVERED_TOGETHER

    def _still_waiting(self, due: DueRecord, fact: Fact | None) -> WaitingRecord | None:
        if isinstance(fact, WaitingRecord) and not self.pending.is_superseded(
            fact, self._facts.id_at
        ):
            return fact
        self.pending.on_dropped(due.offset)
        return None
