"""Exponential backoff with jitter, capped. Pure: chance comes from the caller.

```python
WAITS = Backoff(first=20, longest=1_000, jitter=0.2)
wait_ms = WAITS.delay(failures, random=rng.random)
```
"""

from collections.abc import Callable
from dataclasses import dataclass

# Enough for any cap; bounds the arithmetic.
_DOUBLINGS_MAX = 30


def no_jitter() -> float:
    """A source of chance that always draws the middle of the range."""
    return 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The delay after the first failure, and the longest one; in seconds or milliseconds, as the caller likes."""

    first: float
    longest: float
    # A delay is drawn from `delay * (1 - jitter) ... delay * (1 + jitter)`, so that many callers that failed together
    # do not all retry together.
    jitter: float = 0.0

    def __post_init__(self) -> None:
        assert 0 <= self.first <= self.longest, (self.first, self.longest)
        assert 0 <= self.jitter < 1, self.jitter

    def delay(self, failures: int, *, random: Callable[[], float] = no_jitter) -> float:
        """Return the delay after this number of consecutive failures, at least 1; `random` draws from 0 ... 1."""
        assert failures >= 1, failures
        delay = min(self.longest, self.first * (1 << min(failures - 1, _DOUBLINGS_MAX)))
        return delay * (1 + self.jitter * (2 * random() - 1))
