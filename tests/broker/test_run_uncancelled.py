"""Work that is done to its end though nobody wants it any more."""

import asyncio

import pytest

from respool.broker.run_uncancelled import run_uncancelled
from support.inline_offload import InlineOffload


def test_a_cancelled_caller_ends_when_its_work_has() -> None:
    async def story() -> None:
        offload = InlineOffload(hold=True)
        done: list[str] = []
        caller = asyncio.create_task(run_uncancelled(offload.run(lambda: done.append("cut"))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        caller.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not caller.done()
        offload.release()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert done == ["cut"]

    asyncio.run(story())


def test_what_it_returns_and_raises_is_the_works_own() -> None:
    async def story() -> None:
        offload = InlineOffload()
        assert await run_uncancelled(offload.run(lambda: 7)) == 7
        with pytest.raises(ZeroDivisionError):
            await run_uncancelled(offload.run(lambda: 1 // 0))

    asyncio.run(story())
