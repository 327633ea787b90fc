"""When a record is due, by its headers; and which headers are refused, with what reason."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.timing.due_header import BadDelay, Cancelled, Delayed, DelayRules, read_delay

RULES = DelayRules(levels_ms=(1_000, 5_000, 10_000), max_ms=10 * 365 * 86_400_000)
SENT_MS = 1_763_000_000_000
Headers = list[tuple[str, bytes | None]]


def read(*headers: tuple[str, bytes | None], sent_ms: int = SENT_MS) -> Delayed | Cancelled | None:
    return read_delay(headers, timestamp_ms=sent_ms, rules=RULES)


@pytest.mark.parametrize(
    ("name", "value", "after_ms"),
    [
        ("respool-delay", b"30s", 30_000),
        ("respool-delay", b"1h30m", 5_400_000),
        ("respool-delay", b"250", 250),
        ("respool-delay", b"0", 0),
        ("respool-delay-level", b"1", 1_000),
        ("respool-delay-level", b"3", 10_000),
        ("respool-deliver-at", b"%d" % (SENT_MS + 7), 7),
        # A time that has passed: it is delivered at once.
        ("respool-deliver-at", b"%d" % (SENT_MS - 7), -7),
        ("respool-deliver-at", b"2025-11-13T02:13:21Z", 1_000),
        ("respool-deliver-at", b"2025-11-13 03:13:21.5+01:00", 1_500),
    ],
)
def test_due_time(name: str, value: bytes, after_ms: int) -> None:
    assert read((name, value)) == Delayed(SENT_MS + after_ms)


def test_other_headers_mean_nothing() -> None:
    assert (
        read(("tag", b"a"), ("tag", b"b"), ("respool-delays", b"x"), ("respool-sent-at", b"1"))
        is None
    )


def test_schedule_has_a_first_time_and_an_end() -> None:
    found = read(
        ("respool-schedule", b"@every 10s"), ("respool-times", b"3"), ("respool-schedule-id", b"a")
    )
    assert isinstance(found, Delayed)
    assert (found.due_ms, found.id) == (SENT_MS + 10_000, b"a")
    assert found.repetition is not None
    assert found.repetition.next_after(SENT_MS + 10_000) == SENT_MS + 20_000
    assert found.repetition.next_after(SENT_MS + 20_000) == SENT_MS + 30_000
    assert found.repetition.next_after(SENT_MS + 30_000) is None
    assert found.repetition.latest(from_ms=found.due_ms, to_ms=SENT_MS * 2) == SENT_MS + 30_000


def test_schedule_ends_with_the_earlier_of_until_and_times() -> None:
    until = b"%d" % (SENT_MS + 25_000)
    found = read(
        ("respool-schedule", b"@every 10s"), ("respool-times", b"9"), ("respool-until", until)
    )
    assert isinstance(found, Delayed)
    assert found.repetition is not None
    assert found.repetition.next_after(SENT_MS + 20_000) is None


def test_schedule_in_a_time_zone() -> None:
    # 02:13 UTC, in November.
    found = read(("respool-schedule", b"0 8 * * *"), ("respool-time-zone", b"Europe/Berlin"))
    assert isinstance(found, Delayed)
    assert found.due_ms == 1_763_017_200_000


def test_cancel() -> None:
    assert read(("respool-cancel", b"\xff")) == Cancelled(b"\xff")


LONG = b"x" * 257


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([("respool-delay", b"soon")], "'soon' is not a length of time"),
        ([("respool-delay", b"-5s")], "'-5s' is not"),
        ([("respool-delay", b"5 parsecs")], "not a unit"),
        ([("respool-delay", b"1.5")], "no unit"),
        ([("respool-delay", b"9" * 200 + b"w")], "respool.delay.max.ms"),
        ([("respool-delay", b"")], "needs a value"),
        ([("respool-delay", None)], "needs a value"),
        ([("respool-delay", LONG)], "needs a value of 1 to 256 bytes"),
        ([("respool-delay", b"\xff")], "not text"),
        ([("respool-delay", b"11 weeks 9999 weeks")], "respool.delay.max.ms"),
        ([("respool-delay", b"999999999999999")], "respool.delay.max.ms"),
        ([("respool-deliver-at", b"1763000000")], "expected milliseconds"),
        ([("respool-deliver-at", b"tomorrow")], "expected milliseconds"),
        ([("respool-deliver-at", b"2025-13-13T02:13:21Z")], "respool-deliver-at"),
        ([("respool-deliver-at", b"2025-11-13T02:13:21")], "expected milliseconds"),
        ([("respool-deliver-at", b"9999-11-13T02:13:21Z")], "respool.delay.max.ms"),
        ([("respool-delay-level", b"0")], "levels 1 to 3"),
        ([("respool-delay-level", b"4")], "levels 1 to 3"),
        ([("respool-delay-level", b"+1")], "levels 1 to 3"),
        ([("respool-schedule", b"0 0 31 2 *")], "never fires"),
        ([("respool-schedule", b"@every 10ms")], "shortest interval"),
        ([("respool-schedule", b"0 0 * * *"), ("respool-time-zone", b"Mars/X")], "not a time zone"),
        (
            [("respool-schedule", b"@every 1h"), ("respool-until", b"1763000000001")],
            "before the first",
        ),
        ([("respool-schedule", b"@every 1h"), ("respool-until", b"later")], "respool-until"),
        ([("respool-schedule", b"@every 1h"), ("respool-times", b"0")], "1 to 1000"),
        ([("respool-schedule", b"@every 1h"), ("respool-times", b"1001")], "1 to 1000"),
        ([("respool-schedule", b"@every 9999w")], "respool.delay.max.ms"),
        ([("respool-delay", b"1s"), ("respool-delay-level", b"1")], "a record has one of them"),
        ([("respool-delay", b"1s"), ("respool-delay", b"2s")], "stands twice"),
        ([("respool-delay", b"1s"), ("respool-times", b"2")], "only respool-schedule has it"),
        ([("respool-delay", b"1s"), ("respool-cancel", b"a")], "must stand alone"),
        ([("respool-delay", b"1s"), ("respool-schedule-id", b"")], "needs an id"),
        ([("respool-delay", b"1s"), ("respool-schedule-id", LONG)], "needs an id of 1 to 256"),
        ([("respool-cancel", b"")], "needs an id"),
        ([("respool-cancel", None)], "needs an id"),
        ([("respool-schedule-id", b"a")], "without one of"),
        ([("respool-time-zone", b"UTC")], "without one of"),
    ],
)
def test_malformed_headers_are_refused_with_the_reason(headers: Headers, reason: str) -> None:
    with pytest.raises(BadDelay) as refused:
        read(*headers)
    assert reason in str(refused.value)


@pytest.mark.parametrize("sent_ms", [-1, 2**62])
def test_record_without_a_timestamp_cannot_be_delayed(sent_ms: int) -> None:
    with pytest.raises(BadDelay, match="timestamp"):
        read(("respool-delay", b"1s"), sent_ms=sent_ms)


names = st.sampled_from(
    [
        "respool-delay", "respool-deliver-at", "respool-delay-level", "respool-schedule", "respool-time-zone",
        "respool-until", "respool-times", "respool-schedule-id", "respool-cancel", "other",
    ]
)  # fmt: skip
values = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.text(max_size=20).map(str.encode),
    st.text("0123456789*/-,@every smhdw", max_size=20).map(str.encode),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(names, values), max_size=4), st.integers(-(2**63), 2**63 - 1))
def test_any_bytes_are_read_or_refused(headers: Headers, sent_ms: int) -> None:
    try:
        found = read(*headers, sent_ms=sent_ms)
    except BadDelay:
        return
    if isinstance(found, Delayed) and found.repetition is not None:
        assert found.due_ms > sent_ms
    if isinstance(found, Delayed):
        assert found.due_ms <= sent_ms + RULES.max_ms
