"""Stock clients that ride through troubles of a cluster: each writes numbers and reads them back, until told to stop.

The test's side is `Rider`. The process's side (`main`) has a producer and a consumer of one client library, and keeps
what reaches the application: every acknowledgement with its time, every message, and every error. It is a process of
its own because some of these libraries leave sockets open and log to wherever they like.
"""

import asyncio
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from support.waiting import wait_until

PARTITIONS = 3
# Between two messages: a steady trickle shows stalls better than a flood.
REST_S = 0.01
FINISH_S = 60.0


class Rider:
    """One client library's producer and consumer, on a topic of their own."""

    def __init__(self, client: str, address: str, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.told: dict[str, Any] = {"sent": 0, "acknowledged": 0, "read": 0, "errors": []}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.riders", client, address, topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        )
        self._reader = threading.Thread(target=self._listen)
        self._reader.start()

    def wait_for_acknowledgements(self, count: int, *, seconds: float = 60.0) -> None:
        """Return when it has got that many more, and its consumer has read something."""
        goal = self.told["sent"] + count
        wait_until(
            lambda: self.told["acknowledged"] >= goal and self.told["read"],
            f"{self.client} goes on; so far {self.told}",
            seconds=seconds,
        )

    def finish(self) -> dict[str, Any]:
        """Send no more; return its account when all is acknowledged and read, or that took too long."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._reader.join()
        self._process.wait()
        assert "story" in self.told, f"the rider with {self.client} ended: {self.told}"
        return self.told

    def end(self) -> None:
        """Whatever it does now."""
        self._process.kill()
        self._reader.join()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):
                self.told = json.loads(line)


# The process's side.


class _Rider:
    client: str

    def __init__(self, address: str, topic: str) -> None:
        self.address = address.split(",")
        self.topic = topic
        self.sent = 0
        self.acknowledged_at: list[float] = []
        self.errors: list[str] = []
        # What the consumer got, in its order.
        self.read: dict[int, list[int]] = defaultdict(list)
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(act,))
            for act in (self._produce, self._consume)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send no more; return when all is acknowledged and read, or that took too long."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def tell(self, **more: Any) -> None:
        line = {
            "sent": self.sent,
            "acknowledged": len(self.acknowledged_at),
            "read": sum(map(len, self.read.values())),
            "errors": self.errors,
            **more,
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    @property
    def longest_stall_s(self) -> float:
        times = self.acknowledged_at
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def has_read_all(self) -> bool:
        return not self._threads[0].is_alive() and self.count_read() >= self.sent

    def count_read(self) -> int:
        return sum(len(set(numbers)) for numbers in self.read.values())

    def _produce(self) -> None:
        raise NotImplementedError

    def _consume(self) -> None:
        raise NotImplementedError

    def _guarded(self, act: Any) -> None:
        try:
            act()
        except Exception as error:
            self.errors.append(f"{self.client}: {error!r}")

    def _goes_on_reading(self) -> bool:
        if not self._stopping.is_set():
            self._until = time.monotonic() + FINISH_S
            return True
        return not self.has_read_all() and time.monotonic() < self._until

    def _took(self, partition: int, value: bytes | None) -> None:
        self.read[partition].append(int(value or b"-1"))

    def _next(self) -> tuple[bytes, int]:
        number = self.sent
        self.sent += 1
        return b"%d" % number, number % PARTITIONS

    def _acknowledged(self) -> None:
        self.acknowledged_at.append(time.monotonic())


class _ConfluentRider(_Rider):
    client = "confluent"

    def _produce(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": ",".join(self.address),
                "acks": "all",
                "enable.idempotence": True,
                "log_level": 0,
            }
        )

        def on_delivery(error: object, _: object) -> None:
            if error is None:
                self._acknowledged()
            else:
                self.errors.append(f"confluent: {error}")

        while not self._stopping.is_set():
            value, partition = self._next()
            producer.produce(self.topic, value, partition=partition, on_delivery=on_delivery)
            producer.poll(REST_S)
        if left := producer.flush(FINISH_S):
            self.errors.append(f"confluent: {left} messages got no answer")

    def _consume(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": ",".join(self.address),
                "group.id": f"readers of {self.topic}",
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.subscribe([self.topic])
        while self._goes_on_reading():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._took(message.partition(), message.value())
            elif message is not None:
                self.errors.append(f"confluent: {message.error()}")
        consumer.close()


class _KafkaPythonRider(_Rider):
    client = "kafka-python"

    def _produce(self) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=self.address, acks="all", enable_idempotence=True
        )
        while not self._stopping.is_set():
            value, partition = self._next()
            sent = producer.send(self.topic, value, partition=partition)
            sent.add_callback(lambda _: self._acknowledged())
            sent.add_errback(lambda error: self.errors.append(f"kafka-python: {error!r}"))
            time.sleep(REST_S)
        producer.flush(FINISH_S)
        producer.close()

    def _consume(self) -> None:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            self.topic,
            bootstrap_servers=self.address,
            group_id=f"readers of {self.topic}",
            auto_offset_reset="earliest",
        )
        while self._goes_on_reading():
            for place, records in consumer.poll(timeout_ms=100).items():
                for one in records:
                    self._took(place.partition, one.value)
        consumer.close()


class _AiokafkaRider(_Rider):
    client = "aiokafka"

    def _produce(self) -> None:
        asyncio.run(self._produce_all())

    def _consume(self) -> None:
        asyncio.run(self._consume_all())

    async def _produce_all(self) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=self.address, acks="all", enable_idempotence=True
        )
        await producer.start()
        waiting: set[asyncio.Future[Any]] = set()

        def told(sent: "asyncio.Future[Any]") -> None:
            waiting.discard(sent)
            if (error := sent.exception()) is None:
                self._acknowledged()
            else:
                self.errors.append(f"aiokafka: {error!r}")

        while not self._stopping.is_set():
            value, partition = self._next()
            sent = await producer.send(self.topic, value, partition=partition)
            waiting.add(sent)
            sent.add_done_callback(told)
            await asyncio.sleep(REST_S)
        if waiting:
            await asyncio.wait(set(waiting), timeout=FINISH_S)
        await producer.stop()

    async def _consume_all(self) -> None:
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.address,
            group_id=f"readers of {self.topic}",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        while self._goes_on_reading():
            for place, records in (await consumer.getmany(timeout_ms=100)).items():
                for one in records:
                    self._took(place.partition, one.value)
        await consumer.stop()


CLIENTS: dict[str, type[_Rider]] = {
    "confluent": _ConfluentRider,
    "kafka-python": _KafkaPythonRider,
    "aiokafka": _AiokafkaRider,
}


def main() -> None:
    client, address, topic = sys.argv[1:]
    rider = CLIENTS[client](address, topic)
    rider.start()
    stop = threading.Thread(target=sys.stdin.read, daemon=True)
    stop.start()
    while stop.is_alive():
        stop.join(0.05)
        rider.tell()
    rider.stop()
    rider.tell(story=rider.read, longest_stall_s=rider.longest_stall_s)


if __name__ == "__main__":
    main()
