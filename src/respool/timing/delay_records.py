"""Delays as records of a log: reads the delay headers of stored records, and builds the records that the broker
appends.

```
 offset   100                101              957                      2000
          | hidden, due t    | visible        | copy of 100            | 100 again, hidden, until its time
          |                  |                | delivered-from: 100    | carried-from: 100
```
A copy ends a record's waiting, or says when its schedule fires next. A carried record takes the place of one that
retention is about to delete. Both have everything that a replica needs which has never seen the original.
"""

from dataclasses import dataclass

from respool.model.delays.delay_headers import (
    BROKER_HEADERS,
    CANCEL,
    CARRIED_FROM,
    CARRIED_POSITION,
    DELIVERED_FROM,
    DELIVERED_POSITION,
    DUE_AT,
    NEXT,
    PREFIX,
    SENT_AT,
    STRIPPED_HEADERS,
)
from respool.model.ids import Offset
from respool.records.batch import RecordBatch, records_of
from respool.records.build import NewRecord
from respool.records.compress import codec_of, decompress
from respool.records.record import Headers, Record, read_records
from respool.timing.due_header import (
    BadDelay,
    Delayed,
    DelayRules,
    Repetition,
    read_delay,
)

_PREFIX = PREFIX.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRecord:
    """A record that is delivered later.

    Attributes:
        first: the offset at which it was first written; `record.offset` if it was not carried.
        replaces: its offset before it was carried.
    """

    record: Record
    first: Offset
    sent_ms: int
    due_ms: int
    repetition: Repetition | None
    id: bytes | None
    replaces: Offset | None = None

    @property
    def offset(self) -> Offset:
        return self.record.offset

    @property
    def size(self) -> int:
        return len(self.record.key or b"") + len(self.record.value or b"")

    def due_after(self, now_ms: int) -> int | None:
        """When it is due next, after all deliveries up to `now_ms`."""
        if self.due_ms > now_ms:
            return self.due_ms
        return None if self.repetition is None else self.repetition.next_after(now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """A record that cancels an earlier one with its id."""

    record: Record
    first: Offset
    id: bytes

    @property
    def offset(self) -> Offset:
        return self.record.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A copy of the record that lay at `position`, written first at `first`, which was due at `due_ms`."""

    position: Offset
    first: Offset
    due_ms: int
    next_ms: int | None


Fact = WaitingRecord | Cancel | Delivered


def has_delay_headers(batch: RecordBatch, *, limit: int) -> bool:
    """False if the batch certainly has no delay headers.

    Raises:
        RequestError: the batch cannot be decompressed, or to more than `limit` bytes.
    """
    header = batch.header
    return _PREFIX in decompress(codec_of(header.codec_bits), records_of(batch), limit=limit)


def read_facts(batch: RecordBatch, rules: DelayRules, *, limit: int) -> list[Fact]:
    """Return the delay facts of a stored batch. Records with malformed headers are ignored.

    Raises:
        RequestError: the batch cannot be read.
    """
    header = batch.header
    if header.is_control or not header.record_count or not has_delay_headers(batch, limit=limit):
        return []
    facts = []
    for record in read_records(batch, limit=limit):
        fact = read_fact(record, rules)
        if fact is not None:
            facts.append(fact)
    return facts


def read_fact(record: Record, rules: DelayRules) -> Fact | None:
    """Return the delay fact of a stored record; None if it has none, or cannot be read."""
    own = {name: value for name, value in record.headers if name in STRIPPED_HEADERS}
    try:
        if DELIVERED_FROM in own:
            return _delivered(own)
        if CARRIED_FROM in own:
            return _carried(record, own, rules)
        asked = read_delay(record.headers, timestamp_ms=record.timestamp, rules=rules)
    except BadDelay:
        # Such records are refused when produced, but another release may have accepted them.
        return None
    if isinstance(asked, Delayed):
        return _waiting(record, asked, first=record.offset, sent_ms=record.timestamp)
    return None if asked is None else Cancel(record=record, first=record.offset, id=asked.id)


def check_produced_records(
    batch: RecordBatch, rules: DelayRules, *, limit: int
) -> tuple[list[tuple[int, str]], int]:
    """Return the records of a produced batch with malformed delay headers, with the reasons, and the number of delayed
    ones.

    Raises:
        RequestError: the batch cannot be read.
    """
    if not has_delay_headers(batch, limit=limit):
        return [], 0
    refused: list[tuple[int, str]] = []
    waiting = 0
    for number, record in enumerate(read_records(batch, limit=limit)):
        own = next((name for name, _ in record.headers if name in BROKER_HEADERS), None)
        if own is not None:
            refused.append((number, f"{own} is written by the broker only"))
            continue
        try:
            asked = read_delay(record.headers, timestamp_ms=record.timestamp, rules=rules)
        except BadDelay as error:
            refused.append((number, str(error)))
        else:
            waiting += isinstance(asked, Delayed)
    return refused, waiting


def copy_of(waiting: WaitingRecord, *, due_ms: int, next_ms: int | None) -> NewRecord:
    """The record to deliver: without its delay headers."""
    headers: list[tuple[str, bytes | None]] = [
        (DELIVERED_FROM, _text(waiting.first)),
        (SENT_AT, _text(waiting.sent_ms)),
        (DUE_AT, _text(due_ms)),
    ]
    if waiting.offset != waiting.first:
        headers.append((DELIVERED_POSITION, _text(waiting.offset)))
    if next_ms is not None:
        headers.append((NEXT, _text(next_ms)))
    return _with_headers(waiting.record, headers, stripped=STRIPPED_HEADERS, timestamp_ms=due_ms)


def carried_copy(waiting: WaitingRecord, *, due_ms: int, now_ms: int) -> NewRecord:
    """The same record, to be appended again because retention deletes the original."""
    return _with_headers(
        waiting.record,
        [
            (CARRIED_FROM, _text(waiting.first)),
            (CARRIED_POSITION, _text(waiting.offset)),
            (SENT_AT, _text(waiting.sent_ms)),
            (DUE_AT, _text(due_ms)),
        ],
        stripped=frozenset((*BROKER_HEADERS, SENT_AT, DUE_AT, NEXT)),
        timestamp_ms=now_ms,
    )


def carried_cancel(record: Record, key: bytes, *, first: Offset, now_ms: int) -> NewRecord:
    """A cancellation that still counts, to be written again: by a cancel record, or by one that replaced another."""
    return NewRecord(
        key=record.key,
        timestamp_ms=now_ms,
        headers=(
            (CANCEL, key),
            (CARRIED_FROM, _text(first)),
            (CARRIED_POSITION, _text(record.offset)),
        ),
    )


def _delivered(own: dict[str, bytes | None]) -> Delivered:
    first = _offset(own, DELIVERED_FROM)
    return Delivered(
        position=_offset(own, DELIVERED_POSITION) if DELIVERED_POSITION in own else first,
        first=first,
        due_ms=_number(own, DUE_AT),
        next_ms=_number(own, NEXT) if NEXT in own else None,
    )


def _carried(record: Record, own: dict[str, bytes | None], rules: DelayRules) -> Fact | None:
    first = _offset(own, CARRIED_FROM)
    replaces = _offset(own, CARRIED_POSITION)
    if CANCEL in own:
        return Cancel(record=record, first=first, id=own[CANCEL] or b"")
    sent_ms = _number(own, SENT_AT)
    asked = read_delay(record.headers, timestamp_ms=sent_ms, rules=rules)
    if not isinstance(asked, Delayed):
        raise BadDelay("a carried record without a time")
    asked = Delayed(_number(own, DUE_AT), asked.repetition, asked.id)
    return _waiting(record, asked, first=first, sent_ms=sent_ms, replaces=replaces)


def _waiting(
    record: Record,
    asked: Delayed,
    *,
    first: Offset,
    sent_ms: int,
    replaces: Offset | None = None,
) -> WaitingRecord:
    return WaitingRecord(
        record=record,
        first=first,
        sent_ms=sent_ms,
        due_ms=asked.due_ms,
        repetition=asked.repetition,
        id=asked.id,
        replaces=replaces,
    )


def _with_headers(
    record: Record,
    headers: list[tuple[str, bytes | None]],
    *,
    stripped: frozenset[str],
    timestamp_ms: int,
) -> NewRecord:
    kept: Headers = tuple(one for one in record.headers if one[0] not in stripped)
    return NewRecord(
        key=record.key, value=record.value, timestamp_ms=timestamp_ms, headers=(*kept, *headers)
    )


def _text(number: int) -> bytes:
    return b"%d" % number


def _offset(own: dict[str, bytes | None], name: str) -> Offset:
    return Offset(_number(own, name))


def _number(own: dict[str, bytes | None], name: str) -> int:
    value = own.get(name)
    if not value or not value.isdigit():
        raise BadDelay(f"{name} is no number")
    return int(value)
