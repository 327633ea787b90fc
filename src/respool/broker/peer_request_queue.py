"""Batches items for a peer into requests, one in flight at a time: items that come meanwhile go with the next request.

So the more items wait, the cheaper each one is.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from itertools import islice
from typing import Any, Generic, TypeVar

from respool.model.ids import BrokerId

T = TypeVar("T")

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class PeerRequestQueue(Generic[T]):
    """A channel to each broker."""

    def __init__(
        self,
        ask: Callable[[BrokerId, list[T]], Awaitable[Iterable[T]]],
        *,
        spawn: Spawn,
        at_once_max: int,
    ) -> None:
        """`ask` sends one request about as many of them as fit together, and returns those that did not."""
        self._ask = ask
        self._spawn = spawn
        self._at_once_max = at_once_max
        # In the order they came. Invariant: a broker is named here exactly while a request to it is under way, or about
        # to be.
        self._waiting: dict[BrokerId, dict[T, None]] = {}

    def put(self, broker: BrokerId, one: T) -> None:
        waiting = self._waiting.get(broker)
        if waiting is None:
            waiting = self._waiting[broker] = {}
            # In the next turn of the loop, so that all of this turn go together.
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
                    # They came before the others.
                    later = dict(waiting)
                    waiting.clear()
                    waiting.update(left)
                    waiting.update(later)
        finally:
            del self._waiting[broker]
