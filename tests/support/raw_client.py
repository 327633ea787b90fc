"""A client made of a socket: it sends any bytes, and reads frames or the end of the connection.

Requests and replies with a form are made and read by kio (`broker.wire_client`), not by the broker's own code.
"""

import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from broker.wire_client import decode_reply, encode_request
from respool.wire.api_table import Api

TIMEOUT_S = 60.0
PRODUCE_VERSION = 9
FETCH_VERSION = 12


class ConnectionEnded(Exception):
    """The broker closed the connection."""


class RawClient:
    """Use it as a context."""

    def __init__(self, address: str, *, timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    # Bytes.

    def send(self, data: bytes) -> None:
        """Send bytes as they are.

        Raises:
            ConnectionEnded: the broker has closed the connection before it took them all.
        """
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionEnded from error

    def send_frame(self, body: bytes | memoryview) -> None:
        self.send(len(body).to_bytes(4, "big") + bytes(body))

    def receive(self, count: int) -> bytes:
        """Exactly that many bytes.

        Raises:
            ConnectionEnded: the broker closed the connection before.
        """
        parts: list[bytes] = []
        while count:
            try:
                part = self.socket.recv(min(count, 1 << 20))
            except ConnectionResetError as error:
                raise ConnectionEnded from error
            if not part:
                raise ConnectionEnded
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def receive_frame(self) -> bytes:
        """The next reply, with its size."""
        size = self.receive(4)
        return size + self.receive(int.from_bytes(size, "big"))

    def wait_for_end(self) -> None:
        """Return when the broker has closed the connection; fail if it answers instead."""
        try:
            answered = self.receive(1)
        except ConnectionEnded:
            return
        raise AssertionError(f"the broker answered: {answered!r} …")

    # Requests.

    def ask(self, api: Api, version: int, **fields: Any) -> Any:
        self.send_frame(encode_request(api, version, **fields))
        return decode_reply(api, version, self.receive_frame())

    def produce(
        self, topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1
    ) -> Any:
        """The answer for one partition's bytes, whatever they are."""
        reply = self.ask(
            Api.PRODUCE, PRODUCE_VERSION, **produce_fields(topic, records, partition, acks)
        )
        (answer,) = reply.responses[0].partition_responses
        return answer

    def fetch(
        self, topic: str, offset: int = 0, *, partition: int = 0, bytes_max: int = 1 << 20
    ) -> Any:
        """The answer for one partition, without waiting for records."""
        reply = self.ask(
            Api.FETCH, FETCH_VERSION, **fetch_fields(topic, [(partition, offset)], bytes_max)
        )
        (answer,) = reply.responses[0].partitions
        return answer


def produce_fields(topic: str, records: bytes | None, partition: int, acks: int) -> dict[str, Any]:
    data = {"index": partition, "records": records}
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": [data]}],
    }


def fetch_fields(
    topic: str, places: Sequence[tuple[int, int]], bytes_max: int, *, wait_ms: int = 0
) -> dict[str, Any]:
    partitions = [
        {
            "partition": partition,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": bytes_max,
        }
        for partition, offset in places
    ]
    return {
        "cluster_id": None,
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": bytes_max,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": partitions}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
