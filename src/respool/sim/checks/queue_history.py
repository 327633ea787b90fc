"""What happened to the topic of a queue: sends and reads as of other topics, and a ledger for each share group."""

from collections.abc import Callable, Sequence

from respool.sim.checks.history import History
from respool.sim.checks.queue_ledger import QueueGroup, QueueLedger


class QueueHistory(History):
    """Apart from the main history, whose checks know other topics only."""

    def __init__(
        self, main: History, *, groups: Sequence[QueueGroup], early_ms: Callable[[], float]
    ) -> None:
        super().__init__()
        self._main = main
        self.counts = main.counts
        self.ledgers = {
            one.name: QueueLedger(one, violate=self.violate, early_ms=early_ms) for one in groups
        }
        # Groups whose settings are stored; before that, nobody joins them.
        self.configured: set[str] = set()

    def violate(self, rule: str, text: str) -> None:
        self._main.violate(rule, text)
