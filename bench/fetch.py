"""What reading costs the broker: bytes per second of its CPU, from the page cache and from the disk."""

from typing import Any

from bench.broker_process import BrokerProcess
from bench.fetch_load import FetchSpec
from bench.filling import FilledTopic, fill
from bench.load_client import Measured, measure
from bench.report import Column, Report, Table, gigabytes, megabytes, microseconds, percent, ratio
from bench.scale import BATCH_BYTES, KB, MB, Scale, size_text

TARGET_BYTES_PER_CPU_S = 1e9
# One megabyte a partition is what consumers ask for by default; fifty in all is their default for a whole fetch.
FETCH_BYTES = (1 * MB, 50 * MB)
COLD_BATCH_BYTES = 16 * KB

COLUMNS = (
    Column("batch", "batches of"),
    Column("fetch", "a fetch of"),
    Column("source", "from"),
    Column("connections", "conns"),
    Column("bytes_per_s", "MB/s", megabytes),
    Column("bytes_per_cpu_s", "GB per broker CPU-s", gigabytes),
    Column("target", "target", gigabytes),
    Column("of_target", "of target", ratio),
    Column("reply_bytes", "MB a reply", lambda value: f"{value / 1e6:.2f}"),
    Column("cpu_s_per_request", "broker us a fetch", microseconds),
    Column("broker_cores", "broker CPU", percent),
    Column("system_share", "of it kernel", percent),
    Column("client_cores", "client CPU", percent),
)


def run(scale: Scale, report: Report) -> None:
    table = Table("fetch", "Fetch: the whole log read back, records thrown away", COLUMNS)
    for batch_bytes in BATCH_BYTES:
        with BrokerProcess() as broker:
            report.progress(f"fetch: filling {size_text(scale.fetch_log_bytes)}")
            topic = fill(broker, log_bytes=scale.fetch_log_bytes, batch_bytes=batch_bytes)
            for fetch_bytes in FETCH_BYTES:
                for connections in scale.connections:
                    report.progress(
                        f"fetch {size_text(fetch_bytes)} of {size_text(batch_bytes)} batches x{connections}"
                    )
                    one = read(
                        broker,
                        topic,
                        fetch_bytes=fetch_bytes,
                        seconds=scale.seconds,
                        connections=connections,
                    )
                    table.rows.append(
                        _row(batch_bytes, fetch_bytes, "page cache", connections, one)
                    )
                if batch_bytes == COLD_BATCH_BYTES:
                    broker.forget_cached()
                    one = read(
                        broker,
                        topic,
                        fetch_bytes=fetch_bytes,
                        seconds=scale.seconds,
                        is_once=True,
                        warm_up_seconds=0.0,
                    )
                    table.rows.append(_row(batch_bytes, fetch_bytes, "disk", 1, one))
    table.notes.append(
        "A broker caps a reply at its fetch_bytes_max; one fetch at a time on each connection."
    )
    report.add(table)


def read(
    broker: BrokerProcess,
    topic: FilledTopic,
    *,
    fetch_bytes: int,
    seconds: float,
    connections: int = 1,
    offset_first: int = 0,
    is_once: bool = False,
    warm_up_seconds: float | None = None,
) -> Measured:
    return measure(
        broker,
        FetchSpec(
            host=broker.host,
            port=broker.port,
            topic_id=str(topic.id),
            bytes_max=fetch_bytes,
            connections=connections,
            offset_first=offset_first,
            offset_end=topic.offset_end,
            batch_bytes=topic.batch_bytes,
            batch_messages=topic.batch_messages,
            seconds=seconds,
            is_once=is_once,
            warm_up_seconds=seconds / 5 if warm_up_seconds is None else warm_up_seconds,
        ),
    )


def _row(
    batch_bytes: int, fetch_bytes: int, source: str, connections: int, one: Measured
) -> dict[str, Any]:
    return {
        "batch": size_text(batch_bytes),
        "fetch": size_text(fetch_bytes),
        "source": source,
        "connections": connections,
        "bytes_per_s": one.bytes_per_s,
        "bytes_per_cpu_s": one.bytes_per_cpu_s,
        "target": TARGET_BYTES_PER_CPU_S,
        "of_target": one.bytes_per_cpu_s / TARGET_BYTES_PER_CPU_S,
        "reply_bytes": one.bytes / one.requests,
        "cpu_s_per_request": one.cpu_s_per_request,
        "broker_cores": one.broker_cpu_s / one.seconds,
        "system_share": one.broker_system_s / one.broker_cpu_s,
        "client_cores": one.client_cpu_s / one.seconds,
    }
