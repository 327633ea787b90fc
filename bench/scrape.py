"""What a scrape costs: how long it takes, and for how long at once it holds the broker's loop.

The broker runs in this process, on uvloop as `respool serve` does, so that a task beside it on the same loop can tell
how long it was kept from its turn.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter, thread_time
from typing import Self
from urllib.parse import urlsplit

import uvloop

from bench.broker_process import BENCH_FOLDER
from bench.report import Column, Report, Table, count, megabytes_fine, milliseconds
from bench.scale import Scale
from respool.broker.broker import Broker
from respool.coordination.groups.group_requests import (
    RETENTION_BY_BROKER,
    OffsetCommit,
    OffsetToCommit,
    TopicToCommit,
)
from respool.model.ids import ZERO_TOPIC_ID, LeaderEpoch, Offset
from respool.model.settings import Settings
from respool.node.node import Drivers, collect_rarely, serve
from respool.records.build import NewRecord, build_batch
from respool.records.validate import check_produced
from respool.server.listener import Listener

SCRAPE_BUDGET_S = 0.1
HOLD_BUDGET_S = 0.005
SCRAPES = 20
# Topics, partitions of each, and groups that have read half of all.
SHAPES = ((1_000, 1, 1), (1_000, 3, 3))

COLUMNS = (
    Column("what", "broker"),
    Column("series", "series", count),
    Column("bytes", "text, MB", megabytes_fine),
    Column("scrape_s", "scrape, median", milliseconds),
    Column("scrape_max_s", "slowest", milliseconds),
    Column("scrape_budget_s", "budget", milliseconds),
    Column("hold_s", "loop held at once", milliseconds),
    Column("refresh_s", "lag looked up", milliseconds),
    Column("refresh_hold_s", "loop held at once", milliseconds),
    Column("hold_budget_s", "budget", milliseconds),
)


def run(scale: Scale, report: Report) -> None:
    del scale
    table = Table("scrape", "Scrapes of metrics", COLUMNS)
    for topics, partitions, groups in SHAPES:
        what = f"{topics:,} topics of {partitions}, {groups} groups in all of them"
        report.progress(f"scrape: {what}")
        table.rows.append({"what": what} | uvloop.run(_measure(topics, partitions, groups)))
    table.notes.append(
        "Loop held: the most CPU time of the loop's thread between two turns of another task. The scrape is read on "
        "the same loop."
    )
    report.add(table)


async def _measure(topics: int, partitions: int, groups: int) -> dict[str, object]:
    BENCH_FOLDER.mkdir(exist_ok=True)
    folder = tempfile.mkdtemp(prefix="data-", dir=BENCH_FOLDER)
    try:
        async with _Served(folder) as served:
            await _fill(served.broker, topics, partitions, groups)
            # As `respool serve` does when it has started.
            collect_rarely()
            refreshing = await _watched(served.broker.metrics.refresh)
            # The second finds the times that the first has looked up; groups that read on need new ones.
            sizes, holds, times = [], [], []
            for _ in range(SCRAPES):
                scraped = await _watched(lambda: _scrape(served.url))
                times.append(scraped.took_s)
                holds.append(scraped.hold_s)
                sizes.append(scraped.result)
            body = sizes[-1]
            return {
                "series": sum(not line.startswith(b"#") for line in body.splitlines()),
                "bytes": len(body),
                "scrape_s": median(times),
                "scrape_max_s": max(times),
                "scrape_budget_s": SCRAPE_BUDGET_S,
                "hold_s": max(holds),
                "refresh_s": refreshing.took_s,
                "refresh_hold_s": refreshing.hold_s,
                "hold_budget_s": HOLD_BUDGET_S,
            }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Served:
    """A broker of this process, while the context lasts."""

    def __init__(self, folder: str) -> None:
        self._settings = Settings.from_flat(
            data=folder, listen="127.0.0.1:0", metrics_listen="127.0.0.1:0"
        )
        self._asked_to_stop = asyncio.Event()
        self.url = ""

    async def __aenter__(self) -> Self:
        serving: asyncio.Future[Broker] = asyncio.get_running_loop().create_future()

        def on_serving(broker: Broker, _: Listener) -> None:
            serving.set_result(broker)

        def on_metrics_listening(host: str, port: int) -> None:
            self.url = f"http://{host}:{port}/metrics"

        self._running = asyncio.ensure_future(
            serve(
                self._settings,
                self._asked_to_stop,
                on_serving=on_serving,
                drivers=Drivers(on_metrics_listening=on_metrics_listening),
            )
        )
        self.broker = await serving
        return self

    async def __aexit__(self, *_: object) -> None:
        self._asked_to_stop.set()
        await self._running


async def _fill(broker: Broker, topics: int, partitions: int, groups: int) -> None:
    now_ms = broker.clock.now_ms()
    data = build_batch([NewRecord(value=b"v" * 100, timestamp_ms=now_ms)] * 10)
    batch = check_produced(data, bytes_max=len(data))
    for number in range(topics):
        await broker.topics.create(f"topic-{number}", partition_count=partitions, overrides={})
        for partition in broker.partitions.of_topic(f"topic-{number}"):
            partition.append(batch, now_ms=now_ms)
    await broker.groups.runtimes.ensure_topic()
    places = tuple(OffsetToCommit(one, Offset(5), LeaderEpoch(-1), "") for one in range(partitions))
    for number in range(groups):
        await broker.groups.ask(
            f"group-{number}",
            OffsetCommit(
                group_id=f"group-{number}",
                generation=-1,
                member_id="",
                instance_id=None,
                topics=tuple(
                    TopicToCommit(f"topic-{one}", places, ZERO_TOPIC_ID) for one in range(topics)
                ),
                retention_ms=RETENTION_BY_BROKER,
                knows_member_epochs=True,
            ),
        )


@dataclass(frozen=True, slots=True)
class _Watched:
    result: bytes
    took_s: float
    # The longest that another task on the loop waited for its turn meanwhile.
    hold_s: float


async def _watched(work: Callable[[], Awaitable[bytes | None]]) -> _Watched:
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        # The thread's own CPU time: that another process had the core is not the scrape's doing.
        before = thread_time()
        while True:
            await asyncio.sleep(0)
            now = thread_time()
            longest = max(longest, now - before)
            before = now

    ticking = asyncio.ensure_future(tick())
    began = perf_counter()
    result = await work()
    took_s = perf_counter() - began
    ticking.cancel()
    return _Watched(result or b"", took_s, longest)


async def _scrape(url: str) -> bytes:
    """On the same loop: another thread would hold Python's lock for up to 5 ms at once, and be taken for the broker."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: bench\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    writer.close()
    return body
