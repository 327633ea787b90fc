"""What a connection asks of the listener that accepted it."""

import asyncio
from typing import Protocol, TypeVar

from respool.broker.outcome import Reply
from respool.pacing.rate_limited_log import RateLimitedLog
from respool.server.traffic import TrafficCounter

ConnectionT_contra = TypeVar("ConnectionT_contra", contravariant=True)


class ConnectionOwner(Protocol[ConnectionT_contra]):
    """The listener: counts connections and keeps their tasks."""

    def on_connected(self, connection: ConnectionT_contra) -> bool:
        """Return False to refuse the connection, because there are too many."""
        ...

    def on_disconnected(self, connection: ConnectionT_contra) -> None: ...

    def on_admitted(self, connection: ConnectionT_contra) -> None:
        """The connection is no longer one of a stranger."""
        ...

    def may_grow(self, connection: ConnectionT_contra, amount: int) -> bool:
        """True if the buffer of a stranger's connection may grow by this number of bytes. If not, it was closed."""
        ...

    def own(self, task: "asyncio.Task[Reply]") -> None: ...

    @property
    def traffic(self) -> TrafficCounter: ...

    @property
    def refusals(self) -> RateLimitedLog:
        """The log of closed and refused connections."""
        ...
