"""A reply to come, and those who wait for it."""

import asyncio

from respool.broker.outcome import Pipelined
from respool.sim.runtime.sim_loop import SimLoop


def test_who_waits_is_given_the_reply_when_it_is_there() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        reply = Pipelined()
        waiting = loop.create_task(reply.wait())
        await asyncio.sleep(0)
        reply.complete([b"done"])
        assert await waiting == [b"done"]
        assert await asyncio.wait_for(_settled(b"at once").wait(), 1) == [b"at once"]

    loop.run(story)


def test_a_reply_that_nobody_waits_for_any_more_harms_nobody() -> None:
    """1. A request in a transaction waits until it is committed.   2. The broker stops, and cancels it.

    3. The partition was told to fail who waits, and its broker's clean stop became a crash.
    """
    loop = SimLoop(1)

    async def story() -> None:
        reply = Pipelined()
        waiting = loop.create_task(reply.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        reply.complete([b"too late"])
        assert waiting.cancelled()
        assert reply.is_complete

    loop.run(story)
    assert loop.unhandled == []


def _settled(text: bytes) -> Pipelined:
    reply = Pipelined()
    reply.complete([text])
    return reply
