"""What a failed message's headers say, and what is made of headers that somebody else wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.model.delays.delay_headers import STRIPPED_HEADERS
from respool.model.retry import failure_headers
from respool.model.retry.failure_headers import (
    FAILURE_HEADERS,
    FailureRecord,
    UnreadableFailure,
    own_headers,
    read_failure,
    shortened,
)

RECORDS = st.builds(
    FailureRecord,
    topic=st.text("aZ09._-", min_size=3, max_size=249),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    group=st.text(max_size=20).filter(lambda text: text.isprintable()),
    deliveries=st.integers(0, 2**31 - 1),
    error_text=st.text("abcä€😀", max_size=50),
    error_class=st.text("abc.", max_size=50),
    first_failed_at_ms=st.none() | st.integers(0, 2**63 - 1),
    origin_timestamp_ms=st.none() | st.integers(0, 2**63 - 1),
    truncated=st.sampled_from(["", "value", "record"]),
)
RIDE = FailureRecord(topic="rides", partition=2, offset=4711, group="billing", deliveries=1)


@given(RECORDS)
def test_what_is_written_is_read_again(record: FailureRecord) -> None:
    assert read_failure(record.to_headers()) == record


def test_the_headers_are_those_of_kafkas_dead_letters_as_text() -> None:
    headers = dict(RIDE.to_headers())
    assert headers["__dlq.errors.topic"] == b"rides"
    assert headers["__dlq.errors.partition"] == b"2"
    assert headers["__dlq.errors.offset"] == b"4711"
    assert headers["__dlq.errors.group"] == b"billing"
    assert headers["__dlq.errors.delivery.count"] == b"1"
    assert headers["__dlq.errors.message"] == b""


def test_a_dead_letter_of_kafka_has_all_that_is_needed() -> None:
    """Its share groups write the six headers, and none of ours."""
    headers = tuple(one for one in RIDE.to_headers() if one[0].startswith("__dlq."))
    assert read_failure(headers) == RIDE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (failure_headers.TOPIC, b""),
        (failure_headers.TOPIC, b"../../etc"),
        (failure_headers.TOPIC, b"\xff"),
        (failure_headers.PARTITION, b"-1"),
        (failure_headers.PARTITION, b"2147483648"),
        (failure_headers.OFFSET, b"9223372036854775808"),
        (failure_headers.OFFSET, b"1e3"),
        (failure_headers.OFFSET, "٣".encode()),
        (failure_headers.OFFSET, b"9" * 100_000),
        (failure_headers.DELIVERY_COUNT, b"1_0"),
        (failure_headers.DELIVERY_COUNT, b" 1"),
        (failure_headers.DELIVERY_COUNT, None),
    ],
)
def test_a_header_that_cannot_be_read_names_itself(name: str, value: bytes | None) -> None:
    headers = [one for one in RIDE.to_headers() if one[0] != name]
    for broken in (headers, [*headers, (name, value)]):
        with pytest.raises(UnreadableFailure, match=name) as raised:
            read_failure(broken)
        assert len(str(raised.value)) < 200


@given(st.lists(st.tuples(st.sampled_from(sorted(FAILURE_HEADERS)), st.none() | st.binary())))
def test_hostile_headers_are_read_or_refused(headers: list[tuple[str, bytes | None]]) -> None:
    try:
        read = read_failure(headers)
    except UnreadableFailure:
        return
    assert 0 <= read.partition < 2**31
    assert 0 <= read.offset < 2**63


def test_what_is_only_for_people_may_be_missing_or_broken() -> None:
    headers = (*RIDE.to_headers(), (failure_headers.FIRST_FAILED_AT, b"yesterday"))
    assert read_failure(headers) == RIDE


def test_own_headers_leave_out_what_a_failure_or_a_delivery_added() -> None:
    own = (("tag", b"paid"), ("tag", None), ("respool-replay-id", b"3fa94c01"))
    added = [(name, b"1") for name in sorted(FAILURE_HEADERS | STRIPPED_HEADERS)]
    assert own_headers((*added, *own, *added)) == own


@given(st.text(), st.integers(3, 40))
def test_a_shortened_text_is_within_its_limit_and_valid(text: str, bytes_max: int) -> None:
    made = shortened(text, bytes_max)
    assert len(made) <= bytes_max
    made.decode()


def test_headers_are_bounded_whatever_the_error_says() -> None:
    """Otherwise a message grows until no topic takes it."""
    record = FailureRecord(
        topic="t" * 249,
        partition=2**31 - 1,
        offset=2**63 - 1,
        group="ä" * 100_000,
        deliveries=2**31 - 1,
        error_text="\ud800" * 1_000_000,
        error_class="C" * 100_000,
        first_failed_at_ms=2**63 - 1,
        origin_timestamp_ms=2**63 - 1,
        truncated="record",
    )
    assert sum(len(name) + len(value or b"") for name, value in record.to_headers()) < 3_000
