"""Parses a Fetch reply in place: the fields of each partition, and its records as a view.

```
| correlation id 4 | *tags | throttle 4 | error 2 | session 4 | topics [
    name (12) or id 16 (13 on) | partitions [
        index 4 | error 2 | high watermark 8 | last stable 8 | log start 8 | aborted [producer 8, first offset 8, *tags]
        | preferred replica 4 | records | *tags: 0 diverging (epoch 4, end 8), 1 current leader (broker 4, epoch 4),
                                                 and one of ours: the file range of the records ]
    | *tags ] | *tags
```
Lengths and counts are varints, encoded plus one; 0 is null. kio would copy the records, which are nearly all of a reply
of many megabytes; here they are not touched.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError  # noqa: N812
from uuid import UUID

from respool.model.file_range import FileRange
from respool.wire.local_read import LOCAL_READ_TAG, unpack_file_range
from respool.wire.protocol_errors import RequestMalformed
from respool.wire.walk import read_varint, skip_tagged_fields

TOPIC_IDS_FROM = 13

_TOP = Struct(">ihi")
_PARTITION = Struct(">ihqqq")
_ABORTED = Struct(">qq")
_INT32 = Struct(">i")
_DIVERGING = Struct(">iq")
_LEADER = Struct(">ii")
_CORRELATION_ID_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPart:
    """A reply's data of one partition."""

    topic: str | UUID
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    # Producer id and first offset of aborted transactions in the records.
    aborted: tuple[tuple[int, int], ...]
    records: memoryview
    # The last common epoch and its end in the broker's log, if the reader's position is not in that log.
    diverging: tuple[int, int] | None
    # Current leader and epoch, if this broker is not the leader.
    leader: tuple[int, int] | None
    # The preferred read replica, in the reader's rack.
    preferred_read_replica: int | None = None
    # Where to take the records from, which are empty then.
    file_range: FileRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchReplyView:
    error_code: int
    session_id: int
    parts: list[FetchedPart]


def read_fetch_reply(frame: memoryview, version: int) -> FetchReplyView:
    """Parse a reply frame, without its size, of version 12 or newer.

    Raises:
        RequestMalformed: the bytes are not such a reply.
    """
    try:
        position = skip_tagged_fields(frame, _CORRELATION_ID_BYTES)
        _, error, session_id = _TOP.unpack_from(frame, position)
        count, position = _count(frame, position + _TOP.size)
        parts: list[FetchedPart] = []
        for _ in range(count):
            found, position = _topic(frame, position, version)
            parts += found
        position = skip_tagged_fields(frame, position)
    except (IndexError, ValueError, StructError) as problem:
        raise RequestMalformed(
            f"{len(frame)} bytes are not a reply to Fetch {version}: {problem}"
        ) from None
    if position > len(frame):
        raise RequestMalformed(f"a reply to Fetch {version} ends within its fields")
    return FetchReplyView(error_code=error, session_id=session_id, parts=parts)


def _topic(frame: memoryview, position: int, version: int) -> tuple[list[FetchedPart], int]:
    topic: str | UUID
    if version >= TOPIC_IDS_FROM:
        topic = UUID(bytes=bytes(frame[position : position + 16]))
        position += 16
    else:
        length, position = _count(frame, position)
        topic = str(frame[position : position + length], "utf-8")
        position += length
    count, position = _count(frame, position)
    parts = []
    for _ in range(count):
        part, position = _partition(frame, position, topic)
        parts.append(part)
    return parts, skip_tagged_fields(frame, position)


def _partition(frame: memoryview, position: int, topic: str | UUID) -> tuple[FetchedPart, int]:
    index, error, high_watermark, last_stable, log_start = _PARTITION.unpack_from(frame, position)
    count, position = _count(frame, position + _PARTITION.size)
    aborted = []
    for _ in range(count):
        producer_id, first_offset = _ABORTED.unpack_from(frame, position)
        aborted.append((producer_id, first_offset))
        position = skip_tagged_fields(frame, position + _ABORTED.size)
    (preferred,) = _INT32.unpack_from(frame, position)
    length, position = _count(frame, position + _INT32.size)
    if position + length > len(frame):
        raise IndexError(f"{length} bytes of records, and {len(frame) - position} are left")
    records = frame[position : position + length]
    position += length
    diverging = leader = file_range = None
    for tag, content in _tags(frame, position):
        if tag == 0:
            diverging = _DIVERGING.unpack_from(content)
        elif tag == 1:
            leader = _LEADER.unpack_from(content)
        elif tag == LOCAL_READ_TAG:
            file_range = unpack_file_range(content)
    part = FetchedPart(
        topic=topic,
        partition=index,
        error_code=error,
        high_watermark=high_watermark,
        last_stable_offset=last_stable,
        log_start=log_start,
        aborted=tuple(aborted),
        records=records,
        diverging=None if diverging is None or diverging[1] < 0 else diverging,
        leader=None if leader is None or leader[0] < 0 else leader,
        preferred_read_replica=preferred if preferred >= 0 else None,
        file_range=file_range,
    )
    return part, skip_tagged_fields(frame, position)


def _count(frame: memoryview, position: int) -> tuple[int, int]:
    count, position = read_varint(frame, position)
    return max(count - 1, 0), position


def _tags(frame: memoryview, position: int) -> Iterator[tuple[int, memoryview]]:
    count, position = read_varint(frame, position)
    for _ in range(count):
        tag, position = read_varint(frame, position)
        size, position = read_varint(frame, position)
        yield tag, frame[position : position + size]
        position += size
