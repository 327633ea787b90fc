"""A consumer's membership in a share group: heartbeats, and which partitions it reads."""

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code
from respool.client.kafka.coordinator import Coordinator
from respool.client.kafka.errors import BrokerRefused
from respool.client.queues.queue_session import QueuePlace
from respool.wire.api_table import Api

JOIN_EPOCH, LEAVE_EPOCH = 0, -1
_REJOIN = frozenset({Code.unknown_member_id, Code.fenced_member_epoch})
_FIRST_INTERVAL_MS = 5_000


class QueueMembership:
    """Used by one thread at a time."""

    def __init__(self, cluster: Cluster, *, group: str, topics: Sequence[str]) -> None:
        self.member_id = str(uuid4())
        self._group = group
        self._topics = tuple(topics)
        self._coordinator = Coordinator(cluster, group, is_transaction=False)
        self._epoch = JOIN_EPOCH
        self._interval_ms = _FIRST_INTERVAL_MS
        self._beaten_at = -1.0
        self.assigned: frozenset[QueuePlace] = frozenset()

    def is_due(self) -> bool:
        return time.monotonic() >= self._beaten_at + self._interval_ms / 1_000

    def beat(self) -> None:
        """Send a heartbeat; join if this is the first one, or if the group has removed the member.

        Raises:
            BrokerRefused, BrokerUnreachable: the coordinator refuses it, or does not answer.
        """
        try:
            reply = self._ask(self._epoch, self._topics if self._epoch == JOIN_EPOCH else None)
        except BrokerRefused as error:
            if error.code not in _REJOIN or self._epoch == JOIN_EPOCH:
                raise
            self._epoch = JOIN_EPOCH
            reply = self._ask(JOIN_EPOCH, self._topics)
        self._epoch = reply.member_epoch
        self._interval_ms = max(1, round(reply.heartbeat_interval.total_seconds() * 1_000))
        self._beaten_at = time.monotonic()
        if reply.assignment is not None:
            self.assigned = frozenset(
                QueuePlace(UUID(bytes=topic.topic_id.bytes), number)
                for topic in reply.assignment.topic_partitions
                for number in topic.partitions
            )

    def leave(self) -> None:
        if self._epoch != JOIN_EPOCH:
            self._ask(LEAVE_EPOCH, None, limit_ms=0)
            self._epoch = JOIN_EPOCH

    def _ask(self, epoch: int, topics: Sequence[str] | None, *, limit_ms: int | None = None) -> Any:
        return self._coordinator.request(
            Api.SHARE_GROUP_HEARTBEAT,
            {
                "group_id": self._group,
                "member_id": self.member_id,
                "member_epoch": epoch,
                "rack_id": None,
                "subscribed_topic_names": topics,
            },
            doing=f"heartbeat of queue group {self._group!r}",
            limit_ms=limit_ms,
        )
