"""One blocking connection to a broker, for the few requests that the client library does not offer.

Replies come in the order of the requests. Several requests may be sent before the first reply is read: the broker
carries them out one after the other, with hardly any time in between for anyone else.
"""

import select
import socket
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from respool.cli.errors import BrokerUnreachable
from respool.wire.client_codec import correlation_id_of, decode_reply, encode_request
from respool.wire.protocol_errors import ProtocolViolation

CLIENT_ID = "respool-cli"
TIMEOUT_SECONDS = 10.0
REPLY_BYTES_MAX = 64 * 1024 * 1024


class Question(NamedTuple):
    api: int
    version: int
    fields: Mapping[str, Any]


class BrokerSocket:
    """Use it as a context, or close it."""

    def __init__(self, host: str, port: int, *, timeout: float = TIMEOUT_SECONDS) -> None:
        """
        Raises:
            BrokerUnreachable: nobody answers there. All other methods raise it when the connection breaks.
        """
        self._address = f"{host}:{port}"
        self._correlation_id = 0
        # Sent and not answered yet, the oldest first: correlation id, api, version.
        self._waiting: deque[tuple[int, int, int]] = deque()
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise self._lost(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    @property
    def waiting(self) -> int:
        """How many requests have no reply yet."""
        return len(self._waiting)

    def ask(self, *questions: Question) -> list[Any]:
        """Send all of them at once, and return the body of each reply."""
        assert not self._waiting
        self.send(*questions)
        return [self.receive() for _ in questions]

    def send(self, *questions: Question) -> None:
        frames = []
        for api, version, fields in questions:
            self._correlation_id += 1
            frames.append(
                encode_request(
                    api,
                    version,
                    fields,
                    correlation_id=self._correlation_id,
                    client_id=CLIENT_ID,
                )
            )
            self._waiting.append((self._correlation_id, api, version))
        try:
            self._socket.sendall(b"".join(frames))
        except OSError as error:
            raise self._lost(error) from error

    def can_receive(self, seconds: float) -> bool:
        """Whether a reply, or the connection's end, is there within that time."""
        readable, _, _ = select.select([self._socket], [], [], seconds)
        return bool(readable)

    def receive(self) -> Any:
        """The body of the reply to the oldest request that has none."""
        correlation_id, api, version = self._waiting.popleft()
        try:
            size = int.from_bytes(self._receive(4), signed=True)
            if not 0 <= size <= REPLY_BYTES_MAX:
                raise self._lost(f"it announced a reply of {size} bytes")
            frame = self._receive(size)
            if correlation_id_of(frame) != correlation_id:
                raise self._lost("its reply is not to what was asked")
            return decode_reply(api, version, frame)
        except (OSError, ProtocolViolation) as error:
            raise self._lost(error) from error

    def _receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(min(count - len(data), 1 << 20))
            if not part:
                raise ConnectionResetError("it closed the connection")
            data += part
        return bytes(data)

    def _lost(self, why: object) -> BrokerUnreachable:
        return BrokerUnreachable(f"the broker at {self._address} does not answer: {why}")
