"""Partitions are paused once, again after a rebalance, and resumed."""

from typing import Any

from respool.client.messages.library import KafkaError, KafkaException
from respool.client.messages.retry.retry_pause import RetryPause

A, B = ("rides", 0), ("rides", 1)


class Library:
    def __init__(self) -> None:
        self.asked: list[tuple[str, list[int]]] = []
        self.fails = False

    def pause(self, places: list[Any]) -> None:
        self.asked.append(("pause", sorted(one.partition for one in places)))
        if self.fails:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))

    def resume(self, places: list[Any]) -> None:
        self.asked.append(("resume", sorted(one.partition for one in places)))


def test_it_pauses_what_is_assigned_and_resumes_it() -> None:
    library = Library()
    pause = RetryPause(library)
    pause.end([A])
    pause.begin([A])
    pause.begin([A])
    assert pause.is_on
    pause.begin([A, B])
    pause.end([A, B])
    assert not pause.is_on
    assert library.asked == [("pause", [0]), ("pause", [0, 1]), ("resume", [0, 1])]


def test_a_partition_that_is_just_revoked_does_not_end_the_consumer() -> None:
    library = Library()
    library.fails = True
    pause = RetryPause(library)
    pause.begin([A])
    assert pause.is_on
