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


def empty(next_offset: int, *, partition: int = 0) -> Piece:
    return Piece(partition=partition, batch=None, next_offset=next_offset)


def in_thread(run: Callable[[], object]) -> Thread:
    thread = Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_pieces_come_in_order_and_then_the_end() -> None:
    queue = BoundedQueue(bytes_max=1_000, sources=2)
    queue.put(piece(1))
    queue.finish()
    queue.put(piece(2))
    queue.finish()
    assert [queue.take(), queue.take(), queue.take()] == [piece(1), piece(2), None]


def test_a_source_waits_while_there_is_no_room() -> None:
    queue = BoundedQueue(bytes_max=16, sources=1)
    queue.put(piece(1, rows=1))
    assert queue.has_room
    queue.put(piece(2, rows=100))
    assert not queue.has_room
    third = in_thread(lambda: queue.put(piece(3)))
    assert queue.take() == piece(1)
    assert third.is_alive()
    assert queue.take() == piece(2, rows=100)
    third.join(10)
    assert queue.take() == piece(3)


def test_an_error_comes_after_what_was_put_before_it() -> None:
    queue = BoundedQueue(bytes_max=1_000, sources=1)
    queue.put(piece(1))
    queue.fail(ClientError("first"))
    queue.fail(ClientError("second"))
    queue.finish()
    assert queue.take() == piece(1)
    with pytest.raises(ClientError, match="first"):
        queue.take()


def test_nothing_in_time_is_told() -> None:
    with pytest.raises(TimeoutError):
        BoundedQueue(bytes_max=1, sources=1).take(0.0)


@pytest.mark.parametrize(
    "wait",
    [
        lambda queue: queue.put(piece(2)),
        lambda queue: queue.wait(600),
    ],
)
def test_closing_wakes_everyone(wait: Callable[[BoundedQueue], None]) -> None:
    queue = BoundedQueue(bytes_max=1, sources=1)
    queue.put(piece(1))
    woken: list[ClientClosed] = []

    def run() -> None:
        try:
            wait(queue)
        except ClientClosed as error:
            woken.append(error)

    thread = in_thread(run)
    queue.close()
    thread.join(10)
    assert len(woken) == 1
    with pytest.raises(ClientClosed):
        queue.take()


def test_closing_wakes_who_takes() -> None:
    queue = BoundedQueue(bytes_max=1, sources=1)
    woken: list[ClientClosed] = []

    def run() -> None:
        try:
            queue.take()
        except ClientClosed as error:
            woken.append(error)

    in_thread(run)
    queue.close()
    wait_until(lambda: woken, "it has woken")


def test_after_a_failure_nothing_more_is_put_in_so_that_it_is_heard_of() -> None:
    queue = BoundedQueue(bytes_max=1_000, sources=2)
    queue.put(piece(1))
    queue.fail(ClientError("the other source's"))
    with pytest.raises(ClientClosed):
        queue.put(piece(2))
    assert queue.take() == piece(1)
    with pytest.raises(ClientError, match="the other source's"):
        queue.take()


def test_a_source_that_waits_for_room_ends_when_another_fails() -> None:
    queue = BoundedQueue(bytes_max=1, sources=2)
    queue.put(piece(1))
    ended: list[ClientClosed] = []

    def put() -> None:
        try:
            queue.put(piece(2))
        except ClientClosed as error:
            ended.append(error)

    waiting = in_thread(put)
    queue.fail(ClientError("the other source's"))
    waiting.join(10)
    assert len(ended) == 1


def test_pieces_without_messages_do_not_pile_up_while_nobody_takes_them() -> None:
    queue = BoundedQueue(bytes_max=1_000, sources=1)
    queue.put(piece(1))
    for offset in range(2, 100):
        queue.put(empty(offset))
        queue.put(empty(offset + 1_000, partition=1))
    queue.finish()
    first, second = queue.take(), queue.take()
    assert first is not None
    assert (first.batch, first.next_offset) == (piece(1).batch, 99)
    assert second == empty(1_099, partition=1)
    assert queue.take() is None


def test_a_piece_without_messages_is_queued_after_the_last_one_was_taken() -> None:
    queue = BoundedQueue(bytes_max=1_000, sources=1)
    queue.put(piece(1))
    assert queue.take() == piece(1)
    queue.put(empty(7))
    assert queue.take() == empty(7)
