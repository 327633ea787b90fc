"""Commits of many offsets at a time, over a few connections.

One frame is built, and what differs between groups is written into it in place, because it always has the same size.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, Self

from kio.index import load_response_schema
from kio.serial import entity_reader

from bench.broker_process import BrokerProcess
from bench.group_load import group_name
from bench.requests import Client, RequestFailed, frame
from respool.wire.api_table import Api

PARTITIONS_PER_COMMIT = 100
IN_FLIGHT = 8
COMMIT_VERSION = 9
_CORRELATION_BYTES = 4


class CommitFrame:
    """Commits one offset for each of a topic's partitions; patched to be another group's."""

    def __init__(self, topic: str, *, generation: int, member_id: str) -> None:
        self.data = frame(
            Api.OFFSET_COMMIT,
            COMMIT_VERSION,
            group_id=group_name(0),
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=None,
            topics=[
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partition_index": partition,
                            "committed_offset": 1_000_000 + partition,
                            "committed_leader_epoch": 0,
                            "committed_metadata": "",
                        }
                        for partition in range(PARTITIONS_PER_COMMIT)
                    ],
                }
            ],
        )
        group_id = group_name(0).encode()
        self._group = _place(self.data, group_id)
        self._member = _place(self.data, member_id.encode(), start=self._group.stop)

    @classmethod
    def of_no_member(cls, topic: str) -> Self:
        """As programs do that assign partitions themselves."""
        return cls(topic, generation=-1, member_id="")

    def of(self, group_id: str, member_id: str = "") -> bytes:
        self.data[self._group] = group_id.encode()
        self.data[self._member] = member_id.encode()
        return bytes(self.data)


def _place(data: bytearray, text: bytes, start: int = 0) -> slice:
    at = data.index(text, start)
    return slice(at, at + len(text))


def commit_all(broker: BrokerProcess, frames: Iterable[bytes], *, connections: int) -> None:
    """Send them all over this many connections in turn, with a few under way on each."""
    with ExitStack() as stack:
        clients = [
            stack.enter_context(Client(broker.host, broker.port)) for _ in range(connections)
        ]
        replies = _Replies()
        sent = 0
        for number, data in enumerate(frames):
            client = clients[number % connections]
            if number >= IN_FLIGHT * connections:
                replies.receive(client)
            client.socket.sendall(data)
            sent = number + 1
        for number in range(max(0, sent - IN_FLIGHT * connections), sent):
            replies.receive(clients[number % connections])


class _Replies:
    """All are the same, unless there is an error in one; so few need to be decoded."""

    def __init__(self) -> None:
        self._good: bytes | None = None

    def receive(self, client: Client) -> None:
        body = client.read_frame()[_CORRELATION_BYTES:]
        if body != self._good:
            self._check(body)
            self._good = body

    def _check(self, body: bytes) -> None:
        reply_class = load_response_schema(Api.OFFSET_COMMIT, COMMIT_VERSION)
        read: Any = entity_reader(reply_class)
        # The section of tagged fields that ends the header is empty.
        reply, _ = read(body[1:], 0)
        codes = {partition.error_code for topic in reply.topics for partition in topic.partitions}
        if codes != {0}:
            raise RequestFailed(f"commit answered with {codes!r}")
