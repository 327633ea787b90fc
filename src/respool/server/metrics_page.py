"""The page that Prometheus scrapes, generated in slices, so that the event loop can do other work in between.

A scrape of many series takes tens of milliseconds. A slice takes `SLICE_S` plus one piece at most; then other tasks of
the loop run. Scrapes that arrive while a page is being generated get that page.
"""

import asyncio
from collections.abc import Callable, Iterator
from time import perf_counter

from respool.server.http_endpoint import Page

SLICE_S = 0.001
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsPage:
    def __init__(
        self, pieces: Callable[[], Iterator[bytes]], *, prepare: Callable[[], None] = lambda: None
    ) -> None:
        """`pieces` yields the text of one scrape piece by piece; before that, `prepare` runs in another thread."""
        self._pieces = pieces
        self._prepare = prepare
        self._making: asyncio.Task[Page] | None = None

    async def make(self) -> Page:
        if self._making is None or self._making.done():
            self._making = asyncio.get_running_loop().create_task(self._make())
        # A cancelled scrape must not cancel the page, since other scrapes wait for the same one.
        return await asyncio.shield(self._making)

    async def _make(self) -> Page:
        await asyncio.to_thread(self._prepare)
        body: list[bytes] = []
        slice_ends = perf_counter() + SLICE_S
        for piece in self._pieces():
            body.append(piece)
            if perf_counter() >= slice_ends:
                await asyncio.sleep(0)
                slice_ends = perf_counter() + SLICE_S
        return Page(body, content_type=CONTENT_TYPE)
