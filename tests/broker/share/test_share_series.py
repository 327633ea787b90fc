"""Series of share groups: what is ready, held, waiting and dying, how old it is, and what has happened."""

import pytest

from broker.group_client import restart, start_with_groups
from broker.handlers.share_groups.share_client import ShareMember
from broker.running_broker import RunningBroker, StartBroker
from respool.sim.runtime.simulated_metrics import SimMetrics

ACCEPT, RELEASE, REJECT = 1, 2, 3
ORDERS = ("billing", "orders")


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_groups(start_broker, share_coordinator_state_topic_partitions=2)
    broker.create_topic("orders")
    broker.set_for_group(
        "billing",
        {"share.auto.offset.reset": "earliest", "respool.share.retry.delays.ms": "60000"},
    )
    return broker


@pytest.fixture
def one(broker: RunningBroker) -> ShareMember:
    member = ShareMember(broker)
    member.join()
    return member


def collected(broker: RunningBroker, name: str) -> dict[tuple[str, ...], float]:
    metrics = broker.broker.world.metrics
    assert isinstance(metrics, SimMetrics)
    return metrics.collected(f"respool_share_{name}")


def gauges(broker: RunningBroker) -> tuple[float, ...]:
    names = ("ready_records", "held_records", "waiting_records", "dying_records")
    return tuple(collected(broker, name)[ORDERS] for name in names)


def counters(broker: RunningBroker) -> dict[str, float]:
    names = ("accepted", "late_accepts", "lock_ends", "archived", "dead_letters", "lost")
    return {name: collected(broker, f"{name}_total")[ORDERS] for name in names}


def test_records_are_counted_by_what_they_wait_for(broker: RunningBroker, one: ShareMember) -> None:
    assert collected(broker, "ready_records") == {}
    broker.produce("orders", values=(b"v",) * 10)
    one.take(max_records=4, share_acquire_mode=1)
    assert gauges(broker) == (6, 4, 0, 0)
    one.acknowledge((0, 0, ACCEPT), (1, 2, RELEASE), (3, 3, REJECT))
    assert gauges(broker) == (6, 0, 2, 0)
    assert collected(broker, "deliveries_total") == {(*ORDERS, "1"): 4}
    assert counters(broker) == {
        "accepted": 1,
        "late_accepts": 0,
        "lock_ends": 0,
        "archived": 1,
        "dead_letters": 0,
        "lost": 0,
    }


def test_the_oldest_unfinished_record_ages(broker: RunningBroker, one: ShareMember) -> None:
    for _ in range(3):
        broker.produce("orders")
        broker.clock.advance(60_000)
    one.take()
    broker.run(broker.broker.metrics.refresh())
    assert collected(broker, "oldest_age_seconds") == {ORDERS: 180}
    one.acknowledge((0, 0, ACCEPT))
    broker.run(broker.broker.metrics.refresh())
    broker.clock.advance(7_000)
    assert collected(broker, "oldest_age_seconds") == {ORDERS: 127}
    one.acknowledge((1, 2, ACCEPT))
    assert collected(broker, "oldest_age_seconds") == {ORDERS: 0}


def test_counters_stay_when_a_group_is_unloaded_and_gauges_do_not(
    broker: RunningBroker, one: ShareMember
) -> None:
    broker.produce("orders", values=(b"v",) * 3)
    one.take()
    one.acknowledge((0, 1, ACCEPT), share_session_epoch=-1)

    async def unloaded() -> None:
        broker.broker.shares.stop()

    broker.run(unloaded())
    assert collected(broker, "ready_records") == {}
    assert counters(broker)["accepted"] == 2
    assert collected(broker, "deliveries_total") == {(*ORDERS, "1"): 3}


def test_deleted_topics_and_filtered_groups_have_no_series(start_broker: StartBroker) -> None:
    broker = start_with_groups(
        start_broker, share_coordinator_state_topic_partitions=2, metrics_groups_deny="bill*"
    )
    broker.create_topic("orders")
    for group in ("billing", "shipping"):
        member = ShareMember(broker, group=group)
        member.join()
        member.take()
    assert list(collected(broker, "held_records")) == [("shipping", "orders")]
    broker.run(broker.broker.topics.delete("orders"))
    assert collected(broker, "held_records") == {}
    assert collected(broker, "accepted_total") == {}


def test_groups_beyond_the_limit_of_series_are_counted_as_dropped(
    start_broker: StartBroker,
) -> None:
    broker = start_with_groups(
        start_broker, share_coordinator_state_topic_partitions=2, metrics_series_max=5
    )
    broker.create_topic("orders")
    member = ShareMember(broker)
    member.join()
    member.take()
    assert collected(broker, "held_records") == {}
    metrics = broker.broker.world.metrics
    assert isinstance(metrics, SimMetrics)
    assert metrics.collected("respool_metrics_series_dropped")["share group",] > 0


def test_a_restart_resets_the_counters(broker: RunningBroker, one: ShareMember) -> None:
    broker.produce("orders")
    one.take()
    restart(broker, crash=False)
    assert collected(broker, "accepted_total") == {}
