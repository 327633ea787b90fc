"""Does cost grow with the log? The same figures on a small and a large log, and with one and many partitions."""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.broker_process import BrokerProcess, free_bytes
from bench.fetch import read
from bench.fetch_load import Fetcher
from bench.filling import FilledTopic, fill
from bench.load_client import measure
from bench.produce_load import ProduceSpec, window_for
from bench.report import Column, Report, Table, quantile, ratio
from bench.requests import INT, Client, FetchFrame, ListOffsetsFrame, connect
from bench.scale import KB, MB, MESSAGE_BYTES, Scale, size_text
from bench.warm_memory import WarmMemory

BATCH_BYTES = 16 * KB
MANY_PARTITIONS_LOG_BYTES = 160 * MB
# Reading goes over the end of the log, which is in the page cache however large the log is.
READ_BYTES_MAX = 256 * MB
STARTS = 3
SEED = 20_240_229
# Beyond this a figure is said to grow; below it, two runs of the same thing differ as much.
GROWS_FROM = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    name: str
    unit: str
    # Whether more is better; the ratio shown is always cost over cost.
    is_rate: bool = False


FIGURES = {
    "produce": Figure(name="produce 16 KB", unit="M messages per broker CPU-s", is_rate=True),
    "fetch": Figure(name="fetch 1 MB", unit="GB per broker CPU-s", is_rate=True),
    "offset_first_p50": Figure(name="fetch at a random offset, first visit, p50", unit="us"),
    "offset_p50": Figure(name="fetch at a random offset, again, p50", unit="us"),
    "offset_p99": Figure(name="fetch at a random offset, again, p99", unit="us"),
    "offset_cpu": Figure(name="fetch at a random offset, broker CPU", unit="us"),
    "time_p50": Figure(name="offset for a random time, p50", unit="us"),
    "time_p99": Figure(name="offset for a random time, p99", unit="us"),
    "time_cpu": Figure(name="offset for a random time, broker CPU", unit="us"),
    "stop": Figure(name="clean stop", unit="s"),
    "start": Figure(name="start after a clean stop", unit="s"),
    "start_killed": Figure(name="start after a kill", unit="s"),
    "memory": Figure(name="memory after that start", unit="MB anonymous"),
}


def run(scale: Scale, report: Report) -> None:
    needed = 2 * scale.growth_large_bytes
    small_title = f"{size_text(scale.growth_small_bytes)}, 1 partition"
    large_title = f"{size_text(scale.growth_large_bytes)}, 1 partition"
    many_title = f"{size_text(MANY_PARTITIONS_LOG_BYTES)}, {scale.partitions_many:,} partitions"
    table = Table(
        "growth",
        "Does cost grow with the log?",
        (
            Column("figure", "figure"),
            Column("unit", "unit"),
            Column("small", small_title, _number),
            Column("large", large_title, _number),
            Column("large_ratio", "cost ratio", ratio),
            Column("many", many_title, _number),
            Column("many_ratio", "cost ratio", ratio),
        ),
    )
    small = _measure_log(scale, report, log_bytes=scale.growth_small_bytes, partitions=1)
    large: dict[str, float] = {}
    if free_bytes() > needed:
        large = _measure_log(scale, report, log_bytes=scale.growth_large_bytes, partitions=1)
    else:
        table.notes.append(
            f"Left out: {large_title} wants {size_text(needed)} of free disk, "
            f"there are {size_text(free_bytes())}."
        )
    many = _measure_log(
        scale, report, log_bytes=MANY_PARTITIONS_LOG_BYTES, partitions=scale.partitions_many
    )
    for key in FIGURES:
        table.rows.append(_row(key, small, large, many))
    _say_what_grows(table, "large_ratio", large_title)
    _say_what_grows(table, "many_ratio", many_title)
    report.add(table)


def _measure_log(
    scale: Scale, report: Report, *, log_bytes: int, partitions: int
) -> dict[str, float]:
    title = f"growth, {size_text(log_bytes)} in {partitions:,} partitions"
    found: dict[str, float] = {}
    with BrokerProcess() as broker:
        report.progress(f"{title}: filling")
        topic = fill(broker, log_bytes=log_bytes, batch_bytes=BATCH_BYTES, partitions=partitions)
        report.progress(f"{title}: lookups")
        found |= _look_up_offsets(scale, broker, topic)
        found |= _look_up_times(scale, broker, topic)
        report.progress(f"{title}: fetch, starts, produce")
        found["fetch"] = _fetch(scale, broker, topic)
        found |= _restart(broker)
        with WarmMemory(scale.cell_bytes_max) as memory:
            memory.refill()
            found["produce"] = _produce(scale, broker, topic, memory)
        found |= _restart_killed(broker)
    return found


def _look_up_offsets(scale: Scale, broker: BrokerProcess, topic: FilledTopic) -> dict[str, float]:
    """Time until the first bytes of a reply. The second visit finds its bytes in the page cache for sure."""
    chance = random.Random(SEED)
    offsets = [chance.randrange(topic.offset_end) for _ in range(scale.lookups)]
    with connect(broker.host, broker.port, timeout_s=60.0) as connection:
        fetch = Fetcher(connection, FetchFrame(topic.id, bytes_max=BATCH_BYTES))

        def once(offset: int) -> float:
            began = time.perf_counter()
            fetch(offset)
            return fetch.first_byte_at - began

        first = [once(offset) for offset in offsets]
        again, cpu_s = _timed(broker, once, offsets)
    return {
        "offset_first_p50": quantile(first, 0.5) * 1e6,
        "offset_p50": quantile(again, 0.5) * 1e6,
        "offset_p99": quantile(again, 0.99) * 1e6,
        "offset_cpu": cpu_s * 1e6,
    }


def _look_up_times(scale: Scale, broker: BrokerProcess, topic: FilledTopic) -> dict[str, float]:
    chance = random.Random(SEED)
    times = [
        chance.randrange(topic.time_first_ms, topic.time_end_ms - topic.partitions * 20)
        for _ in range(scale.lookups)
    ]
    frame = ListOffsetsFrame(topic.name)
    with Client(broker.host, broker.port) as client:

        def once(time_ms: int) -> float:
            began = time.perf_counter()
            client.socket.sendall(frame.at(time_ms, 1))
            reply = client.read_frame()
            assert INT.unpack_from(reply) == (1,)
            return time.perf_counter() - began

        for time_ms in times:
            once(time_ms)
        taken, cpu_s = _timed(broker, once, times)
    return {
        "time_p50": quantile(taken, 0.5) * 1e6,
        "time_p99": quantile(taken, 0.99) * 1e6,
        "time_cpu": cpu_s * 1e6,
    }


def _timed(
    broker: BrokerProcess, once: Callable[[int], float], at: Iterable[int]
) -> tuple[list[float], float]:
    """The times of all of them, and the broker's CPU seconds for one."""
    before = broker.cpu()
    taken = [once(one) for one in at]
    return taken, (broker.cpu() - before).total / len(taken)


def _fetch(scale: Scale, broker: BrokerProcess, topic: FilledTopic) -> float:
    batches_back = min(topic.batches, READ_BYTES_MAX // topic.batch_bytes)
    one = read(
        broker,
        topic,
        fetch_bytes=1 * MB,
        seconds=scale.seconds,
        offset_first=topic.offset_end - batches_back * topic.batch_messages,
    )
    return one.bytes_per_cpu_s / 1e9


def _produce(scale: Scale, broker: BrokerProcess, topic: FilledTopic, memory: WarmMemory) -> float:
    one = measure(
        broker,
        ProduceSpec(
            host=broker.host,
            port=broker.port,
            topic=topic.name,
            acks=-1,
            batch_bytes=BATCH_BYTES,
            message_bytes=MESSAGE_BYTES,
            window=window_for(BATCH_BYTES),
            partitions=topic.partitions,
            seconds=scale.seconds,
            bytes_max=scale.cell_bytes_max,
            warm_up_seconds=scale.seconds / 5,
        ),
        memory=memory,
    )
    return one.messages_per_cpu_s / 1e6


def _restart(broker: BrokerProcess) -> dict[str, float]:
    stops, starts = [], []
    for _ in range(STARTS):
        stops.append(broker.stop())
        starts.append(broker.start())
    return {
        # The first stop has something to write down, the others do not.
        "stop": stops[0],
        "start": median(starts),
        "memory": broker.memory().anonymous / 2**20,
    }


def _restart_killed(broker: BrokerProcess) -> dict[str, float]:
    broker.kill()
    return {"start_killed": broker.start()}


def _row(
    key: str, small: dict[str, float], large: dict[str, float], many: dict[str, float]
) -> dict[str, Any]:
    figure = FIGURES[key]

    def cost_ratio(other: dict[str, float]) -> float | None:
        if key not in other:
            return None
        return small[key] / other[key] if figure.is_rate else other[key] / small[key]

    return {
        "figure": figure.name,
        "unit": figure.unit,
        "small": small[key],
        "large": large.get(key),
        "large_ratio": cost_ratio(large),
        "many": many[key],
        "many_ratio": cost_ratio(many),
    }


def _say_what_grows(table: Table, key: str, title: str) -> None:
    grown = [
        f"{row['figure']} ({row[key]:.1f}x)" for row in table.rows if (row[key] or 0) >= GROWS_FROM
    ]
    text = "; ".join(grown) if grown else "nothing"
    table.notes.append(f"Costs at least {GROWS_FROM}x as much with {title}: {text}.")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
