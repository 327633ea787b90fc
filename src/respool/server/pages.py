"""The pages of the HTTP endpoint: /metrics for Prometheus, /healthz and /readyz for probes.

- /healthz: 200 while the process is healthy. The broker's event loop answers, so a reply shows that the loop runs.
- /readyz: 200 while clients are served; else 503, with one reason per line.
"""

import asyncio
from collections.abc import Callable, Iterator
from time import perf_counter

from respool.broker.broker import Broker
from respool.server.http_endpoint import Page, text_page
from respool.server.http_request import OK, UNAVAILABLE

# How many offline partitions are listed by name.
NAMED_MAX = 5
SLICE_S = 0.001
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Health:
    def __init__(self) -> None:
        # What the broker is doing while it does not serve clients; None while it serves.
        self._stage: str | None = "starting: connecting to the metadata store"
        self._broker: Broker | None = None

    def on_starting(self, broker: Broker) -> None:
        self._broker = broker
        self._stage = "starting: opening the data folder"

    def on_joining(self) -> None:
        self._stage = "starting: joining the cluster"

    def on_serving(self) -> None:
        self._stage = None

    def on_stopping(self) -> None:
        self._stage = "stopping"

    async def healthz(self) -> Page:
        if self._broker is not None and self._broker.failed.done():
            return text_page(UNAVAILABLE, f"the broker stops: {self._broker.failed.result()!r}")
        return text_page(OK, "ok")

    async def readyz(self) -> Page:
        reasons = self.reasons()
        return text_page(UNAVAILABLE, "\n".join(reasons)) if reasons else text_page(OK, "ready")

    def reasons(self) -> list[str]:
        """Return why clients are not served, or not completely; empty if all is well."""
        if self._stage is not None:
            return [self._stage_text(self._stage)]
        assert self._broker is not None
        return [*_membership_reasons(self._broker), *_offline_reasons(self._broker)]

    def _stage_text(self, stage: str) -> str:
        broker = self._broker
        if broker is not None and broker.opening is not None:
            opened, wanted = broker.opening
            return f"starting: recovering logs, {opened} of {wanted} partitions are open"
        return stage


def _membership_reasons(broker: Broker) -> list[str]:
    if broker.member is None:
        return []
    if broker.member.epoch is None:
        return [f"broker {broker.id} is not registered in the cluster"]
    if not broker.may_act():
        return ["the broker's lease is not valid: the metadata store did not confirm it in time"]
    me = broker.image.brokers.get(broker.id)
    return [f"broker {broker.id} is draining"] if me is not None and me.is_draining else []


def _offline_reasons(broker: Broker) -> list[str]:
    offline = [one for one in broker.partitions if not one.is_online]
    if not offline:
        return []
    named = [f"{one.name} ({one.failure})" for one in offline[:NAMED_MAX]]
    more = len(offline) - len(named)
    rest = f" and {more} more" if more else ""
    return [f"{len(offline)} partitions are offline: {', '.join(named)}{rest}"]


class MetricsPage:
    """The page that Prometheus scrapes, generated in slices, so that the event loop can do other work in between.

    A scrape of many series takes tens of milliseconds. A slice takes `SLICE_S` plus one piece at most; then other tasks
    of the loop run. Scrapes that arrive while a page is being generated get that page.
    """

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
