"""The delays that simulated producers requested. Its checks are `delay_log.py` and `delay_watch.py`.

D1 a committed, uncancelled record that is due is visible once
D2 ... before its time by the clock of any broker; or a hidden record is visible
D3 ... though it was cancelled or replaced, and that was committed, before its time
D4 ... though its transaction was aborted, or was never sent
D5 a leader waits for other records than its log says
"""

from dataclasses import dataclass

from respool.sim.checks.history import History


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedDelay:
    """What one record asks for; one without any of these is visible at once.

    Attributes:
        delay_ms: from the record's timestamp on; for `every_ms` the first time.
        at_ms: by the wall clock.
        every_ms: `times` times.
        id: the name that a later record of the partition replaces, or cancels.
        cancels: the id that it cancels.
    """

    delay_ms: int | None = None
    at_ms: int | None = None
    every_ms: int | None = None
    times: int = 1
    id: str | None = None
    cancels: str | None = None

    @property
    def is_hidden(self) -> bool:
        return self.waits or self.cancels is not None

    @property
    def waits(self) -> bool:
        return any(one is not None for one in (self.delay_ms, self.at_ms, self.every_ms))

    @property
    def supersedes(self) -> str | None:
        """The id whose earlier record no longer counts."""
        return self.id or self.cancels

    def due_times(self, timestamp_ms: int) -> list[int]:
        if self.at_ms is not None:
            return [self.at_ms]
        if self.every_ms is not None:
            return [timestamp_ms + self.every_ms * (number + 1) for number in range(self.times)]
        return [] if self.delay_ms is None else [timestamp_ms + self.delay_ms]


class DelayHistory(History):
    """The sends to topics with delays, apart from those that the other checks expect to see at their offsets."""

    def __init__(self, main: History) -> None:
        super().__init__()
        self._main = main
        self.counts = main.counts
        # By value.
        self.asked: dict[bytes, AskedDelay] = {}

    def violate(self, rule: str, text: str) -> None:
        self._main.violate(rule, text)
