"""The catalog's part of what is written in the metadata store; `cluster/keys.py` says how."""

from respool.cluster.keys import (
    PARTITIONS,
    PRODUCER_IDS,
    TOPICS,
    TopicRecord,
    decode_partition,
    decode_topic,
    encode_partition,
    encode_topic,
    partition_key,
    topic_key,
)

__all__ = [
    "PARTITIONS",
    "PRODUCER_IDS",
    "TOPICS",
    "TopicRecord",
    "decode_partition",
    "decode_topic",
    "encode_partition",
    "encode_topic",
    "partition_key",
    "topic_key",
]
