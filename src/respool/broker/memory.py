"""One memory budget for requests and replies in flight, over all connections.

```
0                                                                    limit
| requests: at most 3/4 …            |  free  |            … replies: at most 3/4 |
                                                       1/8 of all: for followers only
```
A connection asks for memory before it receives a large request, and waits if none is free. The oldest request goes
first each time it needs more, so that requests that have begun to arrive finish and give their memory back. A reply
is charged for what its client has not taken; while no memory is free, fetches wait. Neither side can take everything:
consumers that take nothing must not stop producers from sending, and a flood of producers must not stop consumers
from reading. So either slows down when there are many, and the process does not grow.

In a cluster a part of the replies' memory is kept for followers. Else consumers that are slow, and take a little
again and again, would hold all of it: followers would get no records and leave the ISR, and acks=all would be
refused.
"""

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count

# The share that is reserved for replies against requests, and for requests against replies: one part in this many.
KEPT_SHARE = 4
# The share that is reserved for replies to followers: one part in this many.
FOLLOWERS_SHARE = 8


class MemoryBudget:
    def __init__(self, limit: int, *, has_followers: bool = False) -> None:
        self.limit = limit
        self.followers_share = limit // FOLLOWERS_SHARE if has_followers else 0
        self._side_limit = limit - limit // KEPT_SHARE
        self._requests = 0
        self._replies = 0
        # Of those, the ones to followers.
        self._to_followers = 0
        self._turns = count()
        # Who waits for memory to receive into: by its turn, how much it wants and whom to tell.
        self._receivers: dict[int, tuple[int, Callable[[], None]]] = {}
        # Their turns, the oldest first; some may have left.
        self._queue: list[int] = []
        # Fetches that wait for room for their replies.
        self._fetches: deque[Callable[[], None]] = deque()
        self._was_given_back = False

    @property
    def used(self) -> int:
        return self._requests + self._replies

    @property
    def available_for_replies(self) -> int:
        return self._free_for_replies - self._kept_for_followers

    @property
    def available_for_followers(self) -> int:
        """At least what of their share they do not use, also when others have gone beyond the limit."""
        return max(self._free_for_replies, self._kept_for_followers)

    @property
    def _free_for_replies(self) -> int:
        return min(self.limit - self.used, self._side_limit - self._replies)

    @property
    def _kept_for_followers(self) -> int:
        """What nobody else may take now."""
        return max(0, self.followers_share - self._to_followers)

    @property
    def is_short_for_requests(self) -> bool:
        """Whether somebody waits to receive a request."""
        return bool(self._receivers)

    @property
    def is_short_for_replies(self) -> bool:
        """Whether some fetch waits for other replies to be taken."""
        return bool(self._fetches)

    # Requests.

    def next_turn(self) -> int:
        """A place in the order, for a request that has begun to arrive; it keeps it until it is there."""
        return next(self._turns)

    def receive(self, amount: int, *, turn: int, on_granted: Callable[[], None]) -> bool:
        """Take memory to receive into. False: there is none now; it is taken in turn, and `on_granted` called then."""
        assert turn not in self._receivers
        oldest = self._oldest_turn()
        if (oldest is None or turn < oldest) and self._has_room_to_receive(amount):
            self._requests += amount
            return True
        self._receivers[turn] = amount, on_granted
        heapq.heappush(self._queue, turn)
        return False

    def give_received(self, amount: int) -> None:
        assert amount <= self._requests, f"{amount} bytes given back, {self._requests} were taken"
        self._requests -= amount
        self._on_given_back(amount)

    def forget_receiver(self, turn: int) -> None:
        """Remove a waiting receiver, if there is one."""
        self._receivers.pop(turn, None)

    def relieve(self, *, overdraft: int) -> None:
        """Called now and then: if nothing came back since the last call, the oldest receiver may go on all the same.

        Else requests that have arrived in part could hold all of the memory and wait for each other. Together they
        get at most the overdraft more than the limit.
        """
        was_given_back, self._was_given_back = self._was_given_back, False
        oldest = self._oldest_turn()
        if oldest is None or was_given_back:
            return
        if self.used + self._receivers[oldest][0] <= self.limit + overdraft:
            self._grant(oldest)

    def _oldest_turn(self) -> int | None:
        queue = self._queue
        while queue and queue[0] not in self._receivers:
            heapq.heappop(queue)
        return queue[0] if queue else None

    def _has_room_to_receive(self, amount: int) -> bool:
        # One that is larger than all is received when no other is.
        if not self._requests:
            return self._replies < self.limit
        used = self.used + self._kept_for_followers
        return self._requests + amount <= self._side_limit and used + amount <= self.limit

    def _grant(self, turn: int) -> None:
        amount, on_granted = self._receivers.pop(turn)
        self._requests += amount
        on_granted()

    # Replies.

    def take(self, amount: int, *, is_to_follower: bool = False) -> None:
        """A reply waits for its client. It is in memory already, so this may go beyond the limit.

        What is taken as a follower's is given back as one's.
        """
        self._replies += amount
        if is_to_follower:
            self._to_followers += amount

    def give(self, amount: int, *, is_to_follower: bool = False) -> None:
        self._give(amount, is_to_follower=is_to_follower)
        self._on_given_back(amount)

    def let_go(self, amount: int, *, is_to_follower: bool = False) -> None:
        """Release a reservation that a charged reply replaces. It does not count as memory given back."""
        self._give(amount, is_to_follower=is_to_follower)
        self._on_room()

    def _give(self, amount: int, *, is_to_follower: bool) -> None:
        taken = self._to_followers if is_to_follower else self._replies - self._to_followers
        assert amount <= taken, f"{amount} bytes given back, {taken} were taken"
        self._replies -= amount
        if is_to_follower:
            self._to_followers -= amount

    def when_room(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, when memory has been given back. It must look again: others may be faster."""
        self._fetches.append(wake)

    def _on_given_back(self, amount: int) -> None:
        if amount:
            self._was_given_back = True
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
