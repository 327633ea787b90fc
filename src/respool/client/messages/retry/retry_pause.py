"""Pauses the partitions of a consumer while too many of its messages fail."""

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

from respool.client.messages.library import KafkaException, TopicPartition, log
from respool.client.messages.message import Place


class RetryPause:
    def __init__(self, kafka: Any) -> None:
        self._kafka = kafka
        # None: not paused.
        self._places: frozenset[Place] | None = None

    @property
    def is_on(self) -> bool:
        return self._places is not None

    def begin(self, assigned: Collection[Place]) -> None:
        """Fetch nothing more of these partitions. To be called again after a rebalance."""
        if self._places is None:
            log.warning("messages fail at more than retry_rate_max: reading is paused")
        if self._places != frozenset(assigned):
            self._places = frozenset(assigned)
            # One that has just been revoked cannot be paused.
            with suppress(KafkaException):
                self._kafka.pause(_partitions(assigned))

    def end(self, assigned: Iterable[Place]) -> None:
        if self._places is not None:
            self._places = None
            with suppress(KafkaException):
                self._kafka.resume(_partitions(assigned))


def _partitions(places: Iterable[Place]) -> list[Any]:
    return [TopicPartition(*place) for place in places]
