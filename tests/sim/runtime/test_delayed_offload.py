import asyncio
from functools import partial
from random import Random

import pytest

from respool.sim.runtime.delayed_offload import DelayedOffload, DiskPace
from respool.sim.runtime.sim_loop import SimLoop
from support.inline_offload import InlineOffload


def fail() -> None:
    raise LookupError("on purpose")


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_work_is_done_at_once_and_errors_come_through() -> None:
    async def story() -> None:
        offload = InlineOffload()
        assert await offload.run(lambda: 7) == 7
        with pytest.raises(LookupError):
            await offload.run(fail)

    asyncio.run(story())


def test_held_work_waits_for_its_release_in_order() -> None:
    async def story() -> None:
        offload = InlineOffload(hold=True)
        done: list[int] = []
        works = [asyncio.create_task(offload.run(partial(done.append, n))) for n in range(3)]
        await settle()
        assert (offload.held, done) == (3, [])
        offload.release(1)
        assert (offload.held, done) == (2, [0])
        offload.release()
        assert done == [0, 1, 2]
        await asyncio.gather(*works)
        assert await offload.run(lambda: "at once") == "at once"

    asyncio.run(story())


def test_held_work_that_fails_raises_where_it_is_awaited() -> None:
    async def story() -> None:
        offload = InlineOffload(hold=True)
        work = asyncio.create_task(offload.run(fail))
        await settle()
        offload.release()
        with pytest.raises(LookupError):
            await work

    asyncio.run(story())


def test_work_is_done_although_the_one_who_waited_is_gone() -> None:
    async def story() -> None:
        offload = InlineOffload(hold=True)
        done: list[int] = []
        works = [
            asyncio.create_task(offload.run(lambda: done.append(1))),
            asyncio.create_task(offload.run(fail)),
        ]
        await settle()
        for work in works:
            work.cancel()
        await settle()
        offload.release()
        assert done == [1]

    asyncio.run(story())


def test_work_takes_time_and_other_things_come_in_between() -> None:
    loop = SimLoop(1)
    happened: list[str] = []

    async def story() -> None:
        offload = DelayedOffload(Random(1), threads=1, pace=DiskPace(ms_min=10, ms_max=20))
        work = asyncio.ensure_future(offload.run(lambda: happened.append("sync")))
        await asyncio.sleep(0.001)
        happened.append("request")
        await work
        assert 0.02 <= loop.time() <= 0.04

    loop.run(story)
    assert happened == ["request", "sync"]


def test_works_wait_for_a_thread() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        offload = DelayedOffload(Random(1), threads=2, pace=DiskPace(ms_min=10, ms_max=10))
        await asyncio.gather(*(offload.run(lambda: None) for _ in range(6)))
        assert loop.time() == pytest.approx(0.06)

    loop.run(story)


def test_what_a_work_raises_comes_to_the_one_who_waits() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        offload = DelayedOffload(Random(1), threads=1, pace=DiskPace())
        with pytest.raises(LookupError):
            await offload.run(fail)
        assert await offload.run(lambda: 1) == 1

    loop.run(story)
