"""A Produce request in parts, so that a socket can send the batches without copying them.

```
body (versions 9 to 12)
 | transactional id | acks 2 | timeout 4 | topics n+1 | ... | tags 0 |
 topic      | name | partitions n+1 | ... | tags 0 |
 partition  | index 4 | records, length+1 | the batch | tags 0 |
```
Lengths and counts are unsigned varints of the value plus one; 0 means null. A request has at most one batch per
partition: brokers accept no more.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

from respool.client.kafka.codes import code_name

Buffer: TypeAlias = bytes | bytearray | memoryview

_HEAD = Struct(">hi")
_INDEX = Struct(">i")
_NO_TAGS = b"\0"


class ProduceAnswer(NamedTuple):
    """The broker's answer for one partition's batch."""

    topic: str
    partition: int
    code: int
    message: str
    base_offset: int
    # The index in the batch of the record that caused the error, if one did.
    row: int | None


def produce_body(
    batches: Mapping[str, Sequence[tuple[int, Buffer]]],
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None,
) -> list[Buffer]:
    """The parts of the request body; `batches` is topic -> (partition, batch)."""
    parts: list[Buffer] = []
    text = bytearray(_string(transactional_id))
    text += _HEAD.pack(acks, timeout_ms)
    text += uvarint(len(batches) + 1)
    for topic, of_topic in batches.items():
        text += _string(topic)
        text += uvarint(len(of_topic) + 1)
        for partition, batch in of_topic:
            text += _INDEX.pack(partition)
            text += uvarint(memoryview(batch).nbytes + 1)
            parts += (text, batch)
            text = bytearray(_NO_TAGS)
        text += _NO_TAGS
    text += _NO_TAGS
    parts.append(text)
    return parts


def answers_of(reply: Any) -> list[ProduceAnswer]:
    """The answers in a decoded reply, one per partition."""
    return [
        ProduceAnswer(
            topic=str(topic.name),
            partition=int(one.index),
            code=int(one.error_code),
            message=_message(one),
            base_offset=int(one.base_offset),
            row=int(one.record_errors[0].batch_index) if one.record_errors else None,
        )
        for topic in reply.responses
        for one in topic.partition_responses
    ]


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _string(text: str | None) -> bytes:
    if text is None:
        return _NO_TAGS
    data = text.encode()
    return uvarint(len(data) + 1) + data


def _message(one: Any) -> str:
    if not int(one.error_code):
        return ""
    name = code_name(one.error_code)
    return f"{name}: {one.error_message}" if one.error_message else name
