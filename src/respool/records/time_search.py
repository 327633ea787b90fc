"""Finds the first record of a decompressed batch that reaches a timestamp, in plain Python and yet fast.

Timestamps are unordered, so every record before the result is looked at. `record.py` does it strictly; this does the
same for usual batches and raises for others.

Many batches have runs of records of one size. In a run, a byte of all records is one slice, with the size as its step.
So the records of a run are compared at once, in slices, and none is parsed:

```
 | length | attributes | timestamp | offset | ...     | length | attributes | timestamp | offset | ...
   ^---------------------- size ----------------------> ^
```
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

# Shorter runs are not worth the slices.
RUN_RECORDS_MIN = 8
# Where no run begins this often, records have many sizes, and no further run is looked for.
RUN_FAILURES_MAX = 2
# Varints: all bytes but the last one have the highest bit.
_LAST = bytes(range(0x80))
_NOT_LAST = bytes(range(0x80, 0x100))
TIMESTAMP_BYTES_MAX = 3
# The varints of all offset deltas of one byte, then of two bytes, as a column each.
_ONE_BYTE_END = 0x40
_TWO_BYTES_END = 0x2000
_OFFSETS = (
    bytes(
        delta << 1 if delta < _ONE_BYTE_END else delta << 1 & 0x7F | 0x80
        for delta in range(_TWO_BYTES_END)
    ),
    bytes(delta >> 6 for delta in range(_TWO_BYTES_END)),
)


class DeltaMinimums(NamedTuple):
    """The minimums of the record to be found, relative to its batch."""

    timestamp_delta: int
    offset_delta: int


class FoundDelta(NamedTuple):
    offset_delta: int
    timestamp_delta: int


class UnusualRecords(Exception):
    """A number has more bytes than usual, or a record is malformed."""


def find_delta(  # noqa: PLR0912, PLR0915 - a call per number or record takes several times as long.
    data: bytes, wanted: DeltaMinimums, *, record_count: int, offset_delta_max: int
) -> FoundDelta | None:
    """Return the first record that reaches both minimums; None if none does.

    Raises:
        UnusualRecords, IndexError: the records must be parsed strictly, and may be malformed.
    """
    timestamp_delta_min, offset_delta_min = wanted
    position = number = 0
    offset_delta_last = -1
    failures_left = RUN_FAILURES_MAX
    # The last record from which on a run is looked for.
    run_from_max = record_count - RUN_RECORDS_MIN
    while number < record_count:
        begin = position
        length = data[position]
        at = position + 1
        if length > 0x7F:
            byte = data[at]
            at += 1
            if byte > 0x7F:
                raise UnusualRecords
            length = length & 0x7F | byte << 7
        if length & 1:
            raise UnusualRecords
        position = at + (length >> 1)
        # Without the attributes byte.
        timestamp = data[at + 1]
        at += 2
        if timestamp > 0x7F:
            byte = data[at]
            at += 1
            timestamp = timestamp & 0x7F | (byte & 0x7F) << 7
            if byte > 0x7F:
                byte = data[at]
                at += 1
                if byte > 0x7F:
                    raise UnusualRecords
                timestamp |= byte << 14
        offset = data[at]
        at += 1
        if offset > 0x7F:
            byte = data[at]
            at += 1
            if byte > 0x7F:
                raise UnusualRecords
            offset = offset & 0x7F | byte << 7
        offset_delta = offset >> 1
        if (
            offset & 1
            or at > position
            or position > len(data)
            or not offset_delta_last < offset_delta <= offset_delta_max
        ):
            raise UnusualRecords
        delta = (timestamp >> 1) ^ -(timestamp & 1)
        if delta >= timestamp_delta_min and offset_delta >= offset_delta_min:
            return FoundDelta(offset_delta, delta)
        offset_delta_last = offset_delta
        number += 1
        if number <= run_from_max and data[position] == data[begin]:
            size = position - begin
            times = _run(
                data,
                position,
                size,
                offset_delta=offset_delta + 1,
                records_max=min(record_count - number, offset_delta_max - offset_delta),
            )
            if not times:
                failures_left -= 1
                run_from_max = run_from_max if failures_left else -1
            else:
                found = _find_in_run(times, wanted, offset_delta=offset_delta + 1)
                if found is not None:
                    return found
                records = len(times[0])
                number += records
                offset_delta_last += records
                position += records * size
    if position != len(data):
        raise UnusualRecords
    return None


def _run(
    data: bytes, begin: int, size: int, *, offset_delta: int, records_max: int
) -> Sequence[bytes]:
    """Return the varints of the timestamps of the run that begins there: all first bytes, all second bytes and so on.

    Its records have this size, as many bytes in each number as the first one, and consecutive offset deltas. Empty if
    they are too few.
    """
    is_short = offset_delta < _ONE_BYTE_END
    offset_delta_end = _ONE_BYTE_END if is_short else _TWO_BYTES_END
    records = min(records_max, (len(data) - begin) // size, offset_delta_end - offset_delta)
    if records < RUN_RECORDS_MIN:
        return ()
    end = begin + records * size
    at = begin + (1 if data[begin] <= 0x7F else 2)
    for place in range(begin, at):
        records = min(records, _leading(data[place:end:size], data[place : place + 1]))
        if records < RUN_RECORDS_MIN:
            return ()
    folded = data[begin] if at == begin + 1 else data[begin] & 0x7F | data[begin + 1] << 7
    is_usual = folded == 2 * (begin + size - at)
    # The attributes.
    at += 1
    times: list[bytes] = []
    is_last = False
    while not is_last and len(times) < TIMESTAMP_BYTES_MAX:
        is_last = data[at] <= 0x7F
        times.append(data[at:end:size])
        records = min(records, _leading(times[-1], _LAST if is_last else _NOT_LAST))
        at += 1
    offsets = _OFFSETS[:1] if is_short else _OFFSETS
    if not is_usual or not is_last or at + len(offsets) > begin + size or records < RUN_RECORDS_MIN:
        return ()
    for place, varints in enumerate(offsets, at):
        if data[place:end:size][:records] != varints[offset_delta : offset_delta + records]:
            return ()
    return [one[:records] for one in times]


def _find_in_run(
    times: Sequence[bytes], wanted: DeltaMinimums, *, offset_delta: int
) -> FoundDelta | None:
    """The first record of a run that reaches both minimums; `offset_delta` is that of the run's first record."""
    skipped = max(0, wanted.offset_delta - offset_delta)
    if wanted.timestamp_delta > 0:
        # Timestamps mostly ascend. Those with a smaller last byte are smaller or negative.
        last_byte = wanted.timestamp_delta << 1 >> 7 * (len(times) - 1)
        skipped = max(skipped, _leading(times[-1], _LAST[:last_byte]))
    for number, folded in enumerate(_numbers([one[skipped:] for one in times]), skipped):
        delta = (folded >> 1) ^ -(folded & 1)
        if delta >= wanted.timestamp_delta:
            return FoundDelta(offset_delta + number, delta)
    return None


def _numbers(columns: Sequence[bytes]) -> Iterable[int]:
    """Decode varints; each column has one byte of all of them."""
    match columns:
        case [first]:
            return first
        case [first, last]:
            return (one & 0x7F | two << 7 for one, two in zip(first, last, strict=True))
    return (
        one & 0x7F | (two & 0x7F) << 7 | three << 14
        for one, two, three in zip(*columns, strict=True)
    )


def _leading(data: bytes, values: bytes) -> int:
    """How many bytes from the start are among these values."""
    return len(data) - len(data.lstrip(values))
