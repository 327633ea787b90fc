"""What a handler gives back: a reply now, a reply later, or none.

- `Reply`: the reply's buffers, ready to send.
- `NO_REPLY`: the client asked for none (acks=0).
- a coroutine: the reply comes when it returns. Until then the connection's next request waits: its effects must come
  after this one's.
- `Pipelined`: the request has had its effects already; only its reply waits. The next request may go ahead.

`CloseConnection` is raised when no reply can say what is wrong.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeAlias

from respool.model.errors import RespoolError

Reply: TypeAlias = Sequence[bytes]

NO_REPLY: Final[Reply] = ()


class Pipelined:
    __slots__ = ("reply",)

    def __init__(self, reply: "asyncio.Future[Reply]") -> None:
        self.reply = reply


Outcome: TypeAlias = Reply | Pipelined | Coroutine[Any, Any, Reply]


class CloseConnection(RespoolError):
    """The client can learn of this only by losing its connection."""
