import asyncio
from collections.abc import Iterator

import pytest

from respool.server import gauges
from respool.server.gauges import LOOP_DELAY_EVERY_S, LoopDelay
from respool.sim.runtime.simulated_metrics import SimMetrics


def test_what_a_timer_is_late_by_is_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    late = (0.0, 0.25, -5.0)
    monkeypatch.setattr(gauges, "perf_counter", _times(late).__next__)

    async def no_sleep(_: float) -> None:
        """The stopwatch says how long it took."""

    monkeypatch.setattr(asyncio, "sleep", no_sleep)
    metrics = SimMetrics()
    with pytest.raises(RuntimeError):
        asyncio.run(LoopDelay(metrics).run())
    observed = metrics.observed("respool_loop_delay_seconds")
    assert observed == pytest.approx([0, 0.25, 0])


def _times(late: tuple[float, ...]) -> Iterator[float]:
    for each in late:
        yield 10.0
        yield 10.0 + LOOP_DELAY_EVERY_S + each
