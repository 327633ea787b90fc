"""Publish rides, read them at two speeds, survive kills, charge exactly once, go back in time with one team, and count.
Then, where it is installed, the same with Spark: tables, dashboards, fraud scores, and a new model over the last days.

Exits with 0 only if every count is what it must be.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.progress import Progress, TaskID

from demo import spark_act
from demo.biller import CHARGES
from demo.broker_process import broker
from demo.payments import charge_exactly_once
from demo.reader import Reader
from demo.rides import TOPIC, ride_events
from demo.screen import Counts, console, progress, report, respool, title
from demo.size import FULL, Size

FRAUD = "fraud"
PRICING = "pricing"
PARTITIONS = 3
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("respool-demo"),
        metavar="DIR",
        help="the folder for the reports, which stay when the demo ends (default: respool-demo)",
    )
    return play(FULL, out=parser.parse_args().out.absolute())


def play(size: Size, *, out: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="respool-demo-") as data:
        console.rule("[bold]Respool: a message broker that can replay history")
        with broker(data) as address:
            console.print(f"broker up on {address}, data in a fresh folder")
            counts = _run(address, size)
            with tempfile.TemporaryDirectory(prefix="respool-lake-") as lake:
                counts |= spark_act.run(address, Path(lake), events=size.spark_events, out=out)
            return report(counts)


def _run(address: str, size: Size) -> Counts:
    end_ms = time.time_ns() // 1_000_000
    start_ms = end_ms - 6 * DAY_MS
    title("Six days of rides")
    _create_topics(address)
    _publish(address, size, start_ms=start_ms, end_ms=end_ms)
    counts: Counts = {"events published": (size.events, size.events)}

    title("Two teams read the same stream, each at its own speed")
    pricing = Reader(address, PRICING, batch=10_000)
    counts |= _read_at_two_speeds(address, size, pricing)

    title("The fraud team's reader is killed at its work (kill -9); the next continues")
    counts |= _survive_a_kill(address, size.events)

    title("Billing is killed inside a transaction (kill -9); each ride is charged once")
    counts |= charge_exactly_once(address, rides=size.rides, partitions=PARTITIONS)

    title("Pricing goes back three days, and reads again exactly what came since")
    pricing.leave()
    # A whole minute, as people write it.
    back_to_ms = (end_ms - 3 * DAY_MS) // MINUTE_MS * MINUTE_MS
    since = sum(
        event.at_ms >= back_to_ms
        for event in ride_events(rides=size.rides, start_ms=start_ms, end_ms=end_ms)
    )
    return counts | _rewind(address, size.events, pricing, back_to_ms=back_to_ms, since=since)


def _read_at_two_speeds(address: str, size: Size, pricing: Reader) -> Counts:
    warehouse = Reader(address, "warehouse", batch=500)
    with progress() as bars:
        pricing_bar = bars.add_task("pricing reads fast", total=size.events)
        warehouse_bar = bars.add_task("warehouse reads slowly", total=size.events)
        while warehouse.count < size.events:
            bars.update(pricing_bar, completed=pricing.read_up_to(size.events))
            bars.update(warehouse_bar, completed=warehouse.read_up_to(size.events))
    warehouse.leave()
    return {
        "read by pricing": (pricing.count, size.events),
        "read by warehouse": (warehouse.count, size.events),
        "of them finished rides": (warehouse.finished, size.rides),
        "rides out of order": (pricing.out_of_order + warehouse.out_of_order, 0),
    }


def _survive_a_kill(address: str, events: int) -> Counts:
    with progress() as bars:
        bar = bars.add_task("fraud reads, and is killed", total=events)
        before = _work(address, bars, bar, kill_after=events // 3)
        committed = _committed(address, FRAUD)
        bar = bars.add_task("fraud continues", total=events, completed=committed)
        after = _work(address, bars, bar, already=committed)
    return {
        "fraud: committed when killed (at least)": (min(committed, before), before),
        "fraud: committed, then read by the next": (committed + after, events),
    }


def _rewind(address: str, events: int, pricing: Reader, *, back_to_ms: int, since: int) -> Counts:
    """Move the group by the command line, as an operator does, and let it read again."""
    back_to = datetime.fromtimestamp(back_to_ms / 1000, UTC).strftime("%Y-%m-%d %H:%MZ")
    reset = ("group", "reset", PRICING, "--to-time", back_to)
    respool(address, *reset, "--dry-run")
    before = _committed(address, PRICING)
    respool(address, *reset, "--yes")
    after = _committed(address, PRICING)
    pricing.start_counting(since_ms=back_to_ms)
    pricing.join()
    with progress() as bars:
        bar = bars.add_task("pricing again, from 3 days ago", total=since)
        while pricing.count < since:
            bars.update(bar, completed=pricing.read_up_to(since))
    pricing.leave()
    return {
        "pricing: committed after the dry run": (before, events),
        "pricing: to read again after the reset": (events - after, since),
        "pricing: read again": (pricing.count, since),
        "of them from before that time": (pricing.too_old, 0),
        "pricing: committed in the end": (_committed(address, PRICING), events),
    }


def _work(
    address: str,
    bars: Progress,
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
    with worker.stdout as lines:
        for line in lines:
            count = int(line)
            bars.update(bar, completed=already + count)
            if kill_after is not None and count >= kill_after:
                worker.kill()
                break
    code = worker.wait()
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"the worker failed with exit code {code}")
    return count


def _committed(address: str, group: str) -> int:
    """What the group has committed, as the broker knows it."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    wanted = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    offsets = consumer.committed(wanted, timeout=10)
    consumer.close()
    return sum(max(0, one.offset) for one in offsets)


def _create_topics(address: str) -> None:
    # Warnings and worse: when it goes, librdkafka tells of an event of its own that nobody asked for.
    admin = AdminClient({"bootstrap.servers": address, "log_level": 4})
    topics = [
        NewTopic(name, num_partitions=PARTITIONS, replication_factor=1) for name in (TOPIC, CHARGES)
    ]
    for created in admin.create_topics(topics).values():
        created.result(timeout=10)


def _publish(address: str, size: Size, *, start_ms: int, end_ms: int) -> None:
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "queue.buffering.max.messages": 200_000,
        }
    )
    on_delivery = _delivery_counter(failures)
    with progress() as bars:
        bar = bars.add_task("publish ride events", total=size.events)
        for number, event in enumerate(
            ride_events(rides=size.rides, start_ms=start_ms, end_ms=end_ms)
        ):
            producer.produce(
                TOPIC,
                key=event.ride_id,
                value=event.encode(),
                timestamp=event.at_ms,
                on_delivery=on_delivery,
            )
            if number % 1000 == 0:
                producer.poll(0)
                bars.update(bar, completed=number)
        producer.flush()
        bars.update(bar, completed=size.events)
    if failures:
        raise SystemExit(f"{len(failures)} events were not acknowledged: {failures[0]}")


def _delivery_counter(failures: list[object]) -> Callable[[object, object], None]:
    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    return on_delivery


if __name__ == "__main__":
    sys.exit(main())
