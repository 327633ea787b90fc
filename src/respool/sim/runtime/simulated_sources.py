"""A simulated machine's clock and random numbers."""

import asyncio
from random import Random
from uuid import UUID


class NodeClock:
    """A `ports.clock.Clock` of one machine, on the event loop's time.

    The wall clocks of machines differ, and an operator or NTP may set them forward or back. The monotonic time never
    jumps, but its rate differs between machines.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        started_at_ms: int = 1_700_000_000_000,
        skew_ms: int = 0,
        rate: float = 1.0,
    ) -> None:
        """`rate`: the clock's speed; at 1.01 it gains 10 ms every second."""
        self._loop = loop
        self._rate = rate
        self._started_at_ms = started_at_ms
        # The error of the wall clock.
        self.skew_ms = skew_ms
        # The latest time that anybody has read here.
        self.latest_ms = 0

    def now_ms(self) -> int:
        now_ms = self._started_at_ms + self.skew_ms + self.monotonic_ms()
        self.latest_ms = max(self.latest_ms, now_ms)
        return now_ms

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000 * self._rate)

    def stopwatch_s(self) -> float:
        return self.monotonic_ms() / 1000

    def boot_ms(self) -> int:
        return self.monotonic_ms()


def rng_of(who: str, seed: int | str) -> Random:
    """Return the random source of one participant: its draws do not change the draws of the others."""
    return Random(f"{who} {seed}")  # noqa: S311 - nothing here is secret


class SimRandomSource:
    """A `ports.rng.RandomSource`."""

    def __init__(self, seed: int | str = 0) -> None:
        self._random = rng_of("broker", seed)

    def uuid(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)

    def below(self, limit: int) -> int:
        return self._random.randrange(limit)
