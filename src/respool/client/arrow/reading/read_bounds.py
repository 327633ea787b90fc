"""The start and end of a read, as callers give them: `model/seek_target.py`, and offsets by partition. Pure.

None  "earliest"  "latest"                       the start or end of the log
4711  {0: 4711, 1: 4000}                         an offset for every partition, or one for each
datetime with a zone                             a time
timedelta(days=3)                                that long before now
"3 days ago"  "yesterday 08:00"                  a time in any form that the command line accepts
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from respool.client.kafka.errors import BadArgument
from respool.model.seek_target import (
    AtOffset,
    InvalidSeekTarget,
    SeekTarget,
    parse_seek_target,
    valid_offset,
)

When: TypeAlias = datetime | timedelta | int | Mapping[int, int] | str | None

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """An offset for each partition."""

    offsets: Mapping[int, int]


Point: TypeAlias = SeekTarget | PartitionOffsets


def parse_point(name: str, said: When, *, default: Point, now_ms: int) -> Point:
    """
    Raises:
        BadArgument: it has none of these forms.
    """
    if said is None:
        return default
    try:
        if not isinstance(said, Mapping):
            return parse_seek_target(said, now=_EPOCH + timedelta(milliseconds=now_ms))
        offsets = {_partition(name, key): valid_offset(value) for key, value in said.items()}
    except InvalidSeekTarget as error:
        raise BadArgument(f"{name} = {error}") from None
    if not offsets:
        raise BadArgument(f"{name} names no partition")
    return PartitionOffsets(offsets)


def target_of(point: Point, partition: int) -> SeekTarget:
    """The target in one partition."""
    return AtOffset(point.offsets[partition]) if isinstance(point, PartitionOffsets) else point


def format_ms(ms: int) -> str:
    """Format a time so that it can be given as an argument again."""
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{ms} ms after 1970"


def _partition(name: str, value: object) -> int:
    try:
        return valid_offset(value)
    except InvalidSeekTarget:
        raise BadArgument(
            f"{name} names partition {value!r}: they are whole numbers from 0"
        ) from None
