"""Since when brokers are missing. The controller remembers it itself; a new controller starts counting anew.

So a broker is given up too late rather than too early: nobody's clock but the controller's own is trusted, and a
controller that has just begun does not know how long it took to become one.
"""

from collections.abc import Collection, Mapping

from respool.model.cluster_settings import ControllerSettings
from respool.model.ids import BrokerId


class Absences:
    def __init__(self) -> None:
        self._since_ms: dict[BrokerId, int] = {}

    def on_view(
        self, *, known: Collection[BrokerId], live: Collection[BrokerId], now_ms: int
    ) -> Mapping[BrokerId, int]:
        """Note who is missing now of those there should be; since when, for each of them."""
        self._since_ms = {
            one: self._since_ms.get(one, now_ms) for one in sorted(set(known) - set(live))
        }
        return dict(self._since_ms)

    def next_due_ms(self, settings: ControllerSettings, *, now_ms: int) -> int | None:
        """When to decide again although nothing has changed: somebody has then been missing for too long."""
        due = (
            since + wait
            for since in self._since_ms.values()
            for wait in (settings.dead_after_ms, settings.unclean_wait_ms)
        )
        return min((one for one in due if one > now_ms), default=None)
