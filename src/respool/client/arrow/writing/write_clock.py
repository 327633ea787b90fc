"""The clock that deadlines of writing are told in, and when a failed try is followed by the next."""

import random
import time

RETRY_FIRST_MS = 20
RETRY_LONGEST_MS = 1_000


def now_ms() -> int:
    """It never goes back, and says nothing about the time of day."""
    return int(time.monotonic() * 1000)


def retry_at_ms(tries: int) -> int:
    """After that many tries: longer each time, and not at the same moment as others who met the same broker."""
    wait_ms = min(RETRY_LONGEST_MS, RETRY_FIRST_MS << min(max(tries - 1, 0), 10))
    return now_ms() + round(wait_ms * random.uniform(0.8, 1.2))  # noqa: S311
