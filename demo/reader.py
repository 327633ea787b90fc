"""One reading team: the only member of its consumer group, which counts what it reads and then commits it."""

import json
from typing import Any

from confluent_kafka import Consumer

from demo.rides import STEPS, TOPIC


class Reader:
    """The broker keeps its place, so the group can be moved while nobody reads: see `leave` and `join`."""

    def __init__(self, address: str, group: str, *, batch: int) -> None:
        self._settings = {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # Fetch again as soon as there is room; by default a full second later.
            "fetch.queue.backoff.ms": 10,
        }
        self._batch = batch
        self.start_counting()
        self.join()

    def join(self) -> None:
        self._consumer = Consumer(self._settings)
        self._consumer.subscribe([TOPIC])

    def leave(self) -> None:
        self._consumer.close()

    def start_counting(self, *, since_ms: int = 0) -> None:
        """Begin at zero; what took place before `since_ms` is counted as too old."""
        self._since_ms = since_ms
        self.count = self.finished = self.out_of_order = self.too_old = 0
        self._last_step: dict[bytes, int] = {}

    def read_up_to(self, total: int) -> int:
        """Read and commit a batch, unless all is read; return how many were read in all."""
        if self.count >= total:
            return self.count
        batch = self._consumer.consume(self._batch, timeout=1.0)
        for message in batch:
            if message.error():
                raise SystemExit(f"reading failed: {message.error()}")
            self._count(message.key(), json.loads(message.value()))
        if batch:
            self._consumer.commit(asynchronous=False)
        return self.count

    def _count(self, ride: bytes, event: dict[str, Any]) -> None:
        step = STEPS.index(event["step"])
        self.out_of_order += step < self._last_step.get(ride, 0)
        self._last_step[ride] = step
        self.finished += step == len(STEPS) - 1
        self.too_old += event["at_ms"] < self._since_ms
        self.count += 1
