"""Whether a broker is dead: its address has refused connections for long enough, after it had taken them.

A machine refuses at once what none of its processes listens for. One that is cut off, or has no power, says nothing at
all; one whose process stands still accepts. So refusals in a row mean that the process is gone.

They mean it only for a registration that was reached from here before. A broker that registers anew is alive, whatever
its address says: if that goes on refusing (a firewall, a proxy that is down), it is pushed out once, not for ever.
"""

# So many times the time after which it is dead, one is suspected: the controller may have another opinion.
SUSPECTED_TIMES = 3
# However long ago the first was: who asks may itself have stood still in between.
REFUSALS_MIN = 3


class Refusals:
    """What was heard of one registration, from one place."""

    def __init__(self, *, dead_after_ms: int) -> None:
        assert dead_after_ms > 0
        self._dead_after_ms = dead_after_ms
        self._has_been_reached = False
        self._since_ms: int | None = None
        self._count = 0

    def on_reached(self) -> None:
        self._has_been_reached = True
        self._forget()

    def on_refused(self, *, now_ms: int) -> None:
        if self._since_ms is None:
            self._since_ms = now_ms
        self._count += 1

    def on_no_answer(self) -> None:
        """Neither taken nor refused: nobody knows."""
        self._forget()

    def is_suspected(self, *, now_ms: int) -> bool:
        """Whether it refuses, and will soon be known to be dead, or not to be."""
        if not self._has_been_reached or self._since_ms is None:
            return False
        return now_ms - self._since_ms < SUSPECTED_TIMES * self._dead_after_ms

    def is_dead(self, *, now_ms: int) -> bool:
        if not self._has_been_reached or self._since_ms is None:
            return False
        return self._count >= REFUSALS_MIN and now_ms - self._since_ms >= self._dead_after_ms

    def _forget(self) -> None:
        self._since_ms, self._count = None, 0
