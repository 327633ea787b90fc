"""A broker process, commands on it, and a consumer in a process of its own, for tests of groups and replays."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Producer

from cli.running import Ended, Run
from support.broker_process import BrokerProcess

WAIT_SECONDS = 30
# Groups form at once, and members notice at once that they were sent out.
BROKER_SETTINGS = {
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 100,
    "group_consumer_heartbeat_interval_ms": 200,
    "offsets_topic_partitions": 3,
}
START_MS = 1_763_107_200_000  # 2025-11-14T08:00:00Z

CONSUMER = """
import sys
from confluent_kafka import Consumer, KafkaException

broker, group, topic, protocol = sys.argv[1:]
settings = {
    "bootstrap.servers": broker, "group.id": group, "client.id": "child", "auto.offset.reset": "earliest",
    "enable.auto.commit": False, "group.protocol": protocol, "log_level": 0,
}
if protocol == "classic":
    settings |= {"heartbeat.interval.ms": 100, "session.timeout.ms": 2000}
consumer = Consumer(settings)
consumer.subscribe([topic])
while True:
    message = consumer.poll(0.1)
    if message is None or message.error():
        continue
    print(message.partition(), message.offset(), flush=True)
    try:
        consumer.commit(message, asynchronous=False)
    except KafkaException as refused:
        print("refused", refused.args[0].name(), flush=True)
"""


class Shell:
    """Commands run in this process, which is quicker; those that are killed in their own."""

    def __init__(self, run: Run, broker: BrokerProcess) -> None:
        self._run = run
        self.broker = broker

    def run(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> Ended:
        ended = self._run(*arguments, "--broker", self.broker.address, stdin=stdin)
        assert ended.code == code, f"{ended.code}: {ended.out}\n{ended.err}"
        return ended

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").out)

    def begin(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "respool.cli", *arguments, "--broker", self.broker.address],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def topic(self, name: str, *, partitions: int, messages: int) -> None:
        """A topic whose messages are a second apart, from START_MS on, and go round the partitions."""
        self.run(
            "topic", "create", name, "--partitions", str(partitions), "--set", "retention.ms=-1"
        )
        producer = Producer({"bootstrap.servers": self.broker.address, "linger.ms": 5})
        for number in range(messages):
            producer.produce(
                name,
                key=f"key-{number % 7}",
                value=str(number),
                headers=[("h", b"1")],
                partition=number % partitions,
                timestamp=START_MS + 1000 * number,
            )
            if number % 1000 == 0:
                producer.poll(0)
        assert producer.flush(WAIT_SECONDS) == 0

    def messages(self, topic: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run("consume", topic, "--json").out.splitlines()]


class ConsumerChild:
    """Reads a topic as a member of a group, commits each message, and tells what it read."""

    def __init__(
        self, broker: BrokerProcess, group: str, topic: str, *, protocol: str = "classic"
    ) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-c", CONSUMER, broker.address, group, topic, protocol],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._thread.join(WAIT_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def wait_for(self, places: Iterable[tuple[int, int]]) -> None:
        """Return when all these partitions and offsets were read since the last `forget`."""
        wanted = {f"{partition} {offset}" for partition, offset in places}
        with self._changed:
            seen = self._changed.wait_for(lambda: wanted <= set(self.lines), WAIT_SECONDS)
            assert seen, f"missing {sorted(wanted - set(self.lines))} in {self.lines}"

    def forget(self) -> None:
        with self._changed:
            self.lines.clear()

    def _collect(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.lines.append(line.strip())
                self._changed.notify_all()


def started(folder: Path) -> BrokerProcess:
    return BrokerProcess(folder / "data", BROKER_SETTINGS)
