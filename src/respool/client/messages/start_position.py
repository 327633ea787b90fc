"""Gets and sets librdkafka's position in each partition.

A seek moves a partition that is being read. One that is not (nothing was committed, or the offset was deleted) needs
an assignment with an offset; the call for that depends on the rebalance protocol, eager or cooperative.
"""

from collections.abc import Collection, Mapping
from typing import Any

from respool.client.messages import library
from respool.client.messages.errors import ReceiveFailed
from respool.client.messages.library import KafkaException, TopicPartition
from respool.client.messages.message import Place

_ASK_SECONDS = 10.0


class Positions:
    def __init__(self, kafka: Any, *, is_incremental: bool) -> None:
        self._kafka = kafka
        self._is_incremental = is_incremental

    def wanted(self, assigned: Collection[Place]) -> dict[Place, int | None]:
        """Return the next offset of each partition: after the last fetched message, else the committed offset, else
        None.

        Raises:
            KafkaException: no reply came.
        """
        places = [TopicPartition(*place) for place in assigned]
        wanted = {(one.topic, one.partition): one.offset for one in self._kafka.position(places)}
        unread = [one for one in places if wanted[one.topic, one.partition] < 0]
        if unread:
            for one in self._kafka.committed(unread, timeout=_ASK_SECONDS):
                if one.error is not None:
                    raise KafkaException(one.error)
                wanted[one.topic, one.partition] = one.offset
        return {place: offset if offset >= 0 else None for place, offset in wanted.items()}

    def go_to(self, targets: Mapping[Place, int], *, assigned: Collection[Place]) -> None:
        """Continue at these offsets; other partitions are not affected.

        Raises:
            ReceiveFailed: librdkafka could not set a position.
        """
        stuck: dict[Place, int] = {}
        for place, offset in targets.items():
            try:
                self._kafka.seek(TopicPartition(*place, offset))
            except KafkaException:
                stuck[place] = offset
        if not stuck:
            return
        try:
            self._assign_at(stuck, assigned)
        except KafkaException as error:
            raise ReceiveFailed(
                f"librdkafka does not read on from {stuck}: {library.reason(error)}. Start again; commits are kept"
            ) from error

    def _assign_at(self, targets: Mapping[Place, int], assigned: Collection[Place]) -> None:
        moved = [TopicPartition(*place, offset) for place, offset in targets.items()]
        if self._is_incremental:
            self._kafka.incremental_unassign(moved)
            self._kafka.incremental_assign(moved)
            return
        others = self._kafka.position(
            [TopicPartition(*place) for place in assigned if place not in targets]
        )
        for one in others:
            if one.offset < 0:
                one.offset = library.OFFSET_STORED
        self._kafka.assign(moved + others)


def is_incremental(settings: Mapping[str, object]) -> bool:
    """True if these settings of a consumer choose cooperative rebalancing."""
    return "cooperative" in str(settings.get("partition.assignment.strategy", "")) or (
        settings.get("group.protocol") == "consumer"
    )
