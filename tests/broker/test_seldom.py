"""A trouble that lasts is told when it begins, now and then, and at its end."""

import asyncio

from respool.broker.seldom import REMIND_EVERY_S, Seldom
from respool.sim.loop import SimLoop


def test_a_trouble_is_told_when_it_begins_and_once_a_minute() -> None:
    async def story() -> None:
        trouble = Seldom()
        told_at = []
        for second in range(150):
            if trouble.should_tell():
                told_at.append(second)
            await asyncio.sleep(1)
        assert told_at == [0, int(REMIND_EVERY_S), int(2 * REMIND_EVERY_S)]

    SimLoop(1).run(story)


def test_its_end_is_told_where_its_beginning_was_and_the_next_one_is_told_at_once() -> None:
    async def story() -> None:
        trouble = Seldom()
        assert not trouble.should_tell_end()
        assert trouble.should_tell()
        assert (trouble.should_tell_end(), trouble.should_tell_end()) == (True, False)
        assert trouble.should_tell()

    SimLoop(1).run(story)
