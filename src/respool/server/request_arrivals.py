"""When the bytes of a connection's requests arrived, to measure how long a request waits before it starts."""

from collections import deque
from time import perf_counter


class RequestArrivals:
    __slots__ = ("_arrivals", "_deferred_since", "bytes_received", "bytes_taken")

    def __init__(self) -> None:
        # Counted by the connection: bytes received, and bytes parsed.
        self.bytes_received = 0
        self.bytes_taken = 0
        # When the bytes of waiting requests arrived: position, time.
        self._arrivals: deque[tuple[int, float]] = deque()
        self._deferred_since = 0.0

    def on_waiting(self) -> None:
        """The bytes just received belong to requests that cannot start yet."""
        self._arrivals.append((self.bytes_received, perf_counter()))

    def on_deferred(self) -> None:
        """The last parsed request must wait."""
        if self._deferred_since == 0.0:
            self._deferred_since = self._arrived_at() or perf_counter()

    def queued_s(self, now: float) -> float:
        """How long the request that starts now has waited behind earlier ones."""
        since, self._deferred_since = self._deferred_since, 0.0
        if not since and self._arrivals:
            since = self._arrived_at() or now
        return now - since if since else 0.0

    def _arrived_at(self) -> float | None:
        """When the last parsed request had arrived completely; None: just now."""
        arrivals = self._arrivals
        while arrivals and arrivals[0][0] < self.bytes_taken:
            arrivals.popleft()
        return arrivals[0][1] if arrivals else None
