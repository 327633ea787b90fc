"""Topics with delays or views that are shrunk: each log delivers what waits in it, and views show what is left."""

from typing import Any

import pytest

from broker.group_client import Member, start_with_groups
from broker.layouts.shrinking import change, grow, shrink
from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import read
from broker.views.view_broker import append, produce
from respool.records.build import NewRecord, build_batch
from respool.wire.api_table import Api

POLICY_VIOLATION = 44
SEALED, HEIR = 3, 1


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_with_groups(start_broker)


# -- delays


@pytest.fixture
def alarms(broker: RunningBroker) -> RunningBroker:
    broker.create_topic("rides", partitions=4, respool_delay="true", respool_shrink_barrier_ms="0")
    return broker


def send(broker: RunningBroker, value: bytes, **headers: str) -> int:
    """Send one record to the partition that is, or will be, sealed."""
    pairs = tuple(
        (f"respool-{name.replace('_', '-')}", text.encode()) for name, text in headers.items()
    )
    record = NewRecord(value=value, timestamp_ms=broker.clock.now_ms(), headers=pairs)
    return append(broker, build_batch([record]), partition=SEALED)


def deliver(broker: RunningBroker, after_ms: int) -> None:
    async def run_passes() -> None:
        for _ in range(3):
            for number in range(4):
                worker = broker.broker.deliveries.worker(
                    broker.broker.partitions.find("rides", number)
                )
                while worker is not None and await worker.run_pass():
                    pass

    broker.clock.advance(after_ms)
    broker.run(run_passes())


def test_what_waits_in_a_sealed_partition_is_delivered_there(alarms: RunningBroker) -> None:
    send(alarms, b"before", delay="10s")
    shrink(alarms, 2)
    assert send(alarms, b"after", delay="10s") == -1
    assert (read(alarms, "rides", SEALED), read(alarms, "rides", HEIR)) == ([], [])
    deliver(alarms, 10_000)
    assert read(alarms, "rides", SEALED) == [b"before"]
    assert read(alarms, "rides", HEIR) == [b"after"]


def test_a_schedule_goes_on_in_the_sealed_partition(alarms: RunningBroker) -> None:
    send(alarms, b"tick", schedule="@every 10s", times="3")
    deliver(alarms, 10_000)
    shrink(alarms, 2)
    deliver(alarms, 10_000)
    deliver(alarms, 10_000)
    assert read(alarms, "rides", SEALED) == [b"tick"] * 3
    assert read(alarms, "rides", HEIR) == []


def test_partitions_with_waiting_records_are_not_retired(alarms: RunningBroker) -> None:
    send(alarms, b"before", delay="10s")
    shrink(alarms, 2)
    code, why = change(alarms, 0, "retire")
    assert code == POLICY_VIOLATION
    assert "3 (1 offsets)" in why


def test_a_record_is_cancelled_in_the_log_that_has_it(alarms: RunningBroker) -> None:
    shrink(alarms, 2)
    send(alarms, b"drink", delay="10s", schedule_id="water")
    send(alarms, b"", cancel="water")
    deliver(alarms, 10_000)
    assert read(alarms, "rides", HEIR) == []


def test_a_cancellation_after_the_change_does_not_reach_what_waited_before(
    alarms: RunningBroker,
) -> None:
    """As the page says. After the topic grew, it does."""
    send(alarms, b"drink", delay="20s", schedule_id="water")
    send(alarms, b"eat", delay="30s", schedule_id="bread")
    shrink(alarms, 2)
    send(alarms, b"", cancel="water")
    deliver(alarms, 20_000)
    assert read(alarms, "rides", SEALED) == [b"drink"]
    grow(alarms, 4)
    send(alarms, b"", cancel="bread")
    deliver(alarms, 10_000)
    assert read(alarms, "rides", SEALED) == [b"drink"]


# -- views


@pytest.fixture
def rides(broker: RunningBroker) -> RunningBroker:
    broker.create_topic("rides", partitions=4)
    broker.create_view("paid", of="rides", where="tag = 'paid'")
    return broker


def listed(broker: RunningBroker) -> list[int]:
    """The partitions of the view in Metadata."""
    reply = broker.ask(
        Api.METADATA,
        9,
        topics=[{"name": "paid"}],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return [one.partition_index for one in reply.topics[0].partitions]


def without_barrier(broker: RunningBroker) -> None:
    def changed(before: Any) -> dict[str, str]:
        return {**before.overrides, "respool.shrink.barrier.ms": "0"}

    broker.run(broker.broker.topics.change_overrides("rides", changed))


def test_a_view_shows_what_is_in_sealed_partitions_and_in_their_heirs(
    rides: RunningBroker,
) -> None:
    without_barrier(rides)
    produce(rides, "paid", "open", partition=SEALED)
    shrink(rides, 2)
    produce(rides, "open", "paid", "paid", partition=SEALED)
    assert listed(rides) == [0, 1, 2, 3]
    assert read(rides, "paid", SEALED) == [b"paid"]
    assert read(rides, "paid", HEIR) == [b"paid", b"paid"]
    assert change(rides, 0, "retire-forced") == (0, "")
    assert listed(rides) == [0, 1]
    assert read(rides, "paid", HEIR) == [b"paid", b"paid"]


def test_readers_of_a_view_are_not_shown_what_a_key_got_later_either(
    rides: RunningBroker,
) -> None:
    subscription = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x04paid" + b"\xff\xff\xff\xff"
    member = Member(rides, "clerks", topics=subscription)
    member.settle()
    produce(rides, "paid", partition=SEALED)
    shrink(rides, 2)
    produce(rides, "paid", "paid", partition=SEALED)
    assert read(rides, "paid", HEIR) == []
    member.commit(("paid", SEALED, 1))
    rides.run(
        rides.broker.catalog.wait_until(
            lambda: all(
                one.handover is None or one.handover.hold is None
                for one in rides.broker.image.topics["rides"].partitions
            ),
            timeout_s=10,
        )
    )
    assert read(rides, "paid", HEIR) == [b"paid", b"paid"]
