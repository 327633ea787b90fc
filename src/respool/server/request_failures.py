"""Requests that failed unexpectedly: which failures stop the broker, and how they are named in the log."""

import logging

from respool.pacing.rate_limited_log import RateLimitedLog
from respool.wire.codec import Request


def is_broken_invariant(error: BaseException) -> bool:
    """True for an AssertionError, also inside an exception group."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(AssertionError) is not None
    return isinstance(error, AssertionError)


def log_unexpected(
    log: RateLimitedLog, request: Request, error: BaseException, *, now_s: float
) -> None:
    """Log the request and its client, without the request's content.

    Once a minute for each API, not for each peer: it is our bug, and the traceback is long.
    """
    log.log(
        logging.ERROR,
        "%s v%d of client %r failed",
        request.api.name,
        request.version,
        request.client_id,
        now_s=now_s,
        key=request.api.name,
        exc_info=error,
    )
