"""Orders a connection's replies like its requests, whatever order they become ready in.

Clients assume that the next reply belongs to their oldest request. Sans-IO: open a slot when a request arrives, fill it
when the reply is ready, take the replies that may be sent.
"""

from collections import deque
from collections.abc import Sequence

from respool.wire.api_table import ApiSpec
from respool.wire.codec import Request


class ReplyOrder:
    """The order of one connection's replies."""

    __slots__ = ("_slots", "taken")

    def __init__(self) -> None:
        # Slots whose replies were taken, for metrics; the reader clears it.
        self.taken: list[ReplySlot] = []
        # Requests whose reply is not ready, or may not be sent yet; oldest first.
        self._slots: deque[ReplySlot] = deque()

    @property
    def waiting(self) -> int:
        """The number of requests whose reply was not taken yet."""
        return len(self._slots)

    def open_reply(self, request: Request | None = None) -> "ReplySlot":
        """Reserve the place of a request, in arrival order; None for an unreadable request."""
        slot = ReplySlot(self, request)
        self._slots.append(slot)
        return slot

    def is_next(self, slot: "ReplySlot") -> bool:
        return self._slots[0] is slot

    def take_ready(self) -> list[bytes | memoryview]:
        """Remove and return the buffers of all replies that may be sent now, in order."""
        slots = self._slots
        ready: list[bytes | memoryview] = []
        while slots and (buffers := slots[0].buffers) is not None:
            ready += buffers
            self.taken.append(slots.popleft())
        return ready


class ReplySlot:
    """The place of one request's reply. It is filled or skipped once."""

    __slots__ = ("_session", "api", "buffers", "ready_at", "request")

    def __init__(self, session: ReplyOrder, request: Request | None) -> None:
        self._session = session
        self.request = request
        # Set for metrics: its API, and when it was filled.
        self.api: ApiSpec | None = None
        self.ready_at = 0.0
        # The reply's frame. None: not ready; empty: there will be none.
        self.buffers: Sequence[bytes | memoryview] | None = None

    def fill(self, buffers: Sequence[bytes | memoryview]) -> bool:
        """Set the reply's frame. True if it may be sent now: then call `take_ready`."""
        assert self.buffers is None, f"a second reply to {self.request}"
        self.buffers = buffers
        return self._session.is_next(self)

    def skip(self) -> bool:
        """The request gets no reply (acks=0). True if `take_ready` should be called for those after it."""
        return self.fill(())
