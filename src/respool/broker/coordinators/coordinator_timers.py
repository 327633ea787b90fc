"""The timers of a coordinator's state machine, on one timer of the event loop.

A machine sets and moves timers with every heartbeat, so both are cheap: a dict write, and a heap entry only when a
timer moves to an earlier time. An outdated entry is dropped when its time comes.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterable

from respool.coordination.decision import CancelTimer, SetTimer, TimerChange, TimerKey
from respool.ports.clock import Clock


class CoordinatorTimers:
    def __init__(self, *, clock: Clock, on_due: Callable[[TimerKey], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        # The authoritative due time of each timer.
        self._due: dict[TimerKey, int] = {}
        # When to check each timer. The sequence number breaks ties, since keys cannot be compared.
        self._heap: list[tuple[int, int, TimerKey]] = []
        self._numbers = itertools.count()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at_ms = 0

    def apply(self, changes: Iterable[TimerChange]) -> None:
        for change in changes:
            if isinstance(change, CancelTimer):
                self._due.pop(change.key, None)
            else:
                self._set(change)
        self._arm()

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._due.clear()
        self._heap.clear()

    def _set(self, change: SetTimer) -> None:
        before = self._due.get(change.key)
        self._due[change.key] = change.due_at_ms
        # A timer that moved to a later time keeps its entry, and is pushed again when that entry comes up.
        if before is None or change.due_at_ms < before:
            self._push(change.key, change.due_at_ms)

    def _push(self, key: TimerKey, at_ms: int) -> None:
        heapq.heappush(self._heap, (at_ms, next(self._numbers), key))

    def _arm(self) -> None:
        if not self._heap:
            return
        at_ms = self._heap[0][0]
        if self._alarm is not None:
            if self._alarm_at_ms <= at_ms:
                return
            self._alarm.cancel()
        delay_s = max(0, at_ms - self._clock.now_ms()) / 1000
        self._alarm_at_ms = at_ms
        self._alarm = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now_ms = self._clock.now_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, key = heapq.heappop(self._heap)
            due_at_ms = self._due.get(key)
            if due_at_ms is None:
                continue
            if due_at_ms > now_ms:
                self._push(key, due_at_ms)
                continue
            del self._due[key]
            self._on_due(key)
        self._arm()
