"""A channel to etcd ends, whatever its connections do."""

import asyncio
from typing import Any

from respool.drivers.etcd_channel import EtcdChannel
from respool.drivers.etcd_options import endpoint_of
from respool.sim.runtime.sim_loop import SimLoop


class FakeTransport:
    def __init__(self, on_abort: Any = lambda: None) -> None:
        self.aborts = 0
        self._on_abort = on_abort

    def abort(self) -> None:
        self.aborts += 1
        self._on_abort()


def a_channel() -> EtcdChannel:
    return EtcdChannel(endpoint_of("http://127.0.0.1:1"))


def test_a_connection_that_was_made_while_it_was_closed_ends_with_it() -> None:
    """1. A connection is being made.   2. The channel is closed.   3. The connection is there, and nobody's."""
    loop = SimLoop(1)

    async def story() -> None:
        channel = a_channel()
        channel.close()
        protocol: Any = object()
        late: Any = FakeTransport(lambda: loop.call_soon(channel.on_lost, protocol))
        channel.on_made(protocol, late)
        await asyncio.wait_for(channel.wait_until_gone(), 1)
        assert late.aborts == 1

    loop.run(story)


def test_one_that_does_not_go_is_not_waited_for_for_ever() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        channel = a_channel()
        stuck: Any = FakeTransport()
        channel.on_made(object(), stuck)  # type: ignore[arg-type]
        await asyncio.wait_for(channel.wait_until_gone(), 60)
        assert stuck.aborts > 1

    loop.run(story)
