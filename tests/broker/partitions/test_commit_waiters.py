"""Who waits for the high watermark is told once: that it is there, or that it will not come."""

import asyncio

import pytest

from broker.replica_bench import Told
from respool.broker.partitions.commit_waiters import CommitQueue, FetchWaiter, FutureListener
from respool.model.errors import NotLeader
from respool.model.ids import Offset


def test_each_is_told_when_its_own_offset_is_reached() -> None:
    queue = CommitQueue()
    first, second = Told(), Told()
    queue.wait_for(Offset(3), first)
    queue.wait_for(Offset(5), second)
    queue.on_high_watermark(Offset(2))
    assert (first.done, second.done) == (0, 0)
    queue.on_high_watermark(Offset(4))
    assert (first.done, second.done) == (1, 0)
    queue.on_high_watermark(Offset(9))
    queue.on_high_watermark(Offset(10))
    assert (first.done, second.done) == (1, 1)


def test_a_failure_is_told_once_to_all_who_wait_and_to_none_who_come_later() -> None:
    queue = CommitQueue()
    waiting, late = Told(), Told()
    queue.wait_for(Offset(3), waiting)
    error = NotLeader("moved")
    queue.on_failure(error)
    queue.wait_for(Offset(3), late)
    queue.on_high_watermark(Offset(3))
    assert (waiting.error, waiting.done) == (error, 0)
    assert (late.error, late.done) == (None, 1)


def test_who_has_stopped_waiting_is_not_told_and_holds_nobody_up() -> None:
    queue = CommitQueue()
    gone, staying = Told(), Told()
    queue.wait_for(Offset(9), gone)
    queue.wait_for(Offset(3), staying)
    queue.forget(gone)
    queue.forget(gone)
    queue.on_high_watermark(Offset(3))
    assert (gone.done, staying.done) == (0, 1)
    queue.on_failure(NotLeader("moved"))
    assert gone.error is None


def test_one_that_is_told_may_wait_again_at_once() -> None:
    queue = CommitQueue()
    again = Told()

    class Eager(Told):
        def on_committed(self) -> None:
            queue.wait_for(Offset(5), again)

        def on_failed(self, error: object) -> None:
            queue.wait_for(Offset(5), again)

    queue.wait_for(Offset(3), Eager())
    queue.on_high_watermark(Offset(4))
    assert again.done == 0
    queue.on_high_watermark(Offset(5))
    assert again.done == 1
    queue.wait_for(Offset(6), Eager())
    queue.on_failure(NotLeader("moved"))
    assert again.error is None


def test_a_fetch_is_woken_once_however_often_it_is_told() -> None:
    async def story() -> None:
        waiter = FetchWaiter(bytes_wanted=100)
        waiter.on_bytes_committed(60)
        assert not waiter.ready.done()
        for _ in range(3):
            waiter.on_bytes_committed(60)
            waiter.wake()
        await waiter.ready

    asyncio.run(story())


def test_who_has_gone_away_is_not_told() -> None:
    async def story() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        listener = FutureListener(future)
        listener.on_committed()
        listener.on_failed(NotLeader("moved"))
        with pytest.raises(asyncio.CancelledError):
            await future

    asyncio.run(story())
