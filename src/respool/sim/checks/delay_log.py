"""Reads the delays of a partition's committed records, without the broker's code for delays. Pure.

`DelayLog.take` gets each committed batch once, in the order of offsets, before retention deletes it. Then `check`
compares what was delivered with what producers asked for.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from respool.model.delays.delay_headers import (
    CARRIED_FROM,
    DELIVERED_FROM,
    DUE_AT,
    HIDING_HEADERS,
    SENT_AT,
)
from respool.model.ids import TopicPartition
from respool.records.batch import RecordBatch
from respool.records.markers import read_marker
from respool.records.record import Record, read_records
from respool.sim.checks.delay_history import AskedDelay, DelayHistory

_UNPACKED_MAX = 1 << 24
# Later than any clock.
NEVER_MS = 2**62


@dataclass(slots=True)
class Copy:
    offset: int
    due_ms: int
    sent_ms: int
    value: bytes
    # When its leader appended it, by its own clock; None if the topic does not say.
    appended_ms: int | None


@dataclass(slots=True)
class Logged:
    """A record that a producer sent, as it stands in the log."""

    offset: int
    value: bytes
    asked: AskedDelay
    timestamp_ms: int
    # True and False: the outcome of its transaction.
    is_committed: bool | None
    # The latest reading of any broker's clock when it was seen below the last stable offset.
    stable_at_ms: int = NEVER_MS
    copies: list[Copy] = field(default_factory=list)
    carried_to: list[int] = field(default_factory=list)

    @property
    def due_times(self) -> list[int]:
        return self.asked.due_times(self.timestamp_ms)


class DelayLog:
    def __init__(
        self, name: TopicPartition, history: DelayHistory, *, latest_ms: Callable[[], int]
    ) -> None:
        """`latest_ms`: the latest time that any broker's clock has shown."""
        self.name = name
        self.end = 0
        # The highest log start that was seen.
        self.start = 0
        # Records were deleted before they were seen, so not everything can be checked.
        self.has_gap = False
        # By the offset at which they were first written.
        self.records: dict[int, Logged] = {}
        self._history = history
        self._latest_ms = latest_ms
        # Records of open transactions, by producer.
        self._open: dict[int, list[Logged]] = {}
        # Waiting for the last stable offset.
        self._unstable: list[Logged] = []
        self._orphans: list[Copy] = []

    def skip_to(self, offset: int) -> None:
        self.end = max(self.end, offset)
        self.has_gap = True

    def take(self, batch: RecordBatch) -> None:
        header = batch.header
        assert header.base_offset >= self.end
        self.end = header.last_offset + 1
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None:
                for one in self._open.pop(marker.producer_id, ()):
                    one.is_committed = marker.is_commit
            return
        for record in read_records(batch, limit=_UNPACKED_MAX):
            headers = dict(record.headers)
            if DELIVERED_FROM in headers:
                appended_ms = header.max_timestamp if header.is_log_append_time else None
                self._on_copy(record, headers, appended_ms)
            elif CARRIED_FROM in headers:
                self._on_carried(record, headers)
            else:
                self._on_sent(record, batch)

    def on_stable(self, stable_offset: int) -> None:
        """Everything below is stable, as a broker said that may be behind."""
        latest_ms = self._latest_ms()
        for one in self._unstable:
            if one.offset < stable_offset and one.is_committed is not None:
                one.stable_at_ms = latest_ms
        self._unstable = [one for one in self._unstable if one.stable_at_ms == NEVER_MS]

    def visible(self) -> dict[int, bytes]:
        """What readers of committed records should see, by offset."""
        found = {
            one.offset: one.value
            for one in self.records.values()
            if not one.asked.is_hidden and one.is_committed
        }
        for one in self.records.values():
            found.update({copy.offset: copy.value for copy in one.copies})
        return found

    # -- what is in the log ------------------------------------------------------------------------------------------

    def _on_sent(self, record: Record, batch: RecordBatch) -> None:
        value, header = record.value or b"", batch.header
        asked = self._history.asked.get(value)
        if asked is None:
            self._violate("A5", record.offset, f"{value[:40]!r} was never sent")
            return
        logged = self.records[record.offset] = Logged(
            record.offset,
            value,
            asked,
            record.timestamp,
            None if header.is_transactional else True,
        )
        self._unstable.append(logged)
        if header.is_transactional:
            self._open.setdefault(header.producer_id, []).append(logged)

    def _on_copy(
        self, record: Record, headers: dict[str, bytes | None], appended_ms: int | None
    ) -> None:
        first, value = _number(headers[DELIVERED_FROM]), record.value or b""
        copy = Copy(
            record.offset,
            _number(headers[DUE_AT]),
            _number(headers[SENT_AT]),
            value,
            appended_ms,
        )
        if hiding := [one for one in HIDING_HEADERS if one in headers]:
            self._violate("D1", copy.offset, f"the copy of {first} has {hiding}, so nobody sees it")
        latest_ms = self._latest_ms()
        if copy.due_ms > latest_ms:
            self._violate(
                "D2", copy.offset, f"{value[:40]!r} is due at {copy.due_ms}, it was {latest_ms}"
            )
        if appended_ms is not None and appended_ms < copy.due_ms:
            self._violate(
                "D2",
                copy.offset,
                f"{value[:40]!r} is due at {copy.due_ms}, delivered at {appended_ms}",
            )
        logged = self.records.get(first)
        if logged is not None and logged.value == value:
            logged.copies.append(copy)
            self._history.counts["delay topics: records delivered"] += 1
        elif not self.has_gap:
            self._violate(
                "D4", copy.offset, f"{value[:40]!r} is a copy of {first}, where it is not"
            )

    def _on_carried(self, record: Record, headers: dict[str, bytes | None]) -> None:
        first = _number(headers[CARRIED_FROM])
        logged = self.records.get(first)
        if logged is not None:
            logged.carried_to.append(record.offset)
            self._history.counts["delay topics: records carried"] += 1
        elif not self.has_gap:
            self._violate("D4", record.offset, f"carried from {first}, where nothing is")

    # -- checks ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Everything is due by now, and was delivered, if it ever will be."""
        for one in self.records.values():
            if one.is_committed is not True:
                self._check_aborted(one)
            elif one.asked.waits:
                self._check_copies(one, superseding=list(self._superseding(one)))
        self._check_acknowledged()

    def _superseding(self, one: Logged) -> Iterator[Logged]:
        if one.asked.id is None:
            return
        for other in self.records.values():
            if (
                other.offset > one.offset
                and other.is_committed
                and other.asked.supersedes == one.asked.id
            ):
                yield other

    def _check_aborted(self, one: Logged) -> None:
        if one.copies:
            self._violate(
                "D4", one.offset, f"{one.value[:40]!r} was aborted, there are {one.copies}"
            )

    def _check_copies(self, one: Logged, *, superseding: list[Logged]) -> None:
        times = [copy.due_ms for copy in one.copies]
        expected = one.due_times
        # What never repeats is delivered once, a schedule at some of its times, the last included.
        if len(expected) == 1:
            is_right = times == expected or (bool(superseding) and not times)
        else:
            is_right = sorted(set(times) & set(expected)) == times
            is_right &= bool(superseding) or times[-1:] == expected[-1:]
        if not is_right and not (self.has_gap and len(times) < 2):
            self._violate(
                "D1",
                one.offset,
                f"{one.value[:40]!r} is due at {expected}, it was delivered for {times} "
                f"({len(superseding)} of its id came later)",
            )
        for other in superseding:
            for copy in one.copies:
                if copy.due_ms > other.stable_at_ms and copy.offset > other.offset:
                    self._violate(
                        "D3",
                        copy.offset,
                        f"{one.value[:40]!r}, due at {copy.due_ms}, was superseded at {other.offset} by "
                        f"{other.stable_at_ms}",
                    )

    def _check_acknowledged(self) -> None:
        found: dict[bytes, int] = {}
        for one in self.records.values():
            # A replica that begins at its leader's log start does not know whose batches were before.
            if found.get(one.value, -1) >= self.start:
                self._violate("A4", one.offset, f"{one.value[:40]!r} is also at {found[one.value]}")
            found[one.value] = one.offset
        if self.has_gap:
            return
        for sent in self._history.sends.values():
            if sent.name == self.name and sent.outcome == "ok" and sent.value not in found:
                self._violate("A2", sent.offset, f"{sent.value[:40]!r}, acknowledged, is gone")

    def waiting_counts(self) -> tuple[int, int]:
        """D5: how many records wait for their next time, without and with those that were cancelled or replaced."""
        waiting = [
            one
            for one in self.records.values()
            if one.is_committed
            and one.asked.waits
            and one.due_times[-1] not in [copy.due_ms for copy in one.copies]
        ]
        return sum(not any(self._superseding(one)) for one in waiting), len(waiting)

    def _violate(self, rule: str, offset: int, text: str) -> None:
        self._history.violate(rule, f"{self.name}@{offset}: {text}")


def _number(value: bytes | None) -> int:
    return int(value or b"-1")
