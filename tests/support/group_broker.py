"""Scripted brokers that coordinate groups: where each is, how far it has read, and what goes wrong with asking.

They speak no newer version than the Kafka brokers of 2.8, the oldest that a mirror copies from.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply
from support.scripted_broker import HANG_UP, ScriptedBroker

LOADING, NOT_COORDINATOR, GROUP_UNAUTHORIZED = 14, 16, 30
NO_ERROR = 0
# The version of ListGroups that tells the protocol of each.
WITH_TYPES = 5

Place = tuple[str, int]


class GroupBroker(ScriptedBroker):
    """Its groups are those that it has offsets of."""

    def __init__(self) -> None:
        super().__init__()
        self.versions |= {
            Api.METADATA: (0, 10),
            Api.FIND_COORDINATOR: (0, 3),
            Api.OFFSET_COMMIT: (2, 8),
            Api.OFFSET_FETCH: (1, 7),
            Api.LIST_GROUPS: (0, 4),
        }
        # Group -> place -> offset and metadata.
        self.offsets: dict[str, dict[Place, tuple[int, str]]] = {}
        # Of all its groups; empty where all has been committed from outside.
        self.protocol_type = ""
        # What the next requests about offsets or lists of groups are answered with: codes, or None to hang up.
        self.codes: deque[int | None] = deque()
        # Whom it names as a coordinator, one after the other; the last one stays. By its number in the metadata.
        self.coordinators: deque[int] = deque([1])
        # Which requests came, by their names.
        self.asked: list[str] = []
        # All brokers, the same for each of them.
        self.cluster: Sequence[ScriptedBroker] = [self]

    @property
    def all_brokers(self) -> Sequence[ScriptedBroker]:
        return self.cluster

    def _answer(self, request: Request) -> bytes:
        self.asked.append(request.api.name)
        match request.api.key:
            case Api.FIND_COORDINATOR:
                return encode_reply(request, self._found())
            case Api.OFFSET_FETCH:
                answer = self._fetched
            case Api.OFFSET_COMMIT:
                answer = self._taken
            case Api.LIST_GROUPS:
                answer = self._listed
            case _:
                return super()._answer(request)
        code = self.codes.popleft() if self.codes else NO_ERROR
        return HANG_UP if code is None else encode_reply(request, answer(request, code))

    def _found(self) -> dict[str, Any]:
        several = len(self.coordinators) > 1
        number = self.coordinators.popleft() if several else self.coordinators[0]
        port = self.all_brokers[number - 1].port
        return {
            "throttle_time": 0,
            "error_code": NO_ERROR,
            "error_message": None,
            "node_id": number,
            "host": "127.0.0.1",
            "port": port,
        }

    def _fetched(self, request: Request, code: int) -> dict[str, Any]:
        held = {} if code else self.offsets.get(request.body.group_id, {})
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, number), (offset, metadata) in held.items():
            topics.setdefault(topic, []).append(
                {
                    "partition_index": number,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "metadata": metadata,
                    "error_code": NO_ERROR,
                }
            )
        return {
            "throttle_time": 0,
            "topics": [{"name": name, "partitions": ones} for name, ones in topics.items()],
            "error_code": code,
        }

    def _taken(self, request: Request, code: int) -> dict[str, Any]:
        body = request.body
        if not code:
            self.offsets.setdefault(body.group_id, {}).update(
                {
                    (topic.name, one.partition_index): (
                        one.committed_offset,
                        one.committed_metadata,
                    )
                    for topic in body.topics
                    for one in topic.partitions
                }
            )
        return {
            "throttle_time": 0,
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": one.partition_index, "error_code": code}
                        for one in topic.partitions
                    ],
                }
                for topic in body.topics
            ],
        }

    def _listed(self, request: Request, code: int) -> dict[str, Any]:
        groups = [
            {"group_id": name, "protocol_type": self.protocol_type, "group_state": "Empty"}
            | ({"group_type": "Consumer"} if request.version >= WITH_TYPES else {})
            for name in self.offsets
            if not code
        ]
        return {"throttle_time": 0, "error_code": code, "groups": groups}
