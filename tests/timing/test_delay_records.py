"""What stored records say about delays, and the records that the broker appends."""

import pytest

from respool.model.ids import Offset
from respool.records.batch import Codec, RecordBatch, read_header
from respool.records.build import NewRecord, build_batch
from respool.records.record import read_records
from respool.timing.delay_records import (
    Cancel,
    Delivered,
    WaitingRecord,
    carried_cancel,
    carried_copy,
    check_produced_records,
    copy_of,
    read_facts,
)
from respool.timing.due_header import DelayRules

RULES = DelayRules(levels_ms=(1_000,), max_ms=10**10)
SENT_MS = 1_763_000_000_000
LIMIT = 10**6


def batch_of(
    *records: NewRecord, base_offset: int = 0, codec: Codec = Codec.NONE, append_ms: int = 0
) -> RecordBatch:
    data = build_batch(
        records,
        base_offset=base_offset,
        codec=codec,
        log_append_time=bool(append_ms),
        max_timestamp=append_ms or None,
    )
    return RecordBatch(read_header(data), data)


def delayed(*headers: tuple[str, bytes | None]) -> NewRecord:
    return NewRecord(key=b"k", value=b"v", timestamp_ms=SENT_MS, headers=headers)


def only_waiting(*headers: tuple[str, bytes | None], base_offset: int = 7) -> WaitingRecord:
    (fact,) = read_facts(batch_of(delayed(*headers), base_offset=base_offset), RULES, limit=LIMIT)
    assert isinstance(fact, WaitingRecord)
    return fact


@pytest.mark.parametrize("codec", Codec)
def test_mixed_batch_says_what_its_delayed_records_say(codec: Codec) -> None:
    batch = batch_of(
        delayed(("tag", b"a")),
        delayed(("respool-delay", b"5s")),
        delayed(("respool-cancel", b"x")),
        base_offset=100,
        codec=codec,
    )
    waiting, cancel = read_facts(batch, RULES, limit=LIMIT)
    assert isinstance(waiting, WaitingRecord)
    assert (waiting.offset, waiting.first, waiting.due_ms) == (101, 101, SENT_MS + 5_000)
    assert isinstance(cancel, Cancel)
    assert (cancel.offset, cancel.id) == (102, b"x")


def test_delay_counts_from_the_time_of_the_append() -> None:
    batch = batch_of(delayed(("respool-delay", b"5s")), append_ms=SENT_MS + 77)
    (waiting,) = read_facts(batch, RULES, limit=LIMIT)
    assert isinstance(waiting, WaitingRecord)
    assert waiting.due_ms == SENT_MS + 5_077


def test_copy_has_everything_but_what_delayed_it() -> None:
    waiting = only_waiting(
        ("tag", b"a"),
        ("respool-schedule", b"@every 10s"),
        ("respool-times", b"2"),
        ("respool-schedule-id", b"i"),
        ("respool-sent-at", b"forged"),
        ("tag", None),
    )
    copy = copy_of(waiting, due_ms=SENT_MS + 10_000, next_ms=SENT_MS + 20_000)
    assert (copy.key, copy.value, copy.timestamp_ms) == (b"k", b"v", SENT_MS + 10_000)
    assert copy.headers == (
        ("tag", b"a"),
        ("tag", None),
        ("respool-delivered-from", b"7"),
        ("respool-sent-at", b"%d" % SENT_MS),
        ("respool-due-at", b"%d" % (SENT_MS + 10_000)),
        ("respool-next", b"%d" % (SENT_MS + 20_000)),
    )
    (fact,) = read_facts(batch_of(copy), RULES, limit=LIMIT)
    assert fact == Delivered(
        position=Offset(7), first=Offset(7), due_ms=SENT_MS + 10_000, next_ms=SENT_MS + 20_000
    )


def test_carried_record_keeps_its_identity_and_its_time() -> None:
    waiting = only_waiting(("respool-delay", b"1h"), ("respool-schedule-id", b"i"))
    carried = carried_copy(waiting, due_ms=waiting.due_ms, now_ms=SENT_MS + 1_000)
    (fact,) = read_facts(batch_of(carried, base_offset=50), RULES, limit=LIMIT)
    assert isinstance(fact, WaitingRecord)
    assert (fact.offset, fact.first, fact.replaces) == (50, 7, 7)
    assert (fact.due_ms, fact.sent_ms, fact.id) == (waiting.due_ms, SENT_MS, b"i")
    again = carried_copy(fact, due_ms=fact.due_ms, now_ms=SENT_MS + 2_000)
    (fact,) = read_facts(batch_of(again, base_offset=90), RULES, limit=LIMIT)
    assert isinstance(fact, WaitingRecord)
    assert (fact.offset, fact.first, fact.replaces) == (90, 7, 50)
    copy = copy_of(fact, due_ms=fact.due_ms, next_ms=None)
    (delivered,) = read_facts(batch_of(copy), RULES, limit=LIMIT)
    assert isinstance(delivered, Delivered)
    assert (delivered.position, delivered.first) == (90, 7)


def test_carried_cancellation_still_cancels() -> None:
    (record,) = read_records(
        batch_of(delayed(("respool-cancel", b"i")), base_offset=9), limit=LIMIT
    )
    carried = carried_cancel(record, b"i", first=Offset(9), now_ms=SENT_MS)
    (fact,) = read_facts(batch_of(carried, base_offset=60), RULES, limit=LIMIT)
    assert isinstance(fact, Cancel)
    assert (fact.offset, fact.first, fact.id) == (60, 9, b"i")


def test_refused_records_are_named_with_the_reason() -> None:
    batch = batch_of(
        delayed(),
        delayed(("respool-delay", b"soon")),
        delayed(("respool-delay", b"1s")),
        delayed(("respool-delivered-from", b"1")),
        delayed(("respool-carried-from", b"1")),
    )
    refused, waiting = check_produced_records(batch, RULES, limit=LIMIT)
    assert [number for number, _ in refused] == [1, 3, 4]
    assert "is written by the broker only" in refused[1][1]
    assert waiting == 1


@pytest.mark.parametrize(
    "headers",
    [
        (("respool-delay", b"soon"),),
        (("respool-delivered-from", b"x"),),
        (("respool-delivered-from", b"1"),),
        (("respool-carried-from", b"1"), ("respool-carried-position", b"1")),
    ],
)
def test_stored_record_that_cannot_be_read_says_nothing(
    headers: tuple[tuple[str, bytes | None], ...],
) -> None:
    assert read_facts(batch_of(delayed(*headers)), RULES, limit=LIMIT) == []
