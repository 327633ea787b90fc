"""Logs each administrative change that a client requested: the change, the client and its address.

```
deleted topic 'rides' [client 'ops-laptop' at 10.0.0.7]
```
The broker that received the request logs it, even if another broker carries it out. Names and values from clients are
quoted and shortened, so that no client can forge a log line.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from respool.broker.audit_trail import AuditTrail
from respool.pacing.rate_limited_log import RateLimitedLog
from respool.wire.codec import Request

logger = logging.getLogger(__name__)

ITEMS_MAX = 10
TEXT_LENGTH_MAX = 200


class AdminLog:
    def __init__(self, audit: AuditTrail | None = None) -> None:
        self._audit = audit
        # Standalone consumers commit with the same request as administrators, at any rate.
        self._commits = RateLimitedLog(logger)

    def log(self, request: Request, what: str) -> None:
        """`what` is the change, in the past tense."""
        logger.info("%s [client %s at %s]", what, *_asked_by(request))
        if self._audit is not None:
            self._audit.changed(request, what)

    def by(self, request: Request) -> Callable[[str], None]:
        """Return `log` for this request, without a reference to it: its records need not stay in memory."""
        asked_by = _asked_by(request)
        return lambda what: logger.info("%s [client %s at %s]", what, *asked_by)

    def log_commit(self, request: Request, group_id: str, offsets: Iterable[str]) -> None:
        """Log that a client outside the group set its offsets. At most once a minute per group."""
        self._commits.log(
            logging.INFO,
            "set offsets of group %s: %s [client %s at %s]",
            quoted(group_id),
            listed(offsets),
            *_asked_by(request),
            now_s=asyncio.get_running_loop().time(),
            key=group_id,
        )


def quoted(text: str | None) -> str:
    """Return a client's text, escaped and shortened."""
    if text is not None and len(text) > TEXT_LENGTH_MAX:
        return f"{text[:TEXT_LENGTH_MAX]!r}…"
    return repr(text)


def listed(items: Iterable[str]) -> str:
    """Return the first few items and the number of the others."""
    every = list(items)
    more = len(every) - ITEMS_MAX
    return ", ".join(every[:ITEMS_MAX]) + (f" and {more} more" if more > 0 else "")


def _asked_by(request: Request) -> tuple[str, str]:
    return quoted(request.client_id), request.client_host.removeprefix("/") or "unknown"
