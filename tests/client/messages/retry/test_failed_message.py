"""The message that is sent on: its headers, its size, and what is left out of a dead letter that is too large."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.client.messages.retry.failed_message import Bury, SendAgain
from respool.model.retry.failure_headers import FailureRecord, Headers
from respool.records.build import NewRecord, build_batch

FAILURE = FailureRecord(
    topic="rides",
    partition=2,
    offset=4711,
    group="billing",
    deliveries=1,
    error_class="OSError",
    origin_timestamp_ms=1_763_107_200_000,
)
HEADERS = st.lists(
    st.tuples(st.text(max_size=300), st.none() | st.binary(max_size=300)), max_size=20
).map(tuple)


def letter(**fields: object) -> Bury:
    return Bury(
        **{  # type: ignore[arg-type]
            "key": b"k",
            "value": b"v" * 1_000,
            "headers": (("tag", b"paid"),),
            "failure": FAILURE,
            "source_partition": 2,
            **fields,
        }
    )


def retried(delay_ms: int = 600_000, failure: FailureRecord = FAILURE) -> SendAgain:
    return SendAgain(
        key=None, value=b"v", headers=(), failure=failure, source_partition=2, delay_ms=delay_ms
    )


def test_a_retry_has_its_delay_as_the_broker_reads_it() -> None:
    assert dict(retried().headers_to_send())["respool-delay"] == b"10m"
    assert dict(retried(1_500).headers_to_send())["respool-delay"] == b"1500ms"


def test_a_dead_letter_has_no_delay() -> None:
    assert not [name for name, _ in letter().headers_to_send() if name.startswith("respool-delay")]


def test_the_same_attempt_at_a_message_has_the_same_id_however_often_it_is_sent() -> None:
    found = dict(retried().headers_to_send())["respool-schedule-id"]
    assert found == b"rides/2/4711/1/1763107200000"


def test_the_longest_name_of_a_topic_has_ids_that_the_broker_takes() -> None:
    failures = [
        FailureRecord(
            topic=name * 249,
            partition=2**31 - 1,
            offset=2**63 - 1,
            group="g",
            deliveries=32,
            origin_timestamp_ms=2**53,
        )
        for name in "tu"
    ]
    ids = {dict(retried(failure=one).headers_to_send())["respool-schedule-id"] for one in failures}
    assert len(ids) == 2
    assert max(len(one or b"") for one in ids) <= 256


def test_a_topic_that_was_made_again_does_not_replace_the_retries_of_the_old_one() -> None:
    """Its messages have the same offsets."""
    other = FailureRecord(
        topic="rides",
        partition=2,
        offset=4711,
        group="billing",
        deliveries=1,
        origin_timestamp_ms=7,
    )
    ids = {
        dict(one.headers_to_send())["respool-schedule-id"]
        for one in (retried(), retried(failure=other))
    }
    assert len(ids) == 2


@given(
    st.none() | st.binary(max_size=5_000),
    st.none() | st.binary(max_size=5_000),
    HEADERS,
)
def test_the_size_is_never_below_that_of_its_batch(
    key: bytes | None, value: bytes | None, headers: Headers
) -> None:
    made = letter(key=key, value=value, headers=headers)
    batch = build_batch(
        [NewRecord(key=key, value=value, timestamp_ms=0, headers=made.headers_to_send())]
    )
    assert len(batch) <= made.size


@pytest.mark.parametrize(
    ("bytes_max", "truncated"), [(10_000, ""), (1_300, "value"), (100, "record")]
)
def test_a_dead_letter_that_is_too_large_says_where_it_is_found(
    bytes_max: int, truncated: str
) -> None:
    fitted = letter(key=b"k" * 1_000 if truncated == "record" else b"k").fitted(bytes_max)
    found = dict(fitted.headers_to_send())
    assert found.get("__dlq.errors.truncated", b"") == truncated.encode()
    assert (found["__dlq.errors.topic"], found["__dlq.errors.offset"]) == (b"rides", b"4711")
    assert (fitted.value is None) == bool(truncated)
    assert (fitted.key is None) == (truncated == "record")
    assert ("tag" in found) == (truncated != "record")


def test_each_smaller_form_is_smaller_and_the_last_has_none() -> None:
    sizes = []
    form: Bury | None = letter()
    while form is not None:
        sizes.append(form.size)
        form = form.smaller()
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == 3


def test_an_unreadable_message_keeps_its_headers() -> None:
    own = (("__dlq.errors.offset", b"x"), ("tag", b"paid"), ("respool-error-class", b"Old"))
    buried = letter(headers=own, is_unreadable=True)
    assert buried.headers_to_send() == (*own[:2], ("respool-error-class", b"OSError"))


def test_an_unreadable_message_that_is_too_large_has_a_pointer() -> None:
    own = (("__dlq.errors.offset", b"x"),)
    buried = letter(headers=own, is_unreadable=True).fitted(1_000)
    found = dict(buried.headers_to_send())
    assert (buried.value, found["__dlq.errors.offset"]) == (None, b"4711")
    assert found["__dlq.errors.truncated"] == b"value"
