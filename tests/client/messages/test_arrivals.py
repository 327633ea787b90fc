"""What librdkafka hands over: messages, and errors among them that pass, that are told, or that ask for a place."""

from collections.abc import Sequence
from typing import Any

import pytest

from respool.client.messages.arrivals import Arrivals
from respool.client.messages.errors import Fenced, ReceiveFailed, UnknownTopic
from respool.client.messages.library import KafkaError, KafkaException


class Found:
    """A message of librdkafka's, or an error in the place of one."""

    def __init__(self, offset: int = 0, code: int | None = None, partition: int = 0) -> None:
        self._offset, self._partition = offset, partition
        self._error = None if code is None else KafkaError(code)

    def error(self) -> Any:
        return self._error

    def topic(self) -> str:
        return "rides"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return (1, 1_763_107_200_000)

    def key(self) -> bytes:
        return b"anna"

    def value(self) -> bytes:
        return b"12.50"

    def headers(self) -> None:
        return None


class Library:
    def __init__(self, *found: Found) -> None:
        self._found = list(found)
        self.waits: list[float] = []

    def consume(self, count: int, wait_s: float) -> Sequence[Found]:
        self.waits.append(wait_s)
        taken, self._found = self._found[:count], self._found[count:]
        return taken


def test_it_waits_for_the_first_message_alone() -> None:
    library = Library(Found(4), Found(5), Found(6))
    taken = Arrivals(library).take(0.25, 3)
    assert [one.offset for one in taken] == [4, 5, 6]
    assert library.waits == [0.25, 0]


@pytest.mark.parametrize(
    "code",
    [KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError.REBALANCE_IN_PROGRESS],
)
def test_what_passes_by_itself_is_not_told(code: int) -> None:
    arrivals = Arrivals(Library(Found(4), Found(code=code), Found(5)))
    assert [one.offset for one in arrivals.take(0.0, 3)] == [4, 5]
    arrivals.raise_error()
    assert not arrivals.has_unplaced


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, UnknownTopic),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ReceiveFailed),
    ],
)
def test_what_does_not_pass_is_told_once(code: int, told: type[Exception]) -> None:
    arrivals = Arrivals(Library(Found(code=code)))
    assert arrivals.take(0.0, 1) == []
    with pytest.raises(told) as error:
        arrivals.raise_error()
    assert isinstance(error.value.__cause__, KafkaException)
    arrivals.raise_error()


def test_who_was_replaced_hears_it_every_time() -> None:
    arrivals = Arrivals(Library(Found(code=KafkaError.FENCED_INSTANCE_ID)))
    arrivals.take(0.0, 1)
    for _ in range(2):
        with pytest.raises(Fenced):
            arrivals.raise_error()


def test_places_without_an_offset_are_handed_out_once_unless_they_are_put_back() -> None:
    gone = KafkaError._AUTO_OFFSET_RESET
    arrivals = Arrivals(Library(Found(code=gone), Found(code=gone, partition=1)))
    arrivals.take(0.0, 2)
    arrivals.forget({("rides", 1)})
    assert arrivals.take_unplaced() == {("rides", 0)}
    assert not arrivals.has_unplaced
    arrivals.put_back({("rides", 0)})
    assert arrivals.has_unplaced
