"""Measures the event loop's delay: how late a timer fires that has to wait for other work."""

import asyncio
from time import perf_counter
from typing import NoReturn

from respool.ports.metrics import Metrics

EVERY_S = 0.1
# In seconds. The loop's own timers have a resolution of a millisecond.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class LoopDelay:
    def __init__(self, metrics: Metrics) -> None:
        self._delay = metrics.histogram(
            "respool_loop_delay_seconds",
            "How late a timer of the broker's loop is called; looked at ten times a second.",
            buckets=BOUNDS,
        )

    async def run(self) -> NoReturn:
        while True:
            began = perf_counter()
            await asyncio.sleep(EVERY_S)
            # A test may have advanced the loop's time; then the timer is early.
            self._delay.observe(max(0.0, perf_counter() - began - EVERY_S))
