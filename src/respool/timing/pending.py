"""The delayed records of a partition: which ones wait, and which are due. Pure: records and the time come from the
caller.

```
 the log below the last stable offset                        the clock
        | on_stable(facts)                                      | advance(now)
        v                                                       v
   +---------------------------- Pending ---------------------------+
   | wheel: by due time      ids: by id      in flight: being delivered |
   +-----------------------------------------------------------------+
        | Advanced.deliver: due records, in order     | wake_at_ms
```
Every replica maintains its own, so a new leader knows which records wait. Only the leader delivers: it appends a copy
of a due record. When the copy is stable, `on_stable` removes the record on every replica. Records in flight when a
leader loses its role wait again. Everything derives from the log; a checkpoint only shortens the way there.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from respool.model.ids import Offset
from respool.ports.disk import Disk
from respool.records.build import NewRecord
from respool.timing.delay_records import (
    Cancel,
    Delivered,
    Fact,
    WaitingRecord,
    carried_cancel,
    carried_copy,
    copy_of,
)
from respool.timing.entries import due_of, first_offset_of, offset_of, pack_entry
from respool.timing.id_index import IdAt, IdIndex, hash_id
from respool.timing.wheel import ENTRIES_MAX, Wheel
from respool.timing.wheel_files import WheelFiles

VERSION = 2
ID_ENTRIES_MIN = 64
# Records that come late are delivered late, and copies take a while to come.
SWEEP_MS = 60_000
# The id that the record at an offset has; None if it has none, or is no longer there.
ReadId = Callable[[Offset], bytes | None]


class DueRecord(NamedTuple):
    """A record that is due, by its place in the log."""

    due_ms: int
    offset: Offset
    first: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Advanced:
    """The next steps.

    Attributes:
        deliver: the due records, in the order of delivery. They are in flight from now on.
        wake_at_ms: when to advance again; None if nothing waits.
        is_busy: there is more to do at once.
    """

    deliver: list[DueRecord]
    wake_at_ms: int | None
    is_busy: bool


class Pending:
    def __init__(self, disk: Disk, folder: str, *, now_ms: int, entries_max: int) -> None:
        """Use `open`."""
        self._files = WheelFiles(disk, folder)
        self._wheel = Wheel(self._files, now_ms=now_ms, entries_max=entries_max)
        self._ids = IdIndex(self._files)
        # Popped from the wheel, by offset: delivered, but the copy is not stable yet.
        self._in_flight: dict[Offset, bytes] = {}
        # Number of copies of a record above `scanned_to`, written by earlier leaders.
        self._expected: Counter[Offset] = Counter()
        # Everything below it has been fed.
        self.scanned_to = Offset(0)
        # The leader epoch of the last batch below it; if it differs, the log was truncated below.
        self.scanned_epoch = -1
        self._log_start = Offset(0)
        # Records before it were never fed.
        self._fed_from = Offset(0)
        # Records below it were deleted, or carried.
        self._gone_below = Offset(0)
        # Records below it that still waited were carried, and that has been fed.
        self._carried_below = Offset(0)
        # Original offsets of carried records, until the carried ones are fed.
        self._carrying: set[Offset] = set()
        # Records below it were carried by this leader or no longer wait.
        self._carry_from = Offset(0)
        # Bytes of carried records below an offset, and above the one before.
        self._carried: deque[tuple[Offset, int]] = deque()
        # The latest due time of a delivered record.
        self._delivered_until_ms = 0
        # The same, including copies that are not stable yet.
        self._taken_until_ms = 0

    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: str,
        *,
        now_ms: int,
        log_start: Offset,
        log_end: Offset,
        entries_max: int = ENTRIES_MAX,
    ) -> "Pending":
        """Continue from the last checkpoint, if there is one that fits the log; else from the log's start."""
        pending = cls(disk, folder, now_ms=now_ms, entries_max=entries_max)
        if not pending._restore(log_end):
            pending = cls(disk, folder, now_ms=now_ms, entries_max=entries_max)
            pending._files.delete_all()
            pending._fed_from = pending.scanned_to = log_start
        pending.skip_to(log_start)
        return pending

    def __len__(self) -> int:
        """Number of records that wait. Cancelled ones count until their due time."""
        return len(self._wheel) + len(self._in_flight)

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def carrying(self) -> int:
        """Number of carried records that are not stable yet."""
        return len(self._carrying)

    @property
    def carried_bytes(self) -> int:
        """Approximate size of carried records in the log, which do not count as its size."""
        return sum(size for _, size in self._carried)

    @property
    def entries_in_memory(self) -> int:
        return self._wheel.in_memory + len(self._in_flight)

    def limit_memory(self, entries_max: int) -> None:
        self._wheel.entries_max = entries_max
        self._ids.memory_max = max(ID_ENTRIES_MIN, entries_max // 8)

    def next_due_ms(self) -> int | None:
        """When the next record is due, or no later."""
        return self._wheel.next_due_ms()

    @property
    def sweep_at_ms(self) -> int:
        """Records due before it were delivered by the leader, or cancelled."""
        return self._delivered_until_ms - SWEEP_MS

    # -- events ------------------------------------------------------------------------------------------------------

    def on_stable(self, facts: Iterable[Fact], *, end: Offset) -> None:
        """Apply the facts of the committed records from `scanned_to` to `end`; records of aborted transactions have
        none.

        `skip_to` first: records deleted before they were fed must not be awaited. Then `on_log_start`: in the other
        order, carried records would count twice until their due time.
        """
        assert end >= self.scanned_to, f"fed to {self.scanned_to}, and then to {end}"
        carried_bytes = 0
        for fact in facts:
            match fact:
                case WaitingRecord():
                    self.on_waiting(fact)
                    if fact.replaces is not None:
                        carried_bytes += fact.size
                case Delivered():
                    self.on_delivered(fact)
                case Cancel():
                    self.on_cancelled(fact)
        if carried_bytes:
            self._carried.append((end, carried_bytes))
        self.scanned_to = end

    def on_waiting(self, fact: WaitingRecord) -> None:
        if fact.replaces is not None:
            self._on_carried(fact.replaces)
        self._wheel.add(pack_entry(fact.due_ms, fact.offset, fact.first))
        if fact.id is not None:
            self._ids.add(hash_id(fact.id), IdAt(fact.first, fact.offset))

    def on_cancelled(self, fact: Cancel) -> None:
        # The cancelled record is looked up when it is due.
        self._ids.add(hash_id(fact.id), IdAt(fact.first, fact.offset))

    def on_delivered(self, fact: Delivered) -> None:
        position = fact.position
        if self._expected[position] > 1:
            self._expected[position] -= 1
        else:
            del self._expected[position]
        self._delivered_until_ms = max(self._delivered_until_ms, fact.due_ms)
        is_gone = position < max(self._fed_from, self._gone_below)
        if self._in_flight.pop(position, None) is None and not is_gone:
            self._wheel.discard(position)
        if fact.next_ms is not None and not is_gone:
            self._wheel.add(pack_entry(fact.next_ms, fact.position, fact.first))

    def skip_to(self, log_start: Offset) -> None:
        """If records were deleted before they were fed, all known ones were deleted, too."""
        if log_start <= self.scanned_to:
            return
        self._in_flight.clear()
        self._wheel.drop_below(log_start, replaced=len(self._wheel))
        self._fed_from = self.scanned_to = log_start
        self.on_log_start(log_start)

    def on_log_start(self, log_start: Offset) -> None:
        """Records below the log start were deleted, and no longer wait."""
        assert log_start <= self.scanned_to, (
            f"fed to {self.scanned_to}, the log starts at {log_start}"
        )
        self._log_start = log_start
        self._wheel.drop_below(log_start)
        self._gone_below = max(self._gone_below, log_start)
        while self._carried and self._carried[0][0] <= log_start:
            self._carried.popleft()

    def _on_carried(self, replaced: Offset) -> None:
        self._carrying.discard(replaced)
        # The log start may have come first.
        is_counted = replaced >= max(self._fed_from, self._carried_below)
        self._carried_below = max(self._carried_below, Offset(replaced + 1))
        if self._in_flight.pop(replaced, None) is not None:
            is_counted = False
        self._gone_below = max(self._gone_below, Offset(replaced + 1))
        self._wheel.drop_below(self._gone_below, replaced=int(is_counted))

    # -- the leader's --------------------------------------------------------------------------------------------------

    def advance(
        self, now_ms: int, *, deliver_max: int, step: int, due_ms: int | None = None
    ) -> Advanced:
        """Move what comes near, and take up to `deliver_max` records that are due; with `due_ms`, up to that time.

        A follower takes up to `sweep_at_ms` what its leader left over, and drops what was cancelled.
        """
        due_ms = now_ms if due_ms is None else due_ms
        is_busy = self._wheel.advance(now_ms, step=step)
        is_busy |= self._ids.merge_some(step, log_start=self._log_start)
        deliver: list[DueRecord] = []
        while len(deliver) < deliver_max:
            entries = self._wheel.pop_due(due_ms, deliver_max - len(deliver))
            if not entries:
                break
            for entry in entries:
                offset = offset_of(entry)
                self._in_flight[offset] = entry
                self._taken_until_ms = max(self._taken_until_ms, due_of(entry))
                # A carried record is delivered from its new offset, once that was fed: replicas could not match a copy
                # of the old offset with the new one.
                if offset not in self._expected and offset not in self._carrying:
                    deliver.append(DueRecord(due_of(entry), offset, first_offset_of(entry)))
        return Advanced(deliver=deliver, wake_at_ms=self._wheel.wake_at_ms(), is_busy=is_busy)

    def on_dropped(self, offset: Offset) -> None:
        """The record in flight is not delivered: it was cancelled or replaced, or cannot be read."""
        self._in_flight.pop(offset, None)

    def put_back(self, offset: Offset) -> None:
        """The record in flight was not delivered: it is due again."""
        entry = self._in_flight.pop(offset, None)
        if entry is not None:
            self._wheel.add(entry)

    def on_role_ended(self) -> None:
        """This replica no longer delivers: records in flight wait again, until another leader's copies arrive."""
        entries = tuple(self._in_flight.values())
        self._in_flight.clear()
        self._expected.clear()
        self._carrying.clear()
        for entry in entries:
            self._wheel.add(entry)

    def on_leading(self, facts: Iterable[Fact]) -> None:
        """Begin to lead, with the records of earlier leaders from `scanned_to` up to this one's first offset."""
        self._carry_from = self._gone_below
        self._expected.clear()
        self._carrying.clear()
        for fact in facts:
            match fact:
                case Delivered():
                    self._expected[fact.position] += 1
                    self._taken_until_ms = max(self._taken_until_ms, fact.due_ms)
                case WaitingRecord(replaces=int(replaced)):
                    self._carry_from = max(self._carry_from, Offset(replaced + 1))
                    self._carrying.add(Offset(replaced))

    def delivery(self, waiting: WaitingRecord, due_ms: int, *, now_ms: int) -> NewRecord:
        """The copy to append. A schedule that missed times delivers the latest of them, once."""
        repetition = waiting.repetition
        if repetition is None:
            return copy_of(waiting, due_ms=due_ms, next_ms=None)
        due_ms = repetition.latest(from_ms=due_ms, to_ms=now_ms)
        self._taken_until_ms = max(self._taken_until_ms, due_ms)
        return copy_of(waiting, due_ms=due_ms, next_ms=repetition.next_after(due_ms))

    def is_superseded(self, waiting: WaitingRecord, read_id: ReadId) -> bool:
        """True if a later record cancels this one, or replaces it: ids are compared as bytes."""
        if waiting.id is None:
            return False
        newer = self._ids.newer(hash_id(waiting.id), waiting.first)
        return any(read_id(one.offset) == waiting.id for one in newer)

    # -- retention ---------------------------------------------------------------------------------------------------

    def can_carry(self, begin: Offset, new_start: Offset) -> bool:
        """True if a record's time tells whether it waits, without looking for its copy; and no copy may be lost.

        Records are delivered in the order of time, so all that were due before the earliest waiting one were delivered.
        But before records are deleted, their copies must be stable: a leader without them would deliver the records
        again.
        """
        due_ms = self._wheel.next_due_ms()
        if due_ms is not None and due_ms <= self._known_until_ms:
            # It came late, or was put back.
            return False
        begin = max(begin, self._carry_from)
        return not any(
            begin <= offset < new_start
            for known in (self._in_flight, self._expected)
            for offset in known
        )

    def carry(
        self, fact: Fact, read_id: ReadId, *, now_ms: int, new_start: Offset
    ) -> NewRecord | None:
        """The record to append before this one is deleted; None if it no longer waits.

        The records below `new_start` come in the order of their offsets, after `can_carry`.
        """
        if isinstance(fact, Delivered) or fact.offset < self._carry_from:
            return None
        if isinstance(fact, WaitingRecord):
            self._carry_from = Offset(fact.offset + 1)
            due_ms = fact.due_after(self._delivered_to(now_ms))
            if due_ms is not None and not self.is_superseded(fact, read_id):
                self._carrying.add(fact.offset)
                return carried_copy(fact, due_ms=due_ms, now_ms=now_ms)
            if fact.id is None:
                return None
        assert fact.id is not None
        if self._is_needed(fact.id, fact.first, new_start, read_id):
            return carried_cancel(fact.record, fact.id, first=fact.first, now_ms=now_ms)
        return None

    def _is_needed(self, key: bytes, first: Offset, new_start: Offset, read_id: ReadId) -> bool:
        """True if an earlier record of this id was carried beyond the one that supersedes it."""
        return any(
            one.first < first and one.offset >= new_start and read_id(one.offset) == key
            for one in self._ids.all(hash_id(key))
        )

    @property
    def _known_until_ms(self) -> int:
        return max(self._delivered_until_ms, self._taken_until_ms)

    def _delivered_to(self, now_ms: int) -> int:
        """After `can_carry`: everything was delivered up to this time."""
        due_ms = self._wheel.next_due_ms()
        # The clock may have been set back since the last delivery.
        return max(self._known_until_ms, now_ms if due_ms is None else min(now_ms, due_ms - 1))

    def delete(self) -> None:
        """Delete the files: the next `open` begins at the log's start."""
        self._files.delete_all()

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def write_checkpoint(self) -> None:
        self._files.write_checkpoint(
            {
                "version": VERSION,
                "scanned_to": self.scanned_to,
                "scanned_epoch": self.scanned_epoch,
                "fed_from": self._fed_from,
                "gone_below": self._gone_below,
                "carried_below": self._carried_below,
                "delivered_until_ms": self._delivered_until_ms,
                "carried": list(self._carried),
                "wheel": self._wheel.state(popped=list(self._in_flight.values())),
                "ids": self._ids.state(),
            }
        )

    def _restore(self, log_end: Offset) -> bool:
        document = self._files.load_checkpoint()
        if document is None or document.get("version") != VERSION:
            return False
        try:
            self.scanned_to = Offset(int(document["scanned_to"]))
            self.scanned_epoch = int(document["scanned_epoch"])
            self._fed_from = Offset(int(document["fed_from"]))
            self._gone_below = Offset(int(document["gone_below"]))
            self._carried_below = Offset(int(document["carried_below"]))
            self._delivered_until_ms = int(document["delivered_until_ms"])
            self._carried = deque(
                (Offset(int(end)), int(size)) for end, size in document["carried"]
            )
            self._wheel.restore(document["wheel"])
            self._ids.restore(document["ids"])
        except (KeyError, ValueError, TypeError):
            return False
        # Otherwise the log was truncated below what was scanned.
        return self.scanned_to <= log_end
