"""How fast a new broker gets its part of what is there, and whether producers notice."""

import os
import sys
import threading
import time

from bench.broker_process import BENCH_FOLDER
from bench.cluster_process import ClusterProcess, partitions_of
from bench.report import Column, Report, Table, count, megabytes, ratio, seconds
from bench.requests import INT, Batch, Client, ProduceFrame, RequestFailed
from bench.scale import MB, MESSAGE_BYTES, Scale, size_text
from bench.warm_memory import WarmMemory

TOPIC = "bench"
ACKS_ALL = -1
PARTITIONS = 6

COLUMNS = (
    Column("what", "what"),
    Column("moved", "MB", megabytes),
    Column("seconds", "s", seconds),
    Column("bytes_per_s", "MB/s", megabytes),
    Column("share", "of the disk's", ratio),
    Column("errors", "errors of producers", count),
)


def run(scale: Scale, report: Report) -> None:
    size = scale.fetch_log_bytes
    table = Table("new broker", "Cluster: a fourth broker gets its part", COLUMNS)
    report.progress("cluster: the disk's own speed")
    disk = _disk_bytes_per_s(min(size, 512 * MB))
    table.rows.append({"what": "the disk alone: write and fsync", "bytes_per_s": disk})
    with ClusterProcess() as cluster, WarmMemory(size) as memory:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        report.progress(f"cluster: {size_text(size)} to be moved")
        _fill(cluster, size)
        for is_loaded in (False, True):
            number = len(cluster.brokers) + 1
            broker = cluster.add(number)
            what = "while a producer writes" if is_loaded else "while nobody writes"
            report.progress(f"cluster: broker {number} gets its part {what}")
            producer = _Trickle(cluster.bootstrap) if is_loaded else None
            command = _seconds_of(cluster, "--dry-run")
            memory.refill()
            with memory.let_go(broker.written_bytes):
                taken = _seconds_of(cluster, "--yes", "--wait") - command
            errors = producer.stop() if producer else 0
            moved = sum(path.stat().st_size for path in broker.log_files())
            table.rows.append(
                {
                    "what": f"broker {number}, {what}",
                    "moved": moved,
                    "seconds": taken,
                    "bytes_per_s": moved / taken,
                    "share": moved / taken / disk,
                    "errors": errors if producer else None,
                }
            )
            if producer:
                table.notes.append(
                    f"The producer (librdkafka, idempotent, a hundred messages at a time) wrote {producer.sent:,} "
                    f"messages meanwhile; its longest wait for a hundred was {producer.longest_s:.2f} s."
                )
    table.notes.append(
        "`respool cluster balance`, without what the command itself takes to plan. All brokers are on one disk here, "
        "which is read and written, and share the cores."
    )
    report.add(table)


def _seconds_of(cluster: ClusterProcess, *options: str) -> float:
    began = time.perf_counter()
    cluster.run("balance", *options)
    return time.perf_counter() - began


def _disk_bytes_per_s(size: int) -> float:
    path = BENCH_FOLDER / "disk-speed"
    chunk = os.urandom(MB)
    began = time.perf_counter()
    try:
        with path.open("wb", buffering=0) as file:
            for _ in range(size // MB):
                file.write(chunk)
            os.fsync(file.fileno())
        return size // MB * MB / (time.perf_counter() - began)
    finally:
        path.unlink(missing_ok=True)


def _fill(cluster: ClusterProcess, size: int) -> None:
    """The same to each partition."""
    batch = Batch.of_size(1 * MB, message_bytes=MESSAGE_BYTES, time_ms=int(time.time() * 1000))
    with cluster.client() as client:
        leaders = {one.partition_index: one.leader_id for one in partitions_of(client, TOPIC)}
    for partition, leader in leaders.items():
        request = ProduceFrame(TOPIC, batch, acks=ACKS_ALL)
        INT.pack_into(request.data, request.index_at, partition)
        with Client(cluster.brokers[leader].host, cluster.brokers[leader].port) as client:
            for _ in range(size // PARTITIONS // len(batch.data)):
                client.socket.sendall(request.data)
                reply = client.read_frame()
                at = request.reply_error_at - INT.size
                if reply[at : at + 2] != b"\0\0":
                    raise RequestFailed(f"filling partition {partition}: {reply!r}")


class _Trickle:
    """A producer in a thread, that waits for each hundred messages before it sends the next."""

    def __init__(self, address: str) -> None:
        from confluent_kafka import Producer

        self.sent = 0
        self.longest_s = 0.0
        self._errors = 0
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> int:
        """How many messages could not be written."""
        self._stopping.set()
        self._thread.join()
        return self._errors

    def _run(self) -> None:
        value = b"x" * MESSAGE_BYTES
        while not self._stopping.is_set():
            began = time.perf_counter()
            for number in range(100):
                self._producer.produce(
                    TOPIC, value, partition=number % PARTITIONS, on_delivery=self._on_delivery
                )
            self._errors += self._producer.flush(120)
            self.sent += 100
            self.longest_s = max(self.longest_s, time.perf_counter() - began)

    def _on_delivery(self, error: object, _message: object) -> None:
        if error is not None:
            self._errors += 1
            print(f"producer: {error}", file=sys.stderr)
