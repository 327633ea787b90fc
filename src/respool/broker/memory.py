"""One memory budget for requests and replies in flight, over all connections.

```
0                                                                    limit
| requests: at most 3/4 …            |  free  |            … replies: at most 3/4 |
                                                       1/8 of all: for followers only
```
A connection requests memory before it receives a large request, and waits if none is free. The oldest request always
goes first, so that requests that have begun to arrive complete and release their memory. A reply is charged for the
bytes that its client has not read; while no memory is free, fetches wait. Neither side can take everything: consumers
that read nothing must not stop producers from sending, and a flood of producers must not stop consumers from reading.
So under load either side slows down, and the process does not grow.

In a cluster, part of the replies' memory is reserved for followers. Otherwise slow consumers that keep reading a little
would hold all of it: followers would get no records and leave the ISR, and acks=all would be refused.
"""

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count

# The share reserved for replies against requests, and for requests against replies: one part in this many.
KEPT_SHARE = 4
# The share reserved for replies to followers: one part in this many.
FOLLOWERS_SHARE = 8


class MemoryBudget:
    def __init__(self, limit: int, *, has_followers: bool = False) -> None:
        self.limit = limit
        self.followers_share = limit // FOLLOWERS_SHARE if has_followers else 0
        self._side_limit = limit - limit // KEPT_SHARE
        self._requests = 0
        self._replies = 0
        # The part of `_replies` that is for followers.
        self._to_followers = 0
        self._turns = count()
        # Receivers that wait for memory: by turn, the amount and the callback.
        self._receivers: dict[int, tuple[int, Callable[[], None]]] = {}
        # Their turns, the oldest first; some may have been removed.
        self._queue: list[int] = []
        # Wake functions of fetches that wait for memory for their replies.
        self._fetches: deque[Callable[[], None]] = deque()
        self._was_released = False

    @property
    def used(self) -> int:
        return self._requests + self._replies

    @property
    def available_for_replies(self) -> int:
        return self._free_for_replies - self._kept_for_followers

    @property
    def available_for_followers(self) -> int:
        """At least the unused part of the followers' share, even if others have exceeded the limit."""
        return max(self._free_for_replies, self._kept_for_followers)

    @property
    def _free_for_replies(self) -> int:
        return min(self.limit - self.used, self._side_limit - self._replies)

    @property
    def _kept_for_followers(self) -> int:
        """The part of the free memory that only followers may take now."""
        return max(0, self.followers_share - self._to_followers)

    @property
    def is_short_for_requests(self) -> bool:
        """True if a connection waits for memory to receive a request."""
        return bool(self._receivers)

    @property
    def is_short_for_replies(self) -> bool:
        """True if a fetch waits until other replies have been read."""
        return bool(self._fetches)

    # Requests.

    def next_turn(self) -> int:
        """Return a position in the order of requests; a request keeps it until it has arrived completely."""
        return next(self._turns)

    def receive(self, amount: int, *, turn: int, on_granted: Callable[[], None]) -> bool:
        """Take memory to receive into. False: none is free; it is granted in turn, with a call of `on_granted`."""
        assert turn not in self._receivers
        oldest = self._oldest_turn()
        if (oldest is None or turn < oldest) and self._has_room_to_receive(amount):
            self._requests += amount
            return True
        self._receivers[turn] = amount, on_granted
        heapq.heappush(self._queue, turn)
        return False

    def release_received(self, amount: int) -> None:
        assert amount <= self._requests, f"{amount} bytes released, {self._requests} were taken"
        self._requests -= amount
        self._on_released(amount)

    def forget_receiver(self, turn: int) -> None:
        """Remove a waiting receiver, if there is one."""
        self._receivers.pop(turn, None)

    def relieve(self, *, overdraft: int) -> None:
        """Grant the oldest receiver its memory if none was released since the last call. Called periodically.

        Otherwise requests that have arrived in part could hold all memory and wait for each other. Together they exceed
        the limit by at most the overdraft.
        """
        was_released, self._was_released = self._was_released, False
        oldest = self._oldest_turn()
        if oldest is None or was_released:
            return
        if self.used + self._receivers[oldest][0] <= self.limit + overdraft:
            self._grant(oldest)

    def _oldest_turn(self) -> int | None:
        queue = self._queue
        while queue and queue[0] not in self._receivers:
            heapq.heappop(queue)
        return queue[0] if queue else None

    def _has_room_to_receive(self, amount: int) -> bool:
        # A request larger than its whole share is received when there is no other.
        if not self._requests:
            return self._replies < self.limit
        used = self.used + self._kept_for_followers
        return self._requests + amount <= self._side_limit and used + amount <= self.limit

    def _grant(self, turn: int) -> None:
        amount, on_granted = self._receivers.pop(turn)
        self._requests += amount
        on_granted()

    # Replies.

    def charge(self, amount: int, *, is_to_follower: bool = False) -> None:
        """Charge a reply that waits for its client. It is in memory already, so this may exceed the limit.

        Memory taken with `is_to_follower` must be released with it.
        """
        self._replies += amount
        if is_to_follower:
            self._to_followers += amount

    def release(self, amount: int, *, is_to_follower: bool = False) -> None:
        self._subtract(amount, is_to_follower=is_to_follower)
        self._on_released(amount)

    def release_reservation(self, amount: int, *, is_to_follower: bool = False) -> None:
        """Release a reservation that a charged reply replaces. It does not count as released memory."""
        self._subtract(amount, is_to_follower=is_to_follower)
        self._on_room()

    def _subtract(self, amount: int, *, is_to_follower: bool) -> None:
        taken = self._to_followers if is_to_follower else self._replies - self._to_followers
        assert amount <= taken, f"{amount} bytes released, {taken} were taken"
        self._replies -= amount
        if is_to_follower:
            self._to_followers -= amount

    def when_room(self, wake: Callable[[], None]) -> None:
        """Call `wake` once when memory is released. It must check again: others may be faster."""
        self._fetches.append(wake)

    def _on_released(self, amount: int) -> None:
        if amount:
            self._was_released = True
            self._on_room()

    def _on_room(self) -> None:
        while (turn := self._oldest_turn()) is not None:
            if not self._has_room_to_receive(self._receivers[turn][0]):
                break
            self._grant(turn)
        if self._fetches:
            waiting, self._fetches = self._fetches, deque()
            for wake in waiting:
                wake()
