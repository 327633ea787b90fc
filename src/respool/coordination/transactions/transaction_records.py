"""Encodes and decodes Kafka's records of transactional ids in `__transaction_state`.

```
 key, version 0
 0     2
 | 0   | transactional id: string |

 value
 0         2             10      12        16      17
 | version | producer id | epoch | timeout | state | partitions: array or null | updated at 8 | started at 8 |
                                                                               tagged fields, in version 1
 an item of the array, for one topic
 | topic: string | partitions: array of 4 |                                    tagged fields, in version 1

 tag 0   the previous producer id, 8
 tag 1   the next producer id, 8
 tag 2   the client's transaction version, 2
```
Version 1 is flexible. It is written only if a value does not fit into version 0. The partitions of an id without a
transaction are null; those of a complete transaction are an empty array.
"""

from functools import lru_cache
from struct import Struct

from respool.coordination.record_bytes import RecordReader, RecordWriter
from respool.coordination.transactions.transaction_metadata import TransactionMetadata
from respool.coordination.transactions.transaction_requests import (
    TransactionState,
    TransactionVersion,
)
from respool.model.ids import NO_PRODUCER_ID, ProducerId, TopicPartition

TRANSACTION_KEY_VERSION = 0

_FLEXIBLE_VERSION = 1
_TAG_PREVIOUS = 0
_TAG_NEXT = 1
_TAG_VERSION = 2

_KEY_HEAD = Struct(">hh")
_HEAD = Struct(">hqhib")
_TIMES = Struct(">qq")
_TAG_INT64 = Struct(">BBq")
_TAG_INT16 = Struct(">BBh")
# Up to this number of entries, encoded partitions are cached.
_FEW_PARTITIONS = 16

_STATES = tuple(TransactionState)
_VERSIONS = tuple(TransactionVersion)


def write_transaction_key(transactional_id: str) -> bytes:
    data = transactional_id.encode()
    return _KEY_HEAD.pack(TRANSACTION_KEY_VERSION, len(data)) + data


def read_transaction_key(key: bytes) -> str:
    """Decode the transactional id.

    Raises:
        CoordinatorRecordDamaged: the key is of another kind.
    """
    reader = RecordReader(key, what="the key of a transactional id")
    reader.int16()
    transactional_id = reader.string()
    reader.end()
    return transactional_id


def write_transaction_value(transaction: TransactionMetadata) -> bytes:
    (
        _,
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        partitions,
        updated_at_ms,
        started_at_ms,
        previous_producer_id,
        next_producer_id,
        version,
    ) = transaction
    is_flexible = bool(version) or previous_producer_id >= 0 or next_producer_id >= 0
    named = None if state is TransactionState.EMPTY else partitions
    write_partitions = (
        _write_few_partitions if len(partitions) <= _FEW_PARTITIONS else _write_partitions
    )
    return b"".join(
        (
            _HEAD.pack(is_flexible, producer_id, producer_epoch, timeout_ms, state),
            write_partitions(named, is_flexible),
            _TIMES.pack(updated_at_ms, started_at_ms),
            _write_tags(previous_producer_id, next_producer_id, version) if is_flexible else b"",
        )
    )


def read_transaction_value(transactional_id: str, value: bytes) -> TransactionMetadata:
    """Decode any version that Kafka has written.

    Raises:
        CoordinatorRecordDamaged: an unknown version, a truncated record, or an invalid value.
    """
    reader = RecordReader(value, what=f"the transaction of {transactional_id!r}")
    version, producer_id, producer_epoch, timeout_ms, state = reader.fields(_HEAD)
    if version not in {0, _FLEXIBLE_VERSION}:
        raise reader.damaged(f"version {version} is unknown, the newest is {_FLEXIBLE_VERSION}")
    reader.is_flexible = version == _FLEXIBLE_VERSION
    partitions = [one for _ in range(reader.count()) for one in _read_topic(reader)]
    updated_at_ms, started_at_ms = reader.fields(_TIMES)
    tags = reader.tagged_fields()
    reader.end()
    if not 0 <= state < len(_STATES):
        raise reader.damaged(f"state {state} is unknown")
    return TransactionMetadata(
        transactional_id,
        ProducerId(producer_id),
        producer_epoch,
        timeout_ms,
        _STATES[state],
        tuple(partitions),
        updated_at_ms,
        started_at_ms,
        ProducerId(_tagged(reader, tags, _TAG_PREVIOUS, size=8, default=NO_PRODUCER_ID)),
        ProducerId(_tagged(reader, tags, _TAG_NEXT, size=8, default=NO_PRODUCER_ID)),
        _version(_tagged(reader, tags, _TAG_VERSION, size=2, default=0)),
    )


def _read_topic(reader: RecordReader) -> list[TopicPartition]:
    topic = reader.string()
    partitions = [TopicPartition(topic, reader.int32()) for _ in range(reader.count())]
    reader.tagged_fields()
    return partitions


def _tagged(
    reader: RecordReader, tags: dict[int, bytes], tag: int, *, size: int, default: int
) -> int:
    data = tags.get(tag)
    if data is None:
        return default
    if len(data) != size:
        raise reader.damaged(f"tag {tag} has {len(data)} bytes, not {size}")
    return int.from_bytes(data, "big", signed=True)


def _version(number: int) -> TransactionVersion:
    # A newer version includes at least the newest version known here.
    return _VERSIONS[min(max(0, number), len(_VERSIONS) - 1)]


def _write_partitions(partitions: tuple[TopicPartition, ...] | None, is_flexible: bool) -> bytes:
    writer = RecordWriter(is_flexible=is_flexible)
    if partitions is None:
        writer.count(-1)
        return writer.done()
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    writer.count(len(topics))
    for topic, numbers in topics.items():
        writer.string(topic)
        writer.count(len(numbers))
        for number in numbers:
            writer.int32(number)
        writer.tagged_fields({})
    return writer.done()


# Producers often write to the same partitions in consecutive transactions.
_write_few_partitions = lru_cache(maxsize=1_024)(_write_partitions)


def _write_tags(
    previous_producer_id: ProducerId, next_producer_id: ProducerId, version: TransactionVersion
) -> bytes:
    tags = []
    if previous_producer_id != NO_PRODUCER_ID:
        tags.append(_TAG_INT64.pack(_TAG_PREVIOUS, 8, previous_producer_id))
    if next_producer_id != NO_PRODUCER_ID:
        tags.append(_TAG_INT64.pack(_TAG_NEXT, 8, next_producer_id))
    if version:
        tags.append(_TAG_INT16.pack(_TAG_VERSION, 2, version))
    return bytes((len(tags),)) + b"".join(tags)
