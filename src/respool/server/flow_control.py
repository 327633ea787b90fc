"""Flow control of one connection: when it may read, and how much of the memory budget it holds.

- The receive buffer grows for a large request once the budget grants the memory; until then reading is paused, and TCP
  tells the client.
- Replies that the client has not read are charged to the budget until it reads them.
"""

import asyncio
from collections.abc import Callable

from respool.broker.memory import MemoryBudget
from respool.wire.frames import FrameReader


class FlowControl:
    # Set when the connection is made.
    transport: asyncio.Transport

    def __init__(
        self, *, reader: FrameReader, memory: MemoryBudget, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._reader = reader
        self._memory = memory
        self._loop = loop
        self._is_reading_paused = False
        # Set by the connection: reading is then never resumed.
        self.is_closing = False
        # Reading is not resumed for a while, whatever happens.
        self.is_muted = False
        # Memory held: the growth of the receive buffer, and the replies that the client has not read.
        self._bytes_grown = 0
        self._bytes_unsent = 0
        # Whether the unsent replies are charged as a follower's, and whether the last request was a follower's.
        self._is_unsent_of_follower = False
        self.is_of_follower = False
        # The memory requested and not granted yet, and the turn of the request that needs it.
        self._bytes_wanted = 0
        self._turn: int | None = None
        # The unsent bytes at the last check, and the time since which they have not decreased.
        self._unsent_seen = 0
        self._stalled_since = self.last_grown = loop.time()

    # -- requests ----------------------------------------------------------------------------------------------------

    @property
    def is_waiting_for_memory(self) -> bool:
        return self._bytes_wanted > 0

    def on_requests_taken(self) -> None:
        self._turn = None
        if self._memory.is_short_for_requests:
            # Other connections wait for the memory of the last request; this one's next request takes a new turn.
            self._release_received(self._reader.release())

    def adjust_reading(self) -> None:
        """Pause or resume reading, after requests were parsed or memory was granted."""
        if self.is_closing or self.is_muted:
            return
        growth = self._reader.growth_wanted
        if (growth and not self._grow_buffer(growth)) or self._reader.is_full:
            self.pause_reading()
        elif self._is_reading_paused:
            self._is_reading_paused = False
            self.transport.resume_reading()

    def pause_reading(self) -> None:
        if not self._is_reading_paused:
            self._is_reading_paused = True
            self.transport.pause_reading()

    def mute(self, wait_ms: float, *, then: Callable[[], None]) -> None:
        """Read nothing for this long, and then call `then`."""
        if wait_ms and not self.is_muted and not self.is_closing:
            self.is_muted = True
            self.pause_reading()
            self._loop.call_later(wait_ms / 1000, self._unmute, then)

    def _unmute(self, then: Callable[[], None]) -> None:
        self.is_muted = False
        then()

    def shrink(self) -> None:
        """Release the memory of an earlier large request."""
        self._release_received(self._reader.maybe_shrink())

    def _grow_buffer(self, growth: int) -> bool:
        if self._bytes_wanted:
            return False
        if self._turn is None:
            self._turn = self._memory.next_turn()
        self._bytes_wanted = growth
        if not self._memory.receive(growth, turn=self._turn, on_granted=self._on_memory):
            return False
        self._grow()
        return True

    def _grow(self) -> None:
        self._bytes_grown += self._bytes_wanted
        self._bytes_wanted = 0
        self.last_grown = self._loop.time()
        self._reader.grow()

    def _on_memory(self) -> None:
        self._grow()
        self.adjust_reading()

    def _release_received(self, amount: int) -> None:
        if amount:
            self._bytes_grown -= amount
            assert self._bytes_grown >= 0, self._bytes_grown
            self._memory.release_received(amount)

    # -- replies -----------------------------------------------------------------------------------------------------

    def on_writing_paused(self) -> None:
        self._stalled_since = self._loop.time()
        self.charge_unsent()

    def charge_unsent(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent > self._bytes_unsent:
            if not self._bytes_unsent:
                # Kept until everything is sent: later replies are small, and are released together with this one.
                self._is_unsent_of_follower = self.is_of_follower
            self._memory.charge(
                unsent - self._bytes_unsent, is_to_follower=self._is_unsent_of_follower
            )
            self._bytes_unsent = unsent

    def give_unsent(self) -> None:
        amount, self._bytes_unsent = self._bytes_unsent, 0
        self._memory.release(amount, is_to_follower=self._is_unsent_of_follower)

    def stalled_s(self, now: float) -> float:
        """Return how long the client has read nothing; called periodically while writing is paused."""
        unsent = self.transport.get_write_buffer_size()
        if unsent < self._unsent_seen:
            self._stalled_since = now
        self._unsent_seen = unsent
        return now - self._stalled_since

    def close(self) -> None:
        """Release all memory."""
        if self._turn is not None:
            self._memory.forget_receiver(self._turn)
        self._memory.release_received(self._bytes_grown)
        self.give_unsent()
        self._bytes_grown = self._bytes_wanted = 0
