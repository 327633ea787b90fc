"""Types of ids, so that plain integers are not mixed up."""

import re
from typing import NamedTuple, NewType
from uuid import UUID

from respool.model.errors import InvalidTopic

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
TopicId = NewType("TopicId", UUID)

NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_TIMESTAMP = -1
ZERO_TOPIC_ID = TopicId(UUID(int=0))

TOPIC_NAME_LENGTH_MAX = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def check_topic_name(name: str) -> None:
    """Reject the names that Kafka rejects. A name becomes a folder, so this also keeps paths inside the data folder.

    Raises:
        InvalidTopic: the name is empty, too long, `.` or `..`, or has a character outside [a-zA-Z0-9._-].
    """
    if not name:
        raise InvalidTopic("the topic name is empty")
    if name in {".", ".."}:
        raise InvalidTopic(f"the topic name cannot be {name!r}")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopic(
            f"the topic name has {len(name)} characters, limit {TOPIC_NAME_LENGTH_MAX}"
        )
    if not _TOPIC_NAME.fullmatch(name):
        raise InvalidTopic(
            f"the topic name {name!r} has characters other than letters, digits, '.', '_' and '-'"
        )
