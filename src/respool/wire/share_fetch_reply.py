"""Encodes ShareFetch replies by hand: records are not copied, a reply is a list of buffers with the records in between.

```
throttle 4, error 2, error message, lock duration 4,
[topic id 16, [partition: index 4, error 2, message, acknowledge error 2, message, leader 4, leader epoch 4, tags,
               records, [first 8, last 8, delivery count 2, tags], tags], tags]
[node endpoint: id 4, host, port 4, rack, tags], tags
```
Every version is flexible, and versions 1 and 2 have the same reply.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from respool.wire.hot_replies import NodeEndpoint
from respool.wire.reply_errors import with_errors
from respool.wire.walk import pack_varint

Buffers = Sequence[bytes | memoryview]


class SharedPartition(NamedTuple):
    """A share partition's part of the reply."""

    partition: int
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    # With NOT_LEADER_OR_FOLLOWER; zeros otherwise, as Kafka sends them.
    current_leader: tuple[int, int] = (0, 0)
    # Whole batches.
    records: Buffers = ()
    record_bytes: int = 0
    # First and last offset, and delivery count.
    acquired: Sequence[tuple[int, int, int]] = ()


_HEAD = Struct(">iiB").pack
_TOP = Struct(">ih").pack
_INT16 = Struct(">h").pack
_INT32 = Struct(">i").pack
_PARTITION = Struct(">ih").pack
_LEADER = Struct(">iiB").pack
_ACQUIRED = Struct(">qqhB").pack
_NO_TAGS = b"\0"
# Size and correlation id, without the size's own bytes, and the header's tags.
_HEAD_BYTES = 5


def encode_share_fetch_reply(
    correlation_id: int,
    topics: Sequence[tuple[UUID, Sequence[SharedPartition]]],
    *,
    lock_duration_ms: int,
    throttle_ms: int = 0,
    error_code: int = 0,
    error_message: str | None = None,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[bytes | memoryview]:
    """Encode the whole reply frame, including its size, as consecutive buffers."""
    codes = [error_code] if error_code else []
    # Bytes before the next records; joined when those come.
    pieces = [_TOP(throttle_ms, error_code), _text(error_message), _INT32(lock_duration_ms)]
    pieces.append(_length(len(topics)))
    buffers: list[bytes | memoryview] = []
    for topic_id, partitions in topics:
        pieces += (topic_id.bytes, _length(len(partitions)))
        for one in partitions:
            codes += [code for code in (one.error_code, one.acknowledge_error_code) if code]
            pieces += (
                _PARTITION(one.partition, one.error_code),
                _text(one.error_message),
                _INT16(one.acknowledge_error_code),
                _text(one.acknowledge_error_message),
                _LEADER(*one.current_leader, 0),
                _length(one.record_bytes),
            )
            if one.record_bytes:
                buffers.append(b"".join(pieces))
                buffers += one.records
                pieces = []
            pieces.append(_length(len(one.acquired)))
            pieces += [_ACQUIRED(*acquired, 0) for acquired in one.acquired]
            pieces.append(_NO_TAGS)
        pieces.append(_NO_TAGS)
    pieces.append(_length(len(node_endpoints)))
    for node_id, host, port, rack in node_endpoints:
        pieces += (_INT32(node_id), _text(host), _INT32(port), _text(rack), _NO_TAGS)
    pieces.append(_NO_TAGS)
    last = b"".join(pieces)
    size = sum(map(len, buffers)) + len(last)
    head = _HEAD(size + _HEAD_BYTES, correlation_id, 0)
    if buffers:
        buffers[0] = head + bytes(buffers[0])
    else:
        last = head + last
    buffers.append(with_errors(last, codes) if codes else last)
    return buffers


def _length(count: int) -> bytes:
    """Of an array, or of records."""
    return pack_varint(count + 1)


def _text(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    encoded = text.encode()
    return _length(len(encoded)) + encoded
