"""How fast a new broker gets its part of what is there, and whether producers notice."""

import sys
import threading
import time
from dataclasses import dataclass
from statistics import median

from bench.cluster_process import ClusterProcess, partitions_of
from bench.disk_speed import disk_bytes_per_s
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
    Column("disk", "the disk's", megabytes),
    Column("share", "of it", ratio),
    Column("errors", "errors of producers", count),
)


def run(scale: Scale, report: Report) -> None:
    table = Table("new broker", "Cluster: a fourth broker gets its part", COLUMNS)
    for reads_locally in (True, False):
        with ClusterProcess(settings={"local_reads": str(reads_locally).lower()}) as cluster:
            _measure(scale, report, table, cluster, reads_locally=reads_locally)
    table.notes += [
        "`respool cluster balance`, without what the command itself takes to plan.",
        "All brokers are on one disk here, which is read and written, and share the cores.",
        "The disk's: one process that writes as much and syncs it, beside the same producer; the median of three.",
        "Local reads: from the leader's files, as on one machine. Sent: as between machines (local_reads=false).",
    ]
    report.add(table)


def _measure(
    scale: Scale, report: Report, table: Table, cluster: ClusterProcess, *, reads_locally: bool
) -> None:
    size = scale.moved_log_bytes
    way = "local" if reads_locally else "sent"
    with WarmMemory(size) as memory:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        report.progress(f"cluster: {size_text(size)} to be moved, {way}")
        _fill(cluster, size)
        for is_loaded in (False, True):
            number = len(cluster.brokers) + 1
            broker = cluster.add(number)
            what = "while a producer writes" if is_loaded else "while nobody writes"
            report.progress(f"cluster: broker {number} gets its part {what}")
            producer = _Trickle(cluster.bootstrap) if is_loaded else None
            command = _seconds_of(cluster, "--dry-run")
            memory.refill()
            if producer:
                # It stood still while memory was filled: that is none of the move's doing.
                producer.take_seen()
            with memory.released_during(broker.written_bytes):
                taken = _seconds_of(cluster, "--yes", "--wait") - command
            seen = producer.take_seen() if producer else None
            moved = sum(path.stat().st_size for path in broker.log_files())
            # While the producer writes on, which takes most of two cores: what is left is what a move can have.
            disk = median(disk_bytes_per_s(moved, memory) for _ in range(3))
            errors = producer.stop() if producer else 0
            table.rows.append(
                {
                    "what": f"broker {number}, {way}, {what}",
                    "moved": moved,
                    "seconds": taken,
                    "bytes_per_s": moved / taken,
                    "disk": disk,
                    "share": moved / taken / disk,
                    "errors": errors if producer else None,
                }
            )
            if seen:
                table.notes.append(
                    f"The producer (librdkafka, idempotent, a hundred at a time; {way}) wrote {seen.sent:,} messages "
                    f"meanwhile; its longest wait for a hundred was {seen.longest_s:.2f} s."
                )


def _seconds_of(cluster: ClusterProcess, *options: str) -> float:
    began = time.perf_counter()
    cluster.run("balance", *options)
    return time.perf_counter() - began


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


@dataclass
class _Seen:
    """What happened to a producer meanwhile."""

    sent: int = 0
    longest_s: float = 0.0


class _Trickle:
    """A producer in a thread, that waits for each hundred messages before it sends the next."""

    def __init__(self, address: str) -> None:
        from confluent_kafka import Producer

        self._seen = _Seen()
        self._taken_at = 0.0
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

    def take_seen(self) -> _Seen:
        """Since it was taken last; also of the wait that is under way then only the part since."""
        seen, self._seen = self._seen, _Seen()
        self._taken_at = time.perf_counter()
        return seen

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
            self._seen.sent += 100
            waited_s = time.perf_counter() - max(began, self._taken_at)
            self._seen.longest_s = max(self._seen.longest_s, waited_s)

    def _on_delivery(self, error: object, _message: object) -> None:
        if error is not None:
            self._errors += 1
            print(f"producer: {error}", file=sys.stderr)
