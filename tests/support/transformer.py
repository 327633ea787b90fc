"""A consume-transform-produce loop as a process of its own: one that can be killed at any moment.

The test's side is `Transformer`. The process's side (`main`) reads one topic and writes what it makes of it to the same
partition of another, with the offsets it has read, in transactions. It writes one line per committed transaction: how
many messages that had. Whatever goes wrong ends it, as a crash does: the next one goes on. After `commits_max` it waits
to be killed: others are to have work too.
"""

import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from threading import Thread
from typing import Any

from support.waiting import wait_until

# A message that comes out: the one that went in, with this in front.
MADE = b"made of "
SESSION_TIMEOUT_MS = 6_000
TIMEOUT_S = 60.0


class Transformer:
    def __init__(
        self,
        client: str,
        address: str,
        *,
        source: str,
        target: str,
        batch: int,
        commits_max: int | None = None,
        timeout_s: float = TIMEOUT_S,
        is_static: bool = True,
    ) -> None:
        """A static member takes the place of the last one at once; any other waits until that one is out."""
        self.name = f"transformer with {client}"
        wish = {
            "client": client,
            "address": address,
            "source": source,
            "target": target,
            "batch": batch,
            "commits_max": commits_max,
            "timeout_s": timeout_s,
            "is_static": is_static,
        }
        self.commits: list[int] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.transformer", json.dumps(wish)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        )
        self.errors = b""
        self._readers = [Thread(target=self._read_commits), Thread(target=self._read_errors)]
        for reader in self._readers:
            reader.start()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_for_commits(self, count: int, *, seconds: float = TIMEOUT_S) -> None:
        """Return when it has committed so often, or ended by itself."""
        wait_until(
            lambda: len(self.commits) >= count or not self.is_running,
            f"{count} transactions of a {self.name}; {self.errors[-2000:].decode()}",
            seconds=seconds,
        )

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def _read_commits(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):
                self.commits.append(int(line))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.errors += line


def main() -> None:
    wish = json.loads(sys.argv[1])
    run = {"confluent": _confluent, "kafka-python": _kafka_python, "aiokafka": _aiokafka}
    try:
        run[wish["client"]](wish)
    except Exception:
        # At once: a library that has lost its way may take for ever to end well.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


_told: list[int] = []


def _tell(count: int, wish: dict[str, Any]) -> None:
    """Say how many messages were committed, and rest when that was enough."""
    sys.stdout.write(f"{count}\n")
    sys.stdout.flush()
    _told.append(count)
    if len(_told) == wish["commits_max"]:
        signal.pause()


def _confluent(wish: dict[str, Any]) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

    def is_fatal(error: KafkaError) -> bool:
        """Such as fenced."""
        return bool(error.fatal() or error.code() == KafkaError._FATAL)

    def on_error(error: KafkaError) -> None:
        if is_fatal(error):
            sys.stderr.write(f"{error}\n")
            os._exit(1)

    producer = Producer(
        {
            "bootstrap.servers": wish["address"],
            "transactional.id": "transformer",
            "linger.ms": 5,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    producer.init_transactions(wish["timeout_s"])
    consumer = Consumer(
        {
            "bootstrap.servers": wish["address"],
            "group.id": "transformers",
            **({"group.instance.id": "transformer"} if wish["is_static"] else {}),
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.max.ms": 200,
            "error_cb": on_error,
            "log_level": 0,
        }
    )
    consumer.subscribe([wish["source"]])
    while True:
        messages = consumer.consume(wish["batch"], 0.1)
        if fatal := [one.error() for one in messages if one.error() and is_fatal(one.error())]:
            raise KafkaException(fatal[0])
        messages = [one for one in messages if one.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        for one in messages:
            made, place = MADE + one.value(), one.partition()
            producer.produce(wish["target"], made, one.key(), place)
            producer.poll(0)
        read = consumer.position(consumer.assignment())
        offsets = [one for one in read if one.offset >= 0]
        producer.send_offsets_to_transaction(
            offsets, consumer.consumer_group_metadata(), wish["timeout_s"]
        )
        producer.commit_transaction(wish["timeout_s"])
        _tell(len(messages), wish)


def _kafka_python(wish: dict[str, Any]) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.structs import OffsetAndMetadata

    producer = KafkaProducer(
        bootstrap_servers=wish["address"],
        transactional_id="transformer",
        linger_ms=5,
        reconnect_backoff_max_ms=200,
    )
    producer.init_transactions()
    consumer = KafkaConsumer(
        wish["source"],
        bootstrap_servers=wish["address"],
        group_id="transformers",
        group_instance_id="transformer",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=500,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        fetch_max_wait_ms=100,
        max_poll_records=wish["batch"],
        reconnect_backoff_max_ms=200,
    )
    while True:
        found = consumer.poll(timeout_ms=100)
        if not found:
            continue
        producer.begin_transaction()
        sent = [
            producer.send(wish["target"], MADE + one.value, one.key, partition=place.partition)
            for place, records in found.items()
            for one in records
        ]
        offsets = {
            place: OffsetAndMetadata(records[-1].offset + 1, "", -1)
            for place, records in found.items()
        }
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.commit_transaction()
        for one in sent:
            one.get(timeout=TIMEOUT_S)
        _tell(len(sent), wish)


def _aiokafka(wish: dict[str, Any]) -> None:
    import asyncio

    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=wish["address"], transactional_id="transformer", linger_ms=5
        )
        await producer.start()
        consumer = AIOKafkaConsumer(
            wish["source"],
            bootstrap_servers=wish["address"],
            group_id="transformers",
            group_instance_id="transformer",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=500,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=100,
        )
        await consumer.start()
        while True:
            found = await consumer.getmany(timeout_ms=100, max_records=wish["batch"])
            if not found:
                continue
            count = 0
            async with producer.transaction():
                for place, records in found.items():
                    for one in records:
                        count += 1
                        await producer.send(
                            wish["target"], MADE + one.value, one.key, partition=place.partition
                        )
                offsets = {place: records[-1].offset + 1 for place, records in found.items()}
                await producer.send_offsets_to_transaction(offsets, "transformers")
            _tell(count, wish)

    asyncio.run(run())


if __name__ == "__main__":
    main()
