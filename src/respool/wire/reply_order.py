"""Replies leave a connection in the order its requests came, whatever order they are ready in.

Clients rely on it: they take the first reply for that to their oldest request. Sans-IO: open a slot when a request
comes, fill it when the reply is there, take what may leave.
"""

from collections import deque
from collections.abc import Sequence

from respool.wire.api_table import ApiSpec
from respool.wire.codec import Request


class Session:
    """The order of one connection's replies."""

    __slots__ = ("_slots", "taken")

    def __init__(self) -> None:
        # Whose replies were taken, for whoever wants to know; the reader clears it.
        self.taken: list[ReplySlot] = []
        # Requests whose reply is not there yet, or may not leave yet; oldest first.
        self._slots: deque[ReplySlot] = deque()

    @property
    def waiting(self) -> int:
        """How many requests have no reply taken yet."""
        return len(self._slots)

    def open_reply(self, request: Request | None = None) -> "ReplySlot":
        """Give a request its place in the order. Call it as requests come; one that could not be read has no name."""
        slot = ReplySlot(self, request)
        self._slots.append(slot)
        return slot

    def is_next(self, slot: "ReplySlot") -> bool:
        return self._slots[0] is slot

    def take_ready(self) -> list[bytes | memoryview]:
        """Return the buffers of all replies that may leave now, in order, and forget them."""
        slots = self._slots
        ready: list[bytes | memoryview] = []
        while slots and (buffers := slots[0].buffers) is not None:
            ready += buffers
            self.taken.append(slots.popleft())
        return ready


class ReplySlot:
    """The place of one request's reply. It is filled or skipped, once."""

    __slots__ = ("_session", "api", "buffers", "ready_at", "request")

    def __init__(self, session: Session, request: Request | None) -> None:
        self._session = session
        self.request = request
        # Set by who counts: of which API it is, and when it was filled.
        self.api: ApiSpec | None = None
        self.ready_at = 0.0
        # The reply's frame. None: it is not there yet; empty: there will be none.
        self.buffers: Sequence[bytes | memoryview] | None = None

    def fill(self, buffers: Sequence[bytes | memoryview]) -> bool:
        """Put the reply's frame here. True if it may leave now: `take_ready` then has something to give."""
        assert self.buffers is None, f"there is a reply already to {self.request}"
        self.buffers = buffers
        return self._session.is_next(self)

    def skip(self) -> bool:
        """This request gets no reply (acks=0). True if `take_ready` should be asked, for those behind it."""
        return self.fill(())
