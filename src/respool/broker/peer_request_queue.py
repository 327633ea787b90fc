"""Batches items for a peer into requests, one in flight at a time: items that arrive meanwhile go with the next one.

So the more items are waiting, the cheaper each one is.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from itertools import islice
from typing import Any, Generic, TypeVar

from respool.model.ids import BrokerId

T = TypeVar("T")

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class PeerRequestQueue(Generic[T]):
    """A queue for each broker."""

    def __init__(
        self,
        ask: Callable[[BrokerId, list[T]], Awaitable[Iterable[T]]],
        *,
        spawn: Spawn,
        at_once_max: int,
    ) -> None:
        """`ask` sends one request with as many items as fit together, and returns those that did not fit."""
        self._ask = ask
        self._spawn = spawn
        self._at_once_max = at_once_max
        # Items in the order of arrival. Invariant: a broker has an entry exactly while a request to it is in flight or
        # about to be sent.
        self._waiting: dict[BrokerId, dict[T, None]] = {}

    def put(self, broker: BrokerId, one: T) -> None:
        waiting = self._waiting.get(broker)
        if waiting is None:
            waiting = self._waiting[broker] = {}
            # The request starts in the next turn of the loop, so that all items of this turn go together.
            self._spawn(self._ask_on(broker, waiting))
        waiting[one] = None

    def clear(self) -> None:
        for waiting in self._waiting.values():
            waiting.clear()

    async def _ask_on(self, broker: BrokerId, waiting: dict[T, None]) -> None:
        try:
            while waiting:
                taken = list(islice(waiting, self._at_once_max))
                for one in taken:
                    del waiting[one]
                left = dict.fromkeys(await self._ask(broker, taken))
                if left:
                    # These items arrived before the others.
                    later = dict(waiting)
                    waiting.clear()
                    waiting.update(left)
                    waiting.update(later)
        finally:
            del self._waiting[broker]
