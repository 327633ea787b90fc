"""Between the threads that fetch and the one that takes."""

from collections.abc import Callable
from threading import Thread

import pyarrow as pa
import pytest

from respool.client.arrow.reading.bounded_queue import BoundedQueue, Piece
from respool.client.kafka.errors import ClientClosed, ClientError
from support.waiting import wait_until


def piece(number: int, *, rows: int = 1) -> Piece:
    batch = pa.record_batch({"x": pa.array([number] * rows, pa.int64())})
    return Piece(partition=0, batch=batch, next_offset=number)


def in_thread(run: Callable[[], object]) -> Thread:
    thread = Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_pieces_come_in_order_and_then_the_end() -> None:
    outlet = BoundedQueue(bytes_max=1_000, sources=2)
    outlet.put(piece(1))
    outlet.finish()
    outlet.put(piece(2))
    outlet.finish()
    assert [outlet.take(), outlet.take(), outlet.take()] == [piece(1), piece(2), None]


def test_a_source_waits_while_there_is_no_room() -> None:
    outlet = BoundedQueue(bytes_max=16, sources=1)
    outlet.put(piece(1, rows=1))
    assert outlet.has_room
    outlet.put(piece(2, rows=100))
    assert not outlet.has_room
    third = in_thread(lambda: outlet.put(piece(3)))
    assert outlet.take() == piece(1)
    assert third.is_alive()
    assert outlet.take() == piece(2, rows=100)
    third.join(10)
    assert outlet.take() == piece(3)


def test_an_error_comes_after_what_was_put_before_it() -> None:
    outlet = BoundedQueue(bytes_max=1_000, sources=1)
    outlet.put(piece(1))
    outlet.fail(ClientError("first"))
    outlet.fail(ClientError("second"))
    outlet.finish()
    assert outlet.take() == piece(1)
    with pytest.raises(ClientError, match="first"):
        outlet.take()


def test_nothing_in_time_is_told() -> None:
    with pytest.raises(TimeoutError):
        BoundedQueue(bytes_max=1, sources=1).take(0.0)


@pytest.mark.parametrize(
    "wait",
    [
        lambda outlet: outlet.put(piece(2)),
        lambda outlet: outlet.wait(600),
    ],
)
def test_closing_wakes_everyone(wait: Callable[[BoundedQueue], None]) -> None:
    outlet = BoundedQueue(bytes_max=1, sources=1)
    outlet.put(piece(1))
    woken: list[ClientClosed] = []

    def run() -> None:
        try:
            wait(outlet)
        except ClientClosed as error:
            woken.append(error)

    thread = in_thread(run)
    outlet.close()
    thread.join(10)
    assert len(woken) == 1
    with pytest.raises(ClientClosed):
        outlet.take()


def test_closing_wakes_who_takes() -> None:
    outlet = BoundedQueue(bytes_max=1, sources=1)
    woken: list[ClientClosed] = []

    def run() -> None:
        try:
            outlet.take()
        except ClientClosed as error:
            woken.append(error)

    in_thread(run)
    outlet.close()
    wait_until(lambda: woken, "it has woken")


def test_after_a_failure_nothing_more_is_put_in_so_that_it_is_heard_of() -> None:
    outlet = BoundedQueue(bytes_max=1_000, sources=2)
    outlet.put(piece(1))
    outlet.fail(ClientError("the other source's"))
    with pytest.raises(ClientClosed):
        outlet.put(piece(2))
    assert outlet.take() == piece(1)
    with pytest.raises(ClientError, match="the other source's"):
        outlet.take()


def test_a_source_that_waits_for_room_ends_when_another_fails() -> None:
    outlet = BoundedQueue(bytes_max=1, sources=2)
    outlet.put(piece(1))
    ended: list[ClientClosed] = []

    def put() -> None:
        try:
            outlet.put(piece(2))
        except ClientClosed as error:
            ended.append(error)

    waiting = in_thread(put)
    outlet.fail(ClientError("the other source's"))
    waiting.join(10)
    assert len(ended) == 1
