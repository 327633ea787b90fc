"""A TCP proxy for tests: passes bytes both ways, until it is told to swallow what the server answers."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self


class TcpProxy:
    """Use it as a context. `swallow` makes it keep the server's bytes to itself; `cut` ends all connections."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._is_swallowing = False
        # Set when the server has answered something that was swallowed.
        self.swallowed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def swallow(self) -> None:
        self._is_swallowing = True

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(*self._target)
        self._writers += [writer, there_writer]
        self._tasks += [
            asyncio.create_task(self._pass_on(reader, there_writer, is_answer=False)),
            asyncio.create_task(self._pass_on(there_reader, writer, is_answer=True)),
        ]

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if is_answer and self._is_swallowing:
                    self.swallowed.set()
                else:
                    writer.write(data)
        writer.close()
