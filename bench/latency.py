"""Latency when there is little to do: an acknowledged write, and the way from a write to a reader who waits for it."""

import os
import time
from collections.abc import Callable
from typing import Any

from bench.broker_process import BENCH_FOLDER, BrokerProcess
from bench.fetch_load import Fetcher
from bench.report import Column, Report, Table, microseconds, quantile
from bench.requests import INT, Batch, Client, FetchFrame, ProduceFrame, connect
from bench.scale import MESSAGE_BYTES, Scale

TOPIC = "bench"
# Between two requests: low load, and a waiting fetch has surely arrived before the next write.
PAUSE_SECONDS = 0.003
WARM_UP = 50

COLUMNS = (
    Column("what", "what"),
    Column("flush", "flush"),
    Column("p50", "p50, us", microseconds),
    Column("p99", "p99, us", microseconds),
    Column("largest", "largest, us", microseconds),
)


def run(scale: Scale, report: Report) -> None:
    table = Table("latency", "Latency at low load, one 100-byte message at a time", COLUMNS)
    report.progress("latency: the disk's own sync")
    table.rows.append(_row("the disk alone: write and fdatasync", "-", _disk_syncs(scale)))
    for flush in ("always", "os"):
        report.progress(f"latency: flush={flush}")
        with BrokerProcess() as broker, Client(broker.host, broker.port) as client:
            client.create_topic(TOPIC, settings={"respool.flush": flush})
            pair = _Pair(broker, client)
            for acks, text in ((1, "1"), (-1, "all")):
                taken = _sampled(scale, pair.round_trip(acks))
                table.rows.append(_row(f"produce acks={text}, round trip", flush, taken))
            taken = _sampled(scale, pair.end_to_end)
            table.rows.append(_row("produce to a waiting fetch's reply", flush, taken))
    table.notes.append(
        f"{scale.latency_samples} samples each, {PAUSE_SECONDS * 1000:.0f} ms apart; "
        "the times include the client's own Python."
    )
    report.add(table)


def _sampled(scale: Scale, once: Callable[[], float]) -> list[float]:
    for _ in range(WARM_UP):
        once()
    taken = []
    for _ in range(scale.latency_samples):
        taken.append(once())
        time.sleep(PAUSE_SECONDS)
    return taken


class _Pair:
    """A producer and a consumer, each with a connection of its own."""

    def __init__(self, broker: BrokerProcess, client: Client) -> None:
        self._client = client
        self._batch = Batch.of_size(
            MESSAGE_BYTES + 80, message_bytes=MESSAGE_BYTES, time_ms=int(time.time() * 1000)
        )
        assert self._batch.messages == 1
        frame = FetchFrame(client.topic_id(TOPIC), bytes_max=1024 * 1024, wait_ms=10_000)
        self._fetch = Fetcher(connect(broker.host, broker.port, timeout_s=30.0), frame)

    def round_trip(self, acks: int) -> Callable[[], float]:
        frame = ProduceFrame(TOPIC, self._batch, acks=acks)

        def once() -> float:
            began = time.perf_counter()
            self._client.socket.sendall(frame.data)
            reply = self._client.read_frame()
            took = time.perf_counter() - began
            assert reply[frame.reply_error_at - 4 : frame.reply_error_at - 2] == b"\0\0"
            return took

        return once

    def end_to_end(self) -> float:
        frame = ProduceFrame(TOPIC, self._batch, acks=-1)
        self._fetch.send(self._client.end_offset(TOPIC))
        # Let the fetch begin to wait.
        time.sleep(PAUSE_SECONDS)
        began = time.perf_counter()
        self._client.socket.sendall(frame.data)
        fetched = self._fetch.receive()
        took = time.perf_counter() - began
        assert fetched == len(self._batch.data), f"{fetched} bytes fetched"
        assert INT.unpack_from(self._client.read_frame()) == (0,)
        return took


def _disk_syncs(scale: Scale) -> list[float]:
    """What no broker on this disk can go below."""
    path = BENCH_FOLDER / "sync-probe"
    BENCH_FOLDER.mkdir(exist_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:

        def once() -> float:
            began = time.perf_counter()
            os.write(descriptor, bytes(180))
            os.fdatasync(descriptor)
            return time.perf_counter() - began

        return _sampled(scale, once)
    finally:
        os.close(descriptor)
        path.unlink()


def _row(what: str, flush: str, taken: list[float]) -> dict[str, Any]:
    return {
        "what": what,
        "flush": flush,
        "p50": quantile(taken, 0.5),
        "p99": quantile(taken, 0.99),
        "largest": max(taken),
    }
