"""How topics and partitions are written in the metadata store: which keys, and JSON values.

```
/topics/<name>                 {"id", "overrides", "partitions"}
/partitions/<topic id>/<n>     {"replicas", "isr", "leader", "leader_epoch"}
/producer-ids                  {"next"}
```
One transaction creates or deletes a topic with all its partitions, so nobody sees half of one.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId, LeaderEpoch, TopicId

TOPICS = "/topics/"
PARTITIONS = "/partitions/"
PRODUCER_IDS = "/producer-ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    id: TopicId
    overrides: Mapping[str, str]
    partition_count: int


def topic_key(name: str) -> str:
    return TOPICS + name


def partition_key(topic_id: TopicId, partition: int) -> str:
    return f"{PARTITIONS}{topic_id.hex}/{partition}"


def encode_topic(topic: TopicRecord) -> bytes:
    return _dump(
        {
            "id": topic.id.hex,
            "overrides": dict(topic.overrides),
            "partitions": topic.partition_count,
        }
    )


def decode_topic(value: bytes) -> TopicRecord:
    fields = json.loads(value)
    return TopicRecord(
        id=TopicId(UUID(hex=fields["id"])),
        overrides=fields["overrides"],
        partition_count=fields["partitions"],
    )


def encode_partition(partition: PartitionImage) -> bytes:
    return _dump(
        {
            "replicas": partition.replicas,
            "isr": partition.isr,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
        }
    )


def decode_partition(value: bytes) -> PartitionImage:
    fields = json.loads(value)
    leader = fields["leader"]
    return PartitionImage(
        replicas=tuple(BrokerId(one) for one in fields["replicas"]),
        isr=tuple(BrokerId(one) for one in fields["isr"]),
        leader=None if leader is None else BrokerId(leader),
        leader_epoch=LeaderEpoch(fields["leader_epoch"]),
    )


def _dump(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
