"""The outcome of a handler: a reply now, a reply later, or none.

- `Reply`: the reply's buffers, ready to send.
- `NO_REPLY`: the client wants none (acks=0).
- a coroutine: returns the reply. Until then the connection's next request waits, since it must take effect later.
- `Pipelined`: the request has taken effect; only its reply waits. The next request may start.

`CloseConnection` is raised when no reply can express the error.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias

from respool.model.errors import RespoolError

Reply: TypeAlias = Sequence[bytes | memoryview]

NO_REPLY: Final[Reply] = ()


class Pipelined:
    """A pending reply. Its sender is called immediately when the reply is ready, not in a later turn of the loop."""

    __slots__ = ("_on_reply", "_reply")

    def __init__(self) -> None:
        self._reply: Reply | None = None
        self._on_reply: Callable[[Reply], None] | None = None

    def then(self, on_reply: Callable[[Reply], None]) -> None:
        """Call `on_reply` with the reply, once. Only one caller may register."""
        assert self._on_reply is None
        if self._reply is not None:
            on_reply(self._reply)
        else:
            self._on_reply = on_reply

    def complete(self, reply: Reply) -> None:
        assert self._reply is None
        self._reply = reply
        if self._on_reply is not None:
            self._on_reply(reply)

    @property
    def is_complete(self) -> bool:
        return self._reply is not None

    async def wait(self) -> Reply:
        waiting: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def on_reply(reply: Reply) -> None:
            # The waiting task may have been cancelled: a connection closed, or the broker stops.
            if not waiting.done():
                waiting.set_result(reply)

        self.then(on_reply)
        return await waiting


Outcome: TypeAlias = Reply | Pipelined | Coroutine[Any, Any, Reply]


class CloseConnection(RespoolError):
    """An error that the client can notice only because its connection is closed."""
