"""The end of a listener: it waits for what is under way, but not for what will never be."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from respool.broker.broker import Broker
from respool.model.settings import Settings
from respool.server.listener import Listener
from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_metrics import SimMetrics


def listener(stopped: list[str], *, grace_ms: int = 1_000) -> Listener:
    """One that nobody is connected to any more, but whose requests may still be under way."""
    broker: Any = SimpleNamespace(
        settings=Settings.from_flat(stop_grace_ms=grace_ms),
        world=SimpleNamespace(metrics=SimMetrics()),
        logins=None,
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        catalog=SimpleNamespace(observers=[]),
        image=SimpleNamespace(users={}, tokens={}),
        stop_coordinators=lambda: stopped.append("coordinators"),
    )
    return Listener(cast("Broker", broker))


def test_a_stop_waits_for_requests_that_end_and_cancels_those_that_do_not() -> None:
    loop = SimLoop()

    async def story() -> None:
        stopped: list[str] = []
        one = listener(stopped)
        ending: asyncio.Task[Any] = loop.create_task(asyncio.sleep(0.5, [b"done"]))
        waiting: asyncio.Task[Any] = loop.create_task(asyncio.Event().wait())
        one.own(ending)
        one.own(waiting)
        await one.stop()
        assert ending.result() == [b"done"]
        assert waiting.cancelled()
        assert loop.time() <= 1.5

    loop.run(story)


def test_a_stop_tells_those_who_wait_for_a_coordinator_to_look_for_it_anew() -> None:
    loop = SimLoop()

    async def story() -> None:
        stopped: list[str] = []
        await listener(stopped).stop()
        assert stopped == ["coordinators"]

    loop.run(story)
