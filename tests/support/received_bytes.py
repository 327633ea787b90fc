"""Counts what connections of our client receive, at the socket."""

from typing import Any

import pytest

from respool.client.kafka.connection import Connection


class ReceivedBytes:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._count = 0
        receive = Connection.receive

        def counted(connection: Connection, into: Any = None, *, wait_ms: int = 0) -> memoryview:
            frame = receive(connection, into, wait_ms=wait_ms)
            self._count += len(frame)
            return frame

        patch.setattr(Connection, "receive", counted)

    def take(self) -> int:
        """How many came since the last call."""
        count, self._count = self._count, 0
        return count
