import asyncio
from collections.abc import Iterator

import pytest

from respool.server import metrics_page
from respool.server.metrics_page import MetricsPage


def test_the_loop_turns_whenever_a_slice_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    time_s = 0.0
    turns = 0
    monkeypatch.setattr(metrics_page, "perf_counter", lambda: time_s)

    def pieces() -> Iterator[bytes]:
        nonlocal time_s
        for number in range(10):
            time_s += metrics_page.SLICE_S / 2
            yield str(number).encode()

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def story() -> None:
        counting = asyncio.ensure_future(count_turns())
        await asyncio.sleep(0)
        page = await MetricsPage(pieces).make()
        counting.cancel()
        assert b"".join(page.body) == b"0123456789"
        assert page.content_type.startswith("text/plain; version=0.0.4")

    asyncio.run(story())
    assert turns >= 5


def test_scrapes_at_the_same_time_share_one_making() -> None:
    makings = 0

    def pieces() -> Iterator[bytes]:
        nonlocal makings
        makings += 1
        yield b"x"

    async def story() -> None:
        page = MetricsPage(pieces)
        first = asyncio.ensure_future(page.make())
        second, third = asyncio.ensure_future(page.make()), asyncio.ensure_future(page.make())
        await asyncio.sleep(0)
        # Whoever came first may go.
        first.cancel()
        assert (await second).body == (await third).body == [b"x"]
        assert makings == 1
        await page.make()
        assert makings == 2

    asyncio.run(story())
