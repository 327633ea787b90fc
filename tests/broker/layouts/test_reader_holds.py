"""Consumers are not shown what a key got after a change while they have not read what it got before."""

import asyncio

import pytest

from broker.group_client import Member, commit, start_with_groups
from broker.layouts.shrinking import change, grow, sent, shrink
from broker.running_broker import LATEST, RunningBroker, StartBroker
from broker.transaction_client import fetch, fetch_fields, read
from respool.broker.layouts.group_reading import GroupReading
from respool.model.cluster import TopicImage
from respool.wire.api_table import Api

BARRIER_MS = 30_000
# ConsumerProtocol: version 0, one topic, no user data.
SUBSCRIPTION = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x05rides" + b"\xff\xff\xff\xff"


@pytest.fixture
def rides(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_groups(start_broker)
    broker.create_topic("rides", partitions=4)
    return broker


def member(broker: RunningBroker, group_id: str = "drivers") -> Member:
    one = Member(broker, group_id, topics=SUBSCRIPTION)
    one.settle()
    return one


def is_held(broker: RunningBroker, number: int) -> bool:
    handover = broker.broker.image.topics["rides"].partitions[number].handover
    return handover is not None and handover.hold is not None


def wait_until_shown(broker: RunningBroker, *numbers: int) -> None:
    is_shown = broker.run(
        broker.broker.catalog.wait_until(
            lambda: not any(is_held(broker, one) for one in numbers), timeout_s=10
        )
    )
    assert is_shown


def test_an_heir_shows_new_records_once_every_group_has_read_the_sealed_partition(
    rides: RunningBroker,
) -> None:
    slow, quick = member(rides, "slow"), member(rides, "quick")
    sent(rides, 3, 0, b"a", b"b")
    sent(rides, 1, 0, b"own")
    shrink(rides, 2)
    sent(rides, 3, 2, b"c")
    assert (read(rides, "rides", 1), read(rides, "rides", 3)) == ([b"own"], [b"a", b"b"])
    # The end that consumers see is what they are shown.
    assert fetch(rides, "rides", 1, committed=False).high_watermark == 1
    assert rides.offset("rides", 1, at=LATEST) == 1

    quick.commit(("rides", 3, 2))
    slow.commit(("rides", 3, 1))
    assert read(rides, "rides", 1) == [b"own"]
    slow.commit(("rides", 3, 2))

    wait_until_shown(rides, 1)
    assert read(rides, "rides", 1) == [b"own", b"c"]
    assert rides.offset("rides", 1, at=LATEST) == 2
    assert rides.metrics.observed("respool_shrink_barrier_seconds") == [0.0]


def test_what_was_shown_stays_shown(rides: RunningBroker) -> None:
    member(rides)
    for sequence in range(3):
        sent(rides, 1, sequence, b"%d" % sequence)
    sent(rides, 3, 0)
    shrink(rides, 2)
    sent(rides, 1, 3, b"3")
    assert read(rides, "rides", 1) == [b"0", b"1", b"2"]


def test_without_groups_nothing_is_held_for_long(rides: RunningBroker) -> None:
    sent(rides, 3, 0)
    shrink(rides, 2)
    wait_until_shown(rides, 1)
    sent(rides, 3, 1, b"new")
    assert read(rides, "rides", 1) == [b"new"]


def test_a_group_without_members_does_not_count(rides: RunningBroker) -> None:
    sent(rides, 3, 0)
    commit(rides, "gone", ("rides", 3, 0))
    shrink(rides, 2)
    wait_until_shown(rides, 1)


def test_an_empty_partition_is_not_waited_for(rides: RunningBroker) -> None:
    member(rides)
    shrink(rides, 2)
    assert not is_held(rides, 0)
    assert not is_held(rides, 1)


def test_a_topic_without_barrier_holds_nothing(rides: RunningBroker) -> None:
    rides.create_topic("fares", partitions=4, respool_shrink_barrier_ms="0")
    sent(rides, 3, 0, b"a", topic="fares")
    shrink(rides, 2, topic="fares")
    sent(rides, 3, 1, b"b", topic="fares")
    assert read(rides, "fares", 1) == [b"b"]


def test_the_hold_ends_with_its_time_and_says_for_whom_it_did_not_wait(
    rides: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    member(rides, "asleep")
    sent(rides, 3, 0, b"a")
    shrink(rides, 2)
    sent(rides, 3, 1, b"b")
    rides.clock.advance(BARRIER_MS - 1)
    assert read(rides, "rides", 1) == []
    rides.clock.advance(1)
    wait_until_shown(rides, 1)
    assert read(rides, "rides", 1) == [b"b"]
    (told,) = [one.message for one in caplog.records if "have not read" in one.message]
    assert "asleep" in told
    assert "3 up to 1" in told


def test_the_hold_outlives_a_restart(rides: RunningBroker) -> None:
    member(rides)
    sent(rides, 3, 0, b"a")
    shrink(rides, 2)
    sent(rides, 3, 1, b"b")
    rides.restart(crash=True)
    assert is_held(rides, 1)
    assert read(rides, "rides", 1) == []


def test_a_partition_that_takes_records_again_waits_for_its_heir(rides: RunningBroker) -> None:
    sent(rides, 3, 0, b"a")
    shrink(rides, 2)
    wait_until_shown(rides, 1)
    reader = member(rides)
    sent(rides, 3, 1, b"b")
    reader.commit(("rides", 3, 1))
    grow(rides, 4)
    sent(rides, 3, 2, b"c")
    assert (read(rides, "rides", 3), read(rides, "rides", 1)) == ([b"a"], [b"b"])
    reader.commit(("rides", 1, 1))
    wait_until_shown(rides, 3)
    assert read(rides, "rides", 3) == [b"a", b"c"]


def test_a_fetch_that_waits_is_answered_with_the_end_of_the_hold(rides: RunningBroker) -> None:
    reader = member(rides)
    sent(rides, 3, 0, b"a")
    shrink(rides, 2)
    sent(rides, 3, 1, b"b")
    fields = fetch_fields("rides", 1, committed=True, wait_ms=60_000)
    waiting = rides.start(rides.answer(Api.FETCH, 12, **fields))
    # More records are no reason to answer.
    sent(rides, 3, 2, b"c")
    assert not waiting.done()
    reader.commit(("rides", 3, 1))
    reply = rides.finish(waiting)
    (partition,) = reply.responses[0].partitions
    assert partition.high_watermark == 2


def test_a_group_that_reads_a_view_counts(rides: RunningBroker) -> None:
    rides.create_view("paid", of="rides", where="tag = 'paid'")
    sent(rides, 3, 0, b"a")
    topics = SUBSCRIPTION.replace(b"\x00\x05rides", b"\x00\x04paid")
    reader = Member(rides, "accounts", topics=topics)
    reader.settle()
    shrink(rides, 2)
    sent(rides, 3, 1, b"b")
    assert is_held(rides, 1)
    reader.commit(("paid", 3, 1))
    wait_until_shown(rides, 1)


def test_a_partition_that_is_sealed_again_stays_held(rides: RunningBroker) -> None:
    """Seed 14 of the simulator: what it took in between was shown at once."""
    group = member(rides)
    sent(rides, 3, 0, b"a")
    shrink(rides, 2)
    group.commit(("rides", 3, 1))
    wait_until_shown(rides, 1)
    sent(rides, 3, 1, b"b")
    grow(rides, 4)
    sent(rides, 3, 2, b"c")
    shrink(rides, 2)
    assert (read(rides, "rides", 1), read(rides, "rides", 3)) == ([b"b"], [b"a"])
    group.commit(("rides", 1, 1))
    wait_until_shown(rides, 3)
    assert read(rides, "rides", 3) == [b"a", b"c"]


def test_a_partition_that_takes_no_others_records_any_longer_stays_held(
    rides: RunningBroker,
) -> None:
    """Seed 70 of the simulator: what it had taken for others was shown at once."""
    group = member(rides)
    sent(rides, 2, 0, b"a")
    shrink(rides, 2)
    sent(rides, 2, 1, b"b")
    grow(rides, 4)
    assert read(rides, "rides", 0) == []
    group.commit(("rides", 2, 1))
    wait_until_shown(rides, 0)
    assert read(rides, "rides", 0) == [b"b"]


@pytest.mark.parametrize("skew_ms", [-3_600_000, 3_600_000])
def test_a_wall_clock_that_is_set_does_not_end_the_hold(rides: RunningBroker, skew_ms: int) -> None:
    member(rides)
    sent(rides, 3, 0)
    shrink(rides, 2)
    look(rides)
    rides.clock.skew(skew_ms)
    look(rides)
    assert is_held(rides, 1)
    rides.clock.advance(BARRIER_MS)
    wait_until_shown(rides, 1)


def test_a_partition_that_was_retired_is_not_waited_for(rides: RunningBroker) -> None:
    member(rides)
    sent(rides, 3, 0, b"a")
    shrink(rides, 2)
    sent(rides, 3, 1, b"b")
    assert change(rides, 0, "retire-forced") == (0, "")
    wait_until_shown(rides, 1)
    assert read(rides, "rides", 1) == [b"b"]


def look(broker: RunningBroker) -> None:
    """Let the leader look at the groups once: it has when it asks for them again."""
    asked_twice, asked = asyncio.Event(), 0
    readers = broker.broker.topic_readers.readers

    async def counted(topic: TopicImage) -> list[GroupReading]:
        nonlocal asked
        asked += 1
        if asked == 2:
            asked_twice.set()
        return await readers(topic)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker.broker.topic_readers, "readers", counted)
        broker.run(asyncio.wait_for(asked_twice.wait(), 30))
