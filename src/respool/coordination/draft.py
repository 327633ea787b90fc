"""Builds a decision: its records, replies and timers."""

from typing import Any

from respool.coordination.decision import (
    Answer,
    CoordinatorRecord,
    Decision,
    RecordsProducer,
    SetTimer,
    Ticket,
    TimerChange,
    TimerKey,
)

NOTHING = Decision()


class Draft:
    __slots__ = (
        "_answers",
        "_effects",
        "_records",
        "_timers",
        "now_ms",
        "producer",
        "record_bytes",
        "wall_ms",
    )

    def __init__(self, now_ms: int, *, wall_ms: int | None = None) -> None:
        """`decision.py` explains the two clocks; if only one time is given, it is used for both."""
        self.now_ms = now_ms
        self.wall_ms = now_ms if wall_ms is None else wall_ms
        self._records: list[CoordinatorRecord] = []
        # The total size of the records' keys and values in bytes.
        self.record_bytes = 0
        self._answers: list[Answer] = []
        self._timers: list[TimerChange] = []
        self._effects: list[Any] = []
        # The transaction that the records are part of, if any.
        self.producer: RecordsProducer | None = None

    def write(self, key: bytes, value: bytes | None) -> None:
        self._records.append(CoordinatorRecord(key=key, value=value))
        self.record_bytes += len(key) + len(value or b"")

    def discard_records(self) -> None:
        self._records.clear()
        self.record_bytes = 0

    def answer(self, ticket: Ticket, reply: Any) -> None:
        self._answers.append(Answer(ticket=ticket, reply=reply))

    def set_timer(self, key: TimerKey, due_at_ms: int) -> None:
        self._timers.append(SetTimer(key=key, due_at_ms=due_at_ms))

    def carry_out(self, effect: Any) -> None:
        self._effects.append(effect)

    @property
    def earlier_clock_ms(self) -> int:
        """The earlier of both clocks: state whose expiry cannot be undone expires by this time only."""
        return min(self.now_ms, self.wall_ms)

    @property
    def record_count(self) -> int:
        return len(self._records)

    def decision(self) -> Decision:
        return Decision(
            records=tuple(self._records),
            answers=tuple(self._answers),
            timers=tuple(self._timers),
            producer=self.producer,
            effects=tuple(self._effects),
        )
