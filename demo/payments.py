"""Every ride is charged exactly once, though the biller is killed in the middle of a transaction."""

import signal
import subprocess
import sys
from collections import Counter

from confluent_kafka import Consumer, KafkaError, TopicPartition
from rich.progress import Progress, TaskID

from demo.biller import CHARGES
from demo.screen import Counts, progress, respool

NEVER = sys.maxsize


def charge_exactly_once(address: str, *, rides: int, partitions: int) -> Counts:
    """Let a biller work and kill it, let the next one finish, and look at the charges as two kinds of reader."""
    with progress() as bars:
        bar = bars.add_task("billing charges, and is killed", total=rides)
        charged, written = _bill(address, bars, bar, stay_after=rides // 3)
    respool(address, "transaction", "list")
    with progress() as bars:
        bar = bars.add_task("billing continues", total=rides, completed=charged)
        after, _ = _bill(address, bars, bar, already=charged)
    committed = _charges(address, "read_committed", partitions=partitions)
    everything = _charges(address, "read_uncommitted", partitions=partitions)
    return {
        "billing: charged when killed, and after": (charged + after, rides),
        "rides charged": (len(committed), rides),
        "of them more than once": (sum(count > 1 for count in committed.values()), 0),
        "charges written when killed, then aborted": (
            everything.total() - committed.total(),
            written,
        ),
        "charged twice to read_uncommitted readers": (
            sum(count > 1 for count in everything.values()),
            written,
        ),
    }


def _bill(
    address: str, bars: Progress, bar: TaskID, *, stay_after: int = NEVER, already: int = 0
) -> tuple[int, int]:
    """How many rides the biller has charged, and how many charges of an open transaction it had written when killed."""
    biller = subprocess.Popen(
        [sys.executable, "-m", "demo.biller", address, str(stay_after)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert biller.stdout is not None
    charged = written = 0
    with biller.stdout as lines:
        for line in lines:
            word, number = line.split()
            if word == "written":
                written = int(number)
                biller.kill()
                break
            charged = int(number)
            bars.update(bar, completed=already + charged)
    code = biller.wait()
    if code != (-signal.SIGKILL if written else 0):
        raise SystemExit(f"the biller failed with exit code {code}")
    return charged, written


def _charges(address: str, isolation_level: str, *, partitions: int) -> "Counter[bytes]":
    """How often each ride is charged, to such a reader."""
    reader = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "audit",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
        }
    )
    reader.assign([TopicPartition(CHARGES, number, 0) for number in range(partitions)])
    found: Counter[bytes] = Counter()
    ended: set[int] = set()
    while len(ended) < partitions:
        for message in reader.consume(10_000, timeout=0.2):
            if message.error() is None:
                found[message.key()] += 1
            elif message.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its only name
                ended.add(message.partition())
            else:
                raise SystemExit(f"reading charges failed: {message.error()}")
    reader.close()
    return found
