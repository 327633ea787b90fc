"""Tracks which brokers are missing, and since when; and which are dead because they refuse connections.

The controller keeps this in memory, and a new controller starts from zero: so a broker is declared dead too late rather
than too early. It relies on its own clock only, and does not know how long its election took.
"""

from collections.abc import Collection, Mapping

from respool.model.cluster_settings import ControllerSettings
from respool.model.ids import BrokerId


class MissingBrokers:
    def __init__(self) -> None:
        self._since_ms: dict[BrokerId, int] = {}

    def on_view(
        self, *, known: Collection[BrokerId], live: Collection[BrokerId], now_ms: int
    ) -> Mapping[BrokerId, int]:
        """Record the known brokers that are not live; return for each the time since which it is missing."""
        self._since_ms = {
            one: self._since_ms.get(one, now_ms) for one in sorted(set(known) - set(live))
        }
        return dict(self._since_ms)

    def next_due_ms(self, settings: ControllerSettings, *, now_ms: int) -> int | None:
        """When a broker will have been missing for too long, so that a decision is due without a store change."""
        due = (
            since + wait
            for since in self._since_ms.values()
            for wait in (settings.dead_after_ms, settings.unclean_wait_ms)
        )
        return min((one for one in due if one > now_ms), default=None)


# -- refused connections ---------------------------------------------------------------------------------------------

# A broker is suspected for this multiple of the time after which it is dead: the controller may observe it differently.
SUSPECTED_TIMES = 3
# Required however long ago the first refusal was: this process itself may have been paused in between.
REFUSALS_MIN = 3


class RefusedConnections:
    """Decides that a broker is dead because its address refuses connections that it accepted before.

    A machine refuses connections at once to a port on which no process listens. A machine that is partitioned or
    without power does not answer at all; a paused process accepts connections. So repeated refusals mean that the
    process is gone.

    This holds only for a registration that was reached from here before. A broker that registers again is alive,
    whatever its address does: if the address refuses for other reasons (a firewall, a stopped proxy), the broker is
    removed only once, not again and again.
    """

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
        """The attempt was neither accepted nor refused, which says nothing about the process."""
        self._forget()

    def is_suspected(self, *, now_ms: int) -> bool:
        """True while there are refusals, but too few or too recent ones to decide."""
        if not self._has_been_reached or self._since_ms is None:
            return False
        return now_ms - self._since_ms < SUSPECTED_TIMES * self._dead_after_ms

    def is_dead(self, *, now_ms: int) -> bool:
        if not self._has_been_reached or self._since_ms is None:
            return False
        return self._count >= REFUSALS_MIN and now_ms - self._since_ms >= self._dead_after_ms

    def _forget(self) -> None:
        self._since_ms, self._count = None, 0
