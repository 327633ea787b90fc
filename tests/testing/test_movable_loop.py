"""A loop whose time can be moved, and that tells when it has settled."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from respool.testing.movable_loop import CountedThreads, MovableLoop, WorkCount


def run(story: Coroutine[Any, Any, None]) -> None:
    loop = MovableLoop()
    try:
        loop.run_until_complete(story)
    finally:
        loop.close()


def running() -> MovableLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, MovableLoop)
    return loop


def idle() -> bool:
    return False


def test_what_became_due_has_run_in_its_order_and_what_did_not_has_not() -> None:
    async def story() -> None:
        loop = running()
        seen: list[str] = []
        loop.call_later(200, seen.append, "after 200 s")
        loop.call_later(100, seen.append, "after 100 s")
        loop.call_later(400, seen.append, "after 400 s")
        before = loop.time()

        assert await loop.move_on(300_000, is_busy=idle)

        assert seen == ["after 100 s", "after 200 s"]
        assert 300 <= loop.time() - before < 360

    run(story())


def test_timers_of_whoever_crashed_never_ring() -> None:
    async def story() -> None:
        loop = running()
        seen: list[str] = []
        for one in range(200):
            loop.call_later(10 + one, seen.append, "before")
        loop.cancel_timers()
        loop.call_later(10, seen.append, "after")
        await loop.move_on(1_000_000, is_busy=idle)
        assert seen == ["after"]

    run(story())


def test_sleeps_and_timeouts_end_with_the_time() -> None:
    async def wait_in_vain() -> str:
        try:
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "never"

    async def story() -> None:
        sleeping = asyncio.ensure_future(asyncio.sleep(3600, "slept"))
        waiting = asyncio.ensure_future(wait_in_vain())
        await asyncio.sleep(0)
        await running().move_on(3_601_000, is_busy=idle)
        assert sleeping.done()
        assert (sleeping.result(), await waiting) == ("slept", "timed out")

    run(story())


def test_work_on_other_threads_that_the_time_set_off_is_done_too() -> None:
    async def story() -> None:
        work_count = WorkCount()
        threads = CountedThreads(2, work_count)
        done: list[str] = []

        async def every_hour() -> None:
            await asyncio.sleep(3600)
            await threads.run(lambda: done.append("first"))
            await threads.run(lambda: done.append("second"))

        task = asyncio.ensure_future(every_hour())
        await asyncio.sleep(0)
        assert await running().move_on(3_600_000, is_busy=work_count.is_busy)
        assert done == ["first", "second"]
        assert task.done()
        assert work_count.in_progress == 0
        threads.close()

    run(story())


def test_it_does_not_wait_for_ever_for_one_that_is_always_busy(monkeypatch: Any) -> None:
    monkeypatch.setattr("respool.testing.movable_loop.IDLE_S_MAX", 0.05)

    async def story() -> None:
        assert not await running().move_on(1, is_busy=lambda: True)

    run(story())
