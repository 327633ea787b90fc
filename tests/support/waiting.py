"""Wait for something another process does; a test never sleeps for a fixed time.

The deadlines are for what never happens, and far beyond what a busy machine needs.
"""

import time
from collections.abc import Callable

POLL_S = 0.01


def wait_until(
    holds: Callable[[], object], what: str, *, seconds: float = 60.0, every_s: float = POLL_S
) -> None:
    """Return as soon as it holds; fail with what was waited for when it does not in time."""
    deadline = time.monotonic() + seconds
    asked = time.monotonic()
    while not holds():
        now = time.monotonic()
        assert now < deadline, f"not within {seconds:.0f} s: {what}"
        # What is waited for needs the processor, too: to ask may take longer than a pause.
        time.sleep(max(every_s, now - asked))
        asked = time.monotonic()
