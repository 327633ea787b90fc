"""What a connection logs: why it was closed or lost, and requests that failed unexpectedly."""

import logging
from asyncio import AbstractEventLoop

from respool.pacing.rate_limited_log import RateLimitedLog
from respool.server.request_failures import log_unexpected
from respool.wire.codec import Request

logger = logging.getLogger(__name__)


class ConnectionLog:
    __slots__ = ("_loop", "_refusals", "peer")

    def __init__(self, refusals: RateLimitedLog, *, loop: AbstractEventLoop) -> None:
        """`refusals` is shared by all connections of a listener."""
        self._refusals = refusals
        self._loop = loop
        # The client's address.
        self.peer = "unknown"

    def closed(self, reason: str, *, kind: str = "", level: int = logging.WARNING) -> None:
        """`kind` groups reasons that differ only in details: each peer and kind is logged once a minute."""
        message = "closed the connection from %s: %s"
        if level >= logging.WARNING:
            key = f"{self.peer} {kind or reason}"
            self._refusals.log(level, message, self.peer, reason, now_s=self._loop.time(), key=key)
        else:
            logger.log(level, message, self.peer, reason)

    def lost(self, error: Exception) -> None:
        logger.debug("connection from %s lost: %s", self.peer, error)

    def failed(self, request: Request, error: BaseException) -> None:
        log_unexpected(self._refusals, request, error, now_s=self._loop.time())
