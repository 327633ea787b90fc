"""What a broker costs when nobody asks for anything, and when many wait for something."""

import socket
import time
from contextlib import ExitStack
from typing import Any

from bench.broker_process import BrokerProcess
from bench.report import Column, Report, Table, mebibytes, percent_fine, seconds
from bench.requests import Client, FetchFrame, connect
from bench.scale import Scale

CPU_BUDGET = 0.01
MEMORY_BUDGET = 150 * 1024 * 1024
QUIET_SECONDS = 1.0
WAITING_CONSUMERS = 100
# As consumers do by default, and each asks again when its time is up.
LONG_POLL_MS = 500

COLUMNS = (
    Column("what", "broker"),
    Column("cpu", "CPU of a core", percent_fine),
    Column("cpu_budget", "budget", percent_fine),
    Column("resident", "RSS, MB", mebibytes),
    Column("anonymous", "of it anonymous", mebibytes),
    Column("memory_budget", "budget", mebibytes),
    Column("start_seconds", "start, s", seconds),
)


def run(scale: Scale, report: Report) -> None:
    table = Table("idle", "Idle", COLUMNS)
    with BrokerProcess():
        # The first start compiles the code; the ones measured find it compiled.
        pass
    with BrokerProcess() as broker, ExitStack() as stack:
        report.progress("idle: fresh")
        table.rows.append(_row("fresh", broker, scale))
        partitions = scale.partitions_many
        with Client(broker.host, broker.port) as client:
            began = time.perf_counter()
            topic_id = client.create_topic("many", partitions=partitions)
            took = time.perf_counter() - began
        report.progress(f"idle: {partitions:,} partitions")
        table.rows.append(_row(f"{partitions:,} partitions, just created", broker, scale))
        broker.stop()
        broker.start()
        report.progress(f"idle: {partitions:,} partitions, restarted")
        table.rows.append(_row(f"{partitions:,} partitions, restarted", broker, scale))
        report.progress(f"idle: {WAITING_CONSUMERS} consumers waiting")
        consumers = [
            stack.enter_context(connect(broker.host, broker.port, timeout_s=10.0))
            for _ in range(WAITING_CONSUMERS)
        ]
        frame = bytes(FetchFrame(topic_id, bytes_max=1024 * 1024, wait_ms=LONG_POLL_MS).at(0, 1))
        what = f"and {WAITING_CONSUMERS} consumers, each asking every {LONG_POLL_MS} ms"
        table.rows.append(_row(what, broker, scale, polling=(consumers, frame)))
        # Not idle by any means, so no budget is named for it.
        table.rows[-1]["cpu_budget"] = None
    table.notes.append(
        f"Creating {partitions:,} partitions took {took:.2f} s. Budgets are for a broker that nobody talks to."
    )
    report.add(table)


def _row(
    what: str,
    broker: BrokerProcess,
    scale: Scale,
    *,
    polling: tuple[list[socket.socket], bytes] | None = None,
) -> dict[str, Any]:
    time.sleep(QUIET_SECONDS)
    before, began = broker.cpu(), time.perf_counter()
    if polling is None:
        time.sleep(scale.idle_seconds)
    else:
        _poll_for(scale.idle_seconds, *polling)
    spent, elapsed = broker.cpu() - before, time.perf_counter() - began
    memory = broker.memory()
    return {
        "what": what,
        "cpu": spent.total / elapsed,
        "cpu_budget": CPU_BUDGET,
        "resident": memory.resident,
        "anonymous": memory.anonymous,
        "memory_budget": MEMORY_BUDGET,
        "start_seconds": broker.start_seconds,
    }


def _poll_for(duration_s: float, consumers: list[socket.socket], frame: bytes) -> None:
    deadline = time.perf_counter() + duration_s
    while time.perf_counter() < deadline:
        for consumer in consumers:
            consumer.sendall(frame)
        for consumer in consumers:
            # The reply is small and comes whole.
            consumer.recv(4096)
