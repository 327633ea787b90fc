"""Links between processes that a test can cut: TCP proxies, all on one loop in a thread of their own.

A frozen link passes nothing on, in one direction or both; what was sent meanwhile arrives when it is healed, as it does
over a network that was away for a while. A refusing one ends all its connections and takes no new ones.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Self

import uvloop

CHUNK_BYTES = 65_536


class Way(Enum):
    """Whose bytes."""

    REQUESTS = "requests"
    REPLIES = "replies"


class Link:
    """One proxy. Its methods may be called from any thread, and have happened when they return."""

    def __init__(self, links: "Links", target: tuple[str, int]) -> None:
        self._links = links
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = {way: asyncio.Event() for way in Way}
        self._refuses = False
        for gate in self._open.values():
            gate.set()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def freeze(self, *ways: Way) -> None:
        def close_gates() -> None:
            for way in ways or Way:
                self._open[way].clear()

        self._links.do(close_gates)

    def refuse(self) -> None:
        self._refuses = True
        self._links.do(self._reset)

    def heal(self) -> None:
        def open_gates() -> None:
            for gate in self._open.values():
                gate.set()

        self._refuses = False
        self._links.do(open_gates)

    async def close(self) -> None:
        self._server.close()
        self._reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _reset(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        try:
            there_reader, there_writer = await asyncio.open_connection(*self._target)
        except OSError:
            # Nobody is there now.
            writer.transport.abort()
            return
        both = {writer, there_writer}
        self._writers |= both
        pumps = [
            asyncio.create_task(self._pass_on(Way.REQUESTS, reader, there_writer)),
            asyncio.create_task(self._pass_on(Way.REPLIES, there_reader, writer)),
        ]
        self._tasks |= set(pumps)
        await asyncio.gather(*pumps, return_exceptions=True)
        self._tasks -= set(pumps)
        self._writers -= both
        for one in both:
            one.transport.abort()

    async def _pass_on(
        self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._open[way].wait()
                writer.write(data)
                await writer.drain()
        # The end is a message too: it does not get through what is frozen.
        await self._open[way].wait()
        with suppress(OSError):
            writer.close()


class Links:
    """Use it as a context."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._links: list[Link] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for link in self._links:
            asyncio.run_coroutine_threadsafe(link.close(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def to(self, host: str, port: int) -> Link:
        """A new link; what connects to it is connected to that address."""
        link = Link(self, (host, port))
        asyncio.run_coroutine_threadsafe(link.listen(), self._loop).result(60)
        self._links.append(link)
        return link

    def do(self, act: Callable[[], object]) -> None:
        done = threading.Event()

        def run() -> None:
            act()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(10), "the links' loop does not answer"
