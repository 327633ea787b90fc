"""Memory under a flood: crowds that ask for much and read nothing, beside producers that never stop.

What must hold: the process grows by its settings, not by the number of its clients. The bound compared with is what the
broker held when idle, plus `memory_bytes_max` and `tail_bytes_max`, plus a receive buffer of 64 KB for each connection.
"""

import socket
import time
from contextlib import ExitStack
from typing import Any

from bench.broker_process import BrokerProcess, Memory, MemoryWatch
from bench.filling import FilledTopic, fill
from bench.load_client import LoadClient, LoadFailed, Measured, measured
from bench.produce_load import ProduceSpec
from bench.report import Column, Report, Table, mebibytes, megabytes, ratio
from bench.requests import CORRELATION_AT, INT, FetchFrame, connect
from bench.scale import KB, MB, MESSAGE_BYTES, Scale

MEMORY_BYTES_MAX = 64 * MB
TAIL_BYTES_MAX = 16 * MB
RECEIVE_BUFFER_BYTES = 64 * KB
LOG_BYTES = 128 * MB
PRODUCERS = 8
PRODUCER_WINDOW = 4
# Each slow consumer asks this many times before anything comes back; the broker need not take them all in.
REQUESTS_EACH = 4
FETCH_BYTES = 50 * MB
SETTINGS = {
    "memory_bytes_max": MEMORY_BYTES_MAX,
    "tail_bytes_max": TAIL_BYTES_MAX,
    "frame_bytes_max": 32 * MB,
    # A producer that gets no memory for its request is sent away after this; the bench does not wait longer.
    "frame_arrival_ms": 15_000,
}

COLUMNS = (
    Column("what", "flood"),
    Column("idle", "idle RSS, MB", mebibytes),
    Column("peak", "peak RSS, MB", mebibytes),
    Column("bound", "idle + bound, MB", mebibytes),
    Column("of_bound", "peak of that", ratio),
    Column("peak_anonymous", "peak anonymous, MB", mebibytes),
    Column("after", "RSS afterwards, MB", mebibytes),
    Column("produced_bytes_per_s", "produced, MB/s", megabytes),
    Column("problem", "producers"),
)


def run(scale: Scale, report: Report) -> None:
    table = Table(
        "flood", "Memory under a flood, memory_bytes_max = 64 MB, tail_bytes_max = 16 MB", COLUMNS
    )
    for what, consumers, producers in (
        ("producers only", 0, PRODUCERS),
        ("slow consumers only", scale.flood_consumers, 0),
        ("slow consumers and producers", scale.flood_consumers, PRODUCERS),
        ("three times as many consumers, and producers", 3 * scale.flood_consumers, PRODUCERS),
    ):
        report.progress(f"flood: {what}")
        table.rows.append(_flood(scale, what, consumers=consumers, producers=producers))
    table.notes.append(
        f"{scale.flood_consumers} connections ask {REQUESTS_EACH} times for 50 MB and read nothing; "
        f"{PRODUCERS} producers send 1 MB batches, {PRODUCER_WINDOW} under way each, "
        f"for {scale.flood_seconds:.0f} s (flush=os)."
    )
    report.add(table)


def _flood(scale: Scale, what: str, *, consumers: int, producers: int) -> dict[str, Any]:
    with BrokerProcess(SETTINGS) as broker, ExitStack() as stack:
        topic = fill(broker, log_bytes=LOG_BYTES, batch_bytes=256 * KB)
        broker.stop()
        broker.start()
        idle = broker.memory()
        with MemoryWatch(broker) as watch:
            for _ in range(consumers):
                _ask_and_never_read(stack.enter_context(_connect(broker)), topic)
            made, problem = None, "still served"
            if producers:
                try:
                    made = _produce(scale, broker, topic, connections=producers)
                except LoadFailed as error:
                    problem = str(error)
            else:
                problem = "none"
                time.sleep(scale.flood_seconds)
        stack.close()
        time.sleep(1.0)
        after = broker.memory()
    return _row(what, idle, watch, after, connections=consumers + producers, made=made) | {
        "problem": problem
    }


def _connect(broker: BrokerProcess) -> socket.socket:
    return connect(broker.host, broker.port, timeout_s=10.0)


def _ask_and_never_read(consumer: socket.socket, topic: FilledTopic) -> None:
    frame = FetchFrame(topic.id, bytes_max=FETCH_BYTES).at(0, 0)
    for correlation_id in range(REQUESTS_EACH):
        INT.pack_into(frame, CORRELATION_AT, correlation_id)
        consumer.sendall(frame)


def _produce(
    scale: Scale, broker: BrokerProcess, topic: FilledTopic, *, connections: int
) -> Measured:
    client = LoadClient.of(
        ProduceSpec(
            host=broker.host,
            port=broker.port,
            topic=topic.name,
            acks=-1,
            batch_bytes=1 * MB,
            message_bytes=MESSAGE_BYTES,
            connections=connections,
            window=PRODUCER_WINDOW,
            seconds=scale.flood_seconds,
            bytes_max=scale.cell_bytes_max,
        )
    )
    try:
        client.wait_until_ready()
        before = broker.cpu()
        client.go()
        return measured(client.wait_for_result(), broker.cpu() - before)
    finally:
        client.end()


def _row(
    what: str,
    idle: Memory,
    watch: MemoryWatch,
    after: Memory,
    *,
    connections: int,
    made: Measured | None,
) -> dict[str, Any]:
    kept = MEMORY_BYTES_MAX + TAIL_BYTES_MAX
    bound = idle.resident + kept + connections * RECEIVE_BUFFER_BYTES
    return {
        "what": what,
        "idle": idle.resident,
        "peak": watch.resident_peak,
        "bound": bound,
        "of_bound": watch.resident_peak / bound,
        "peak_anonymous": watch.anonymous_peak,
        "after": after.resident,
        "produced_bytes_per_s": made.bytes_per_s if made else None,
    }
