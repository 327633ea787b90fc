"""Publish rides, read them at two speeds, go back in time with one reader, and count.

Exits with 0 only if every count is what it must be.
"""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from demo.broker_process import broker
from demo.rides import STEPS, ride_events

TOPIC = "rides"
FRAUD = "fraud"
PARTITIONS = 3
RIDES = 25_000
EVENTS = RIDES * len(STEPS)
DAY_MS = 24 * 3600 * 1000

console = Console()


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="respool-demo-") as data:
        console.rule("[bold]Respool: a message broker that can replay history")
        with broker(data) as address, _progress() as progress:
            console.print(f"broker up on {address}, data in a fresh folder")
            return _run(address, progress)


def _run(address: str, progress: Progress) -> int:
    now_ms = time.time_ns() // 1_000_000
    start_ms = now_ms - 6 * DAY_MS
    _create_topic(address)
    _publish(address, progress, start_ms=start_ms, end_ms=now_ms)

    # Two readers of one stream, each at its own speed; neither takes anything from the other.
    pricing = Reader(address, "pricing", batch=10_000)
    warehouse = Reader(address, "warehouse", batch=500)
    pricing_bar = progress.add_task("pricing reads fast", total=EVENTS)
    warehouse_bar = progress.add_task("warehouse reads slowly", total=EVENTS)
    while warehouse.count < EVENTS:
        progress.update(pricing_bar, completed=pricing.read_up_to(EVENTS))
        progress.update(warehouse_bar, completed=warehouse.read_up_to(EVENTS))

    # A new fraud model: go back three days and read again. The other reader does not notice.
    back_to_ms = now_ms - 3 * DAY_MS
    expected = sum(
        event.at_ms >= back_to_ms
        for event in ride_events(rides=RIDES, start_ms=start_ms, end_ms=now_ms)
    )
    pricing.rewind_to(back_to_ms)
    again_bar = progress.add_task("pricing again, from 3 days ago", total=expected)
    while pricing.count < expected:
        progress.update(again_bar, completed=pricing.read_up_to(expected))
    pricing.close()
    warehouse.close()

    # A group's member dies in the middle of its work; the next one goes on where it had committed.
    bar = progress.add_task("fraud, killed on the way", total=EVENTS)
    before = _work(address, progress, bar, kill_after=EVENTS // 3)
    committed = _committed(address)
    after = _work(address, progress, bar, already=committed)
    progress.stop()
    return _report(
        {
            "events published": (EVENTS, EVENTS),
            "read by warehouse": (warehouse.count, EVENTS),
            "of them finished rides": (warehouse.finished, RIDES),
            "read again by pricing since 3 days ago": (pricing.count, expected),
            "rides out of order": (pricing.out_of_order + warehouse.out_of_order, 0),
            "fraud: committed when killed (at least)": (min(committed, before), before),
            "fraud: committed, then read by the next": (committed + after, EVENTS),
        }
    )


class Reader:
    """One independent reader: its own position in every partition, kept by itself."""

    def __init__(self, address: str, name: str, *, batch: int) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": address, "group.id": name, "enable.auto.commit": False}
        )
        self._batch = batch
        self._last_step: dict[bytes, int] = {}
        self.count = self.finished = self.out_of_order = 0
        self._consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])

    def read_up_to(self, total: int) -> int:
        """Read a batch, unless all is read; return how many were read in all."""
        if self.count == total:
            return total
        for message in self._consumer.consume(self._batch, timeout=1.0):
            if message.error():
                raise SystemExit(f"reading failed: {message.error()}")
            self._count(message.key(), message.value())
        return self.count

    def rewind_to(self, timestamp_ms: int) -> None:
        wanted = [TopicPartition(TOPIC, number, timestamp_ms) for number in range(PARTITIONS)]
        self._consumer.assign(self._consumer.offsets_for_times(wanted, timeout=10))
        self._last_step.clear()
        self.count = self.finished = 0

    def close(self) -> None:
        self._consumer.close()

    def _count(self, ride: bytes, value: bytes) -> None:
        step = next(number for number, name in enumerate(STEPS) if name.encode() in value)
        self.out_of_order += step < self._last_step.get(ride, 0)
        self._last_step[ride] = step
        self.finished += step == len(STEPS) - 1
        self.count += 1


def _work(
    address: str,
    progress: Progress,
    bar: TaskID,
    *,
    kill_after: int | None = None,
    already: int = 0,
) -> int:
    """Let a worker read until it is done, or killed; return how many messages it had committed."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "demo.worker", address, FRAUD], stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    count = 0
    for line in worker.stdout:
        count = int(line)
        progress.update(bar, completed=already + count)
        if kill_after is not None and count >= kill_after:
            worker.kill()
            break
    code = worker.wait()
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"the worker failed with exit code {code}")
    return count


def _committed(address: str) -> int:
    """What the group has committed, as the broker knows it."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": FRAUD})
    wanted = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    offsets = consumer.committed(wanted, timeout=10)
    consumer.close()
    return sum(max(0, one.offset) for one in offsets)


def _create_topic(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    admin.create_topics([topic])[TOPIC].result(timeout=10)


def _publish(address: str, progress: Progress, *, start_ms: int, end_ms: int) -> None:
    bar = progress.add_task("publish ride events", total=EVENTS)
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": 20,
            "queue.buffering.max.messages": 200_000,
        }
    )
    on_delivery = _delivery_counter(failures)
    for number, event in enumerate(ride_events(rides=RIDES, start_ms=start_ms, end_ms=end_ms)):
        producer.produce(
            TOPIC,
            key=event.ride_id,
            value=event.encode(),
            timestamp=event.at_ms,
            on_delivery=on_delivery,
        )
        if number % 1000 == 0:
            producer.poll(0)
            progress.update(bar, completed=number)
    producer.flush()
    progress.update(bar, completed=EVENTS)
    if failures:
        raise SystemExit(f"{len(failures)} events were not acknowledged: {failures[0]}")


def _delivery_counter(failures: list[object]) -> Callable[[object, object], None]:
    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    return on_delivery


def _report(counts: dict[str, tuple[int, int]]) -> int:
    is_right = True
    for name, (seen, expected) in counts.items():
        is_right = is_right and seen == expected
        mark = "[green]ok[/]" if seen == expected else f"[red]expected {expected:,}[/]"
        console.print(f"  {name:<42} {seen:>9,}  {mark}")
    console.print("[bold green]done[/]" if is_right else "[bold red]the counts are wrong[/]")
    return 0 if is_right else 1


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description:<32}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


if __name__ == "__main__":
    sys.exit(main())
