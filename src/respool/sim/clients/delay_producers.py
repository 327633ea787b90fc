"""Simulated producers of delayed records: delays, times, levels, schedules, ids and cancellations, in mixed batches."""

from typing import Any

from respool.model.delays.delay_headers import (
    CANCEL,
    DELAY,
    DELAY_LEVEL,
    DELIVER_AT,
    SCHEDULE,
    SCHEDULE_ID,
    TIMES,
)
from respool.sim.checks.delay_history import AskedDelay, DelayHistory
from respool.sim.clients.producers import HeaderPairs, IdempotentProducer, SimProducer
from respool.sim.clients.transactional_producer import SimTransactionalProducer

# `respool.delay.levels` of the topic.
LEVELS = "1s,3s,10s"
LEVELS_MS = (1_000, 3_000, 10_000)
# Longer than a run: only a clock that is set forward makes it due.
LONG_MS = 3_600_000


class DelayDraws(SimProducer):
    """Draws what records ask for. Ids are a producer's own, and shared by its records of a partition."""

    history: DelayHistory

    def _padding(self, _value: bytes) -> bytes:
        return b"x" * self.rng.randrange(10, 1_000)

    def _headers(self, value: bytes) -> HeaderPairs:
        asked = self.history.asked[value] = self._draw()
        return headers_of(asked)

    def _draw(self) -> AskedDelay:
        rng = self.rng
        own_id = f"{self.name}-{rng.randrange(4)}"
        kind = rng.random()
        if kind < 0.15:
            return AskedDelay()
        if kind < 0.3:
            return AskedDelay(cancels=own_id)
        named: dict[str, Any] = {"id": own_id} if rng.random() < 0.4 else {}
        if kind < 0.45:
            return AskedDelay(at_ms=self.clock.now_ms() + rng.randint(-2_000, 15_000), **named)
        if kind < 0.55:
            return AskedDelay(delay_ms=rng.choice(LEVELS_MS), **named)
        if kind < 0.65:
            every_ms = rng.choice((1_000, 2_000, 5_000))
            return AskedDelay(every_ms=every_ms, times=rng.randint(1, 8), **named)
        # Many at short notice; some wait until the end of the run.
        longest_ms = rng.choice((200, 5_000, 20_000, LONG_MS))
        return AskedDelay(delay_ms=rng.randint(0, longest_ms), **named)


class DelayingProducer(DelayDraws, IdempotentProducer):
    pass


class DelayingTransactionalProducer(DelayDraws, SimTransactionalProducer):
    pass


def headers_of(asked: AskedDelay) -> HeaderPairs:
    found: list[tuple[str, bytes | None]] = []
    if asked.cancels is not None:
        found.append((CANCEL, asked.cancels.encode()))
    if asked.at_ms is not None:
        found.append((DELIVER_AT, b"%d" % asked.at_ms))
    elif asked.every_ms is not None:
        found.append((SCHEDULE, b"@every %ds" % (asked.every_ms // 1_000)))
        found.append((TIMES, b"%d" % asked.times))
    elif asked.delay_ms in LEVELS_MS:
        found.append((DELAY_LEVEL, b"%d" % (1 + LEVELS_MS.index(asked.delay_ms))))
    elif asked.delay_ms is not None:
        found.append((DELAY, b"%d" % asked.delay_ms))
    if asked.id is not None:
        found.append((SCHEDULE_ID, asked.id.encode()))
    return tuple(found)
