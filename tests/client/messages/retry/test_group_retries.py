"""What a consumer asks of its retries: attempts of what arrives, the rate of failures, and what is set aside."""

from dataclasses import replace

from respool.client.messages.message import Message
from respool.client.messages.retry.failed_message import Bury, SendAgain
from respool.client.messages.retry.failure_decisions import Retries, SizeLimits
from respool.client.messages.retry.group_retries import GroupRetries
from respool.client.messages.retry.retry_options import Retry
from respool.client.messages.retry.retry_topics import RetryTopics
from respool.model.retry.failure_headers import FailureRecord

RIDE = Message(topic="rides", partition=0, offset=5, timestamp=None, key=None, value=b"{}")
PLACE = ("rides", 0)


class Clock:
    now_s = 0.0


def retries(clock: Clock | None = None, **options: object) -> GroupRetries:
    """Of a transactional consumer: nothing is sent here."""
    retry = Retry(**options)  # type: ignore[arg-type]
    at = clock or Clock()
    return GroupRetries(
        Retries(retry, group="billing", topics=["rides"]),
        retry,
        RetryTopics(partitions={"retry.billing": 1, "dlq.billing": 1}, limits=SizeLimits()),
        None,
        now=lambda: at.now_s,
    )


def test_a_retry_arrives_with_its_attempt_and_its_origin() -> None:
    failure = FailureRecord(
        topic="rides",
        partition=3,
        offset=7,
        group="billing",
        deliveries=2,
        # After the year 9999: it says nothing.
        origin_timestamp_ms=2**62,
    )
    found = retries().received(replace(RIDE, topic="retry.billing", headers=failure.to_headers()))
    assert found is not None
    assert found.attempt == 3
    assert (found.origin.topic, found.origin.partition, found.origin.offset) == ("rides", 3, 7)
    assert found.origin.timestamp is None


def test_a_message_of_a_topic_is_its_own_origin() -> None:
    found = retries().received(RIDE)
    assert found is RIDE
    assert (found.attempt, found.origin.offset) == (1, 5)


def test_failures_beyond_the_rate_must_wait_and_successes_need_not() -> None:
    clock = Clock()
    group = retries(clock, retry_rate_max=2)
    waits = []
    for _ in range(4):
        assert isinstance(group.decide(RIDE, OSError()), SendAgain)
        waits.append(group.wait_s())
    assert waits == [0, 0, 0.5, 1.0]
    assert group.needs_wait
    clock.now_s = 1.0
    assert not group.needs_wait


def test_without_a_rate_nothing_waits() -> None:
    group = retries()
    for _ in range(1_000):
        group.decide(RIDE, OSError())
    assert group.wait_s() == 0


def test_a_message_without_an_origin_is_set_aside_for_the_transaction() -> None:
    group = retries()
    stray = replace(RIDE, topic="retry.billing")
    assert group.received(stray) is stray
    ((message, decision),) = group.aside_of([RIDE, stray])
    assert message is stray
    assert isinstance(decision, Bury)
    group.on_committed([(message, decision)])
    assert group.aside_of([stray]) == []
    assert (group.counts.retried, group.counts.buried) == (0, 1)


def test_what_was_set_aside_is_forgotten_with_its_partition() -> None:
    group = retries()
    decision = group.decide(RIDE, OSError())
    assert isinstance(decision, SendAgain)
    group.set_aside(RIDE, decision)
    group.forget([("rides", 1)])
    assert len(group.aside_of([RIDE])) == 1
    group.forget([PLACE])
    assert group.aside_of([RIDE]) == []


def test_a_transactions_producer_limits_the_size() -> None:
    group = retries()
    group.limit_size(1_000)
    assert group.rules.limits == SizeLimits(retry_bytes_max=1_000, dead_letter_bytes_max=1_000)
