"""What becomes of a message that failed: sent again, buried, or left where it is."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from respool.client.messages.errors import (
    BadArgument,
    ClientClosed,
    Fenced,
    ForeignRetry,
    TransactionAborted,
)
from respool.client.messages.message import Message
from respool.client.messages.retry.failed_message import Bury, FailedMessage, Raise, SendAgain
from respool.client.messages.retry.failure_decisions import Retries, SizeLimits, attempt_of
from respool.client.messages.retry.retry_options import Retry
from respool.model.retry.failure_headers import UnreadableFailure, read_failure

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RIDE = Message(
    topic="rides",
    partition=2,
    offset=4711,
    timestamp=NOW - timedelta(hours=1),
    key=b"ride-1",
    value=b"{}",
    headers=(("tag", b"paid"), ("tag", None)),
)


def retries(limits: SizeLimits | None = None, **options: object) -> Retries:
    made = Retry(**{"delays": ("10s", "1m"), **options})  # type: ignore[arg-type]
    return Retries(made, group="billing", topics=["rides"], limits=limits)


def delivered(sent: FailedMessage, *, offset: int = 0) -> Message:
    """As it comes back from the retry topic: with what the broker adds, without what it takes away."""
    kept = [one for one in sent.headers_to_send() if not one[0].startswith("respool-delay")]
    return Message(
        topic="retry.billing",
        partition=0,
        offset=offset,
        timestamp=NOW,
        key=sent.key,
        value=sent.value,
        headers=(*kept, ("respool-delivered-from", b"5"), ("respool-sent-at", b"1763107200000")),
    )


def sent_again(made: Retries, message: Message, error: Exception | None = None) -> SendAgain:
    decision = made.decide(message, error or OSError("no answer"), NOW)
    assert isinstance(decision, SendAgain)
    return decision


def buried(made: Retries, message: Message, error: Exception | None = None) -> Bury:
    decision = made.decide(message, error or OSError("no answer"), NOW)
    assert isinstance(decision, Bury)
    return decision


# -- attempts


def test_a_message_is_sent_again_after_each_delay_and_then_buried() -> None:
    rules = retries()
    first = sent_again(rules, RIDE)
    second = sent_again(rules, delivered(first))
    last = buried(rules, delivered(second))
    assert [first.delay_ms, second.delay_ms] == [10_000, 60_000]
    found = [read_failure(one.headers_to_send()) for one in (first, second, last)]
    assert [one.deliveries for one in found] == [1, 2, 3]


def test_the_message_goes_along_whole_and_says_where_it_comes_from() -> None:
    rules = retries()
    again = sent_again(rules, delivered(sent_again(rules, RIDE)))
    assert (again.key, again.value, again.headers) == (RIDE.key, RIDE.value, RIDE.headers)
    failure = read_failure(again.headers_to_send())
    assert (failure.topic, failure.partition, failure.offset) == ("rides", 2, 4711)
    assert failure.origin_timestamp_ms == round(RIDE.timestamp.timestamp() * 1000)  # type: ignore[union-attr]
    assert again.source_partition == 2


def test_attempts_are_counted_in_the_header() -> None:
    """Another member, or the same one after a crash, knows nothing else of the message."""
    first = sent_again(retries(), RIDE)
    assert attempt_of(retries().failure_of(delivered(first))) == 2
    assert sent_again(retries(), delivered(first)).delay_ms == 60_000


def test_with_a_shorter_list_than_before_a_message_beyond_it_is_buried() -> None:
    beyond = delivered(sent_again(retries(), delivered(sent_again(retries(), RIDE))))
    assert buried(retries(delays=("10s",)), beyond).failure.deliveries == 3


def test_a_dead_letter_that_was_put_back_has_all_its_attempts_again() -> None:
    letter = buried(retries(give_up=OSError), RIDE)
    put_back = replace(letter, failure=replace(letter.failure, deliveries=0))
    assert sent_again(retries(), delivered(put_back)).delay_ms == 10_000


def test_headers_of_a_failure_mean_nothing_in_another_topic() -> None:
    """As when a dead letter was copied back into its topic: it is a first attempt, at that place."""
    letter = buried(retries(give_up=OSError), RIDE)
    copied = replace(RIDE, offset=5000, headers=letter.headers_to_send())
    again = sent_again(retries(), copied)
    assert again.failure.offset == 5000
    assert (again.delay_ms, again.headers) == (10_000, RIDE.headers)


def test_the_first_failure_keeps_its_time_and_the_last_its_reason() -> None:
    first = sent_again(retries(), RIDE, OSError("no answer"))
    decision = retries().decide(delivered(first), KeyError("fare"), NOW + timedelta(minutes=1))
    assert isinstance(decision, SendAgain)
    failure = decision.failure
    assert failure.first_failed_at_ms == round(NOW.timestamp() * 1000)
    assert (failure.error_class, failure.error_text) == ("KeyError", "'fare'")


# -- which errors


@pytest.mark.parametrize(
    "error", [ValueError("no fare"), UnicodeDecodeError("utf-8", b"", 0, 1, "")]
)
def test_an_error_that_no_attempt_helps_against_buries_at_once(error: Exception) -> None:
    letter = buried(retries(give_up=(ValueError,)), RIDE, error)
    assert letter.failure.deliveries == 1
    assert letter.failure.error_class == type(error).__name__


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        SystemExit(1),
        GeneratorExit(),
        asyncio.CancelledError(),
        Fenced("another instance"),
        TransactionAborted("again"),
        ClientClosed("closed"),
    ],
)
def test_what_is_not_the_fault_of_the_message_is_raised(error: BaseException) -> None:
    assert retries(give_up=Exception).decide(RIDE, error, NOW) == Raise()


def test_without_dead_letters_the_last_error_is_raised() -> None:
    rules = retries(dead_letters=False, delays=("1s",), give_up=ValueError)
    again = sent_again(rules, RIDE)
    assert rules.decide(delivered(again), OSError(), NOW) == Raise()
    assert rules.decide(RIDE, ValueError(), NOW) == Raise()


def test_an_error_without_a_usable_text_is_no_second_error() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text either")

    failure = sent_again(retries(), RIDE, Mute()).failure
    assert failure.error_class.endswith("Mute")
    assert failure.error_text == "(the error has no text)"


# -- the sixteen traps, as far as they are decided here


def test_headers_do_not_grow_with_the_attempts() -> None:
    rules = retries(delays=["1s"] * 30)
    message, sizes = RIDE, set()
    for _ in range(30):
        again = sent_again(rules, message, OSError("x" * 5_000))
        sizes.add(again.size // 100)
        message = delivered(again)
    assert len(sizes) == 1


def test_tombstones_and_messages_without_a_key_survive_the_trip() -> None:
    for key, value in [(b"ride-1", None), (None, b"{}"), (None, None), (b"", b"")]:
        again = sent_again(retries(), replace(RIDE, key=key, value=value))
        back = sent_again(retries(), delivered(again))
        letter = buried(retries(), delivered(back))
        assert {(one.key, one.value) for one in (again, back, letter)} == {(key, value)}


def test_a_message_without_a_timestamp_can_fail() -> None:
    again = sent_again(retries(), replace(RIDE, timestamp=None))
    assert again.failure.origin_timestamp_ms is None
    assert dict(again.headers_to_send())["respool-schedule-id"] == b"rides/2/4711/1/0"


def test_a_message_of_a_view_keeps_the_views_name() -> None:
    rules = Retries(Retry(), group="billing", topics=["rides.v.paid"])
    again = sent_again(rules, replace(RIDE, topic="rides.v.paid"))
    found = rules.failure_of(delivered(again))
    assert found is not None
    assert (found.topic, found.offset) == ("rides.v.paid", 4711)


def test_a_message_too_large_for_the_retry_topic_is_buried_with_a_pointer() -> None:
    limits = SizeLimits(retry_bytes_max=2_000, dead_letter_bytes_max=2_000)
    letter = buried(retries(limits), replace(RIDE, value=b"v" * 1_800))
    assert letter.value is None
    assert letter.failure.truncated == "value"
    assert (letter.failure.topic, letter.failure.offset) == ("rides", 4711)
    assert letter.size <= 2_000


def test_a_message_that_only_the_dead_letters_have_room_for_keeps_its_value() -> None:
    limits = SizeLimits(retry_bytes_max=2_000, dead_letter_bytes_max=5_000)
    assert buried(retries(limits), replace(RIDE, value=b"v" * 1_800)).value == b"v" * 1_800


def test_without_dead_letters_a_message_that_is_too_large_is_raised() -> None:
    rules = retries(SizeLimits(retry_bytes_max=100), dead_letters=False)
    assert rules.decide(RIDE, OSError(), NOW) == Raise()


def test_what_a_broker_refuses_for_its_size_is_buried_smaller_each_time() -> None:
    rules = retries()
    forms = []
    found: SendAgain | Bury | Raise = sent_again(rules, RIDE)
    while not isinstance(found, Raise):
        found = rules.bury_too_large(found)
        forms.append(found.failure.truncated if isinstance(found, Bury) else None)
    assert forms == ["", "value", "record", None]
    assert retries(dead_letters=False).bury_too_large(sent_again(rules, RIDE)) == Raise()


def test_a_retry_of_a_topic_that_is_not_read_here_is_an_error() -> None:
    """Two applications with one group id."""
    again = sent_again(retries(), RIDE)
    other = Retries(Retry(), group="billing", topics=["invoices"])
    with pytest.raises(ForeignRetry, match=r"'rides'.*each its own") as raised:
        other.failure_of(delivered(again, offset=6))
    assert "('retry.billing', 0): 7" in str(raised.value)


def test_unreadable_headers_in_the_retry_topic_bury_the_message_as_it_is() -> None:
    stray = replace(
        RIDE, topic="retry.billing", headers=(("tag", b"x"), ("__dlq.errors.offset", b"?"))
    )
    with pytest.raises(UnreadableFailure) as raised:
        retries().failure_of(stray)
    letter = retries().bury_unreadable(stray, raised.value)
    assert isinstance(letter, Bury)
    assert (letter.key, letter.value) == (RIDE.key, RIDE.value)
    assert letter.headers_to_send()[:2] == stray.headers
    assert "__dlq.errors.delivery.count" not in dict(letter.headers_to_send())
    assert dict(letter.headers_to_send())["respool-error-class"].endswith(b"UnreadableFailure")  # type: ignore[union-attr]
    assert retries(dead_letters=False).bury_unreadable(stray, raised.value) == Raise()


@pytest.mark.parametrize("topic", ["retry.billing", "dlq.billing"])
def test_a_group_does_not_read_its_own_retries_or_dead_letters_by_name(topic: str) -> None:
    with pytest.raises(BadArgument, match="sent there again"):
        Retries(Retry(), group="billing", topics=["rides", topic])
