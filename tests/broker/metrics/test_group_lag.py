"""Lag over brokers: each group's coordinator tells of it, also in partitions that others lead."""

import pytest

from broker.group_client import commit
from broker.running_broker import RunningBroker, StartBroker
from broker.two_brokers import TwoBrokers
from respool.log.partition_log import PartitionLog
from respool.model.ids import Offset
from respool.sim.runtime.simulated_metrics import SimMetrics
from respool.wire.api_table import Api
from respool.wire.schema_extensions import TIME_AT_VERSION

MESSAGES = "respool_group_lag_messages"
SECONDS = "respool_group_lag_seconds"
COMMITTED = "respool_group_committed_offset"


def collected(broker: RunningBroker, name: str) -> dict[tuple[str, ...], float]:
    metrics = broker.broker.world.metrics
    assert isinstance(metrics, SimMetrics)
    return metrics.collected(name)


def refreshed(broker: RunningBroker, name: str) -> dict[tuple[str, ...], float]:
    broker.run(broker.broker.metrics.refresh())
    return collected(broker, name)


def produce_every_minute(broker: RunningBroker, topic: str, partition: int, count: int) -> None:
    for _ in range(count):
        broker.produce(topic, partition)
        broker.clock.advance(60_000)


def test_the_coordinator_tells_of_partitions_that_another_broker_leads(world: TwoBrokers) -> None:
    group = world.group_id(at=world.one)
    # Partition 0 is led by the coordinator itself, partition 1 by the other broker.
    for number, leader in ((0, world.one), (1, world.two)):
        assert world.at("rides", number) is leader
        produce_every_minute(leader, "rides", number, 5)
    assert commit(world.one, group, ("rides", 0, 5), ("rides", 1, 2)) == [0, 0]

    assert refreshed(world.one, MESSAGES) == {(group, "rides", "0"): 0, (group, "rides", "1"): 3}
    assert collected(world.one, SECONDS) == {
        (group, "rides", "0"): 0,
        (group, "rides", "1"): 3 * 60,
    }
    assert collected(world.one, COMMITTED)[group, "rides", "1"] == 2
    # Nobody else tells of it: summed over brokers, each group counts once.
    assert refreshed(world.two, MESSAGES) == {}
    # The age goes on without being looked up.
    world.clock.advance(7_000)
    assert collected(world.one, SECONDS)[group, "rides", "1"] == 3 * 60 + 7


def test_lag_of_a_view_is_asked_of_its_parents_leader(world: TwoBrokers) -> None:
    group = world.group_id(at=world.one)
    world.one.create_view("paid", of="rides", where="tag = 'paid'")
    produce_every_minute(world.two, "rides", 1, 5)
    assert commit(world.one, group, ("paid", 1, 2), ("rides", 1, 4)) == [0, 0]

    assert refreshed(world.one, MESSAGES) == {(group, "paid", "1"): 3, (group, "rides", "1"): 1}
    assert collected(world.one, SECONDS)[group, "paid", "1"] == 3 * 60


def test_two_groups_at_different_places_of_a_remote_partition_have_their_own_lag(
    world: TwoBrokers,
) -> None:
    groups = [
        one for one in map("g-{}".format, range(50)) if world.group_coordinator(one) is world.one
    ]
    produce_every_minute(world.two, "rides", 1, 4)
    assert commit(world.one, groups[0], ("rides", 1, 1)) == [0]
    assert commit(world.one, groups[1], ("rides", 1, 3)) == [0]
    assert refreshed(world.one, SECONDS) == {
        (groups[0], "rides", "1"): 3 * 60,
        (groups[1], "rides", "1"): 60,
    }


def test_a_leader_that_does_not_answer_leaves_the_committed_offset_alone(world: TwoBrokers) -> None:
    group = world.group_id(at=world.one)
    produce_every_minute(world.two, "rides", 1, 2)
    assert commit(world.one, group, ("rides", 1, 1)) == [0]
    world.network.request_loss = 1.0
    assert refreshed(world.one, MESSAGES) == {}
    assert collected(world.one, COMMITTED) == {(group, "rides", "1"): 1}
    world.network.request_loss = 0.0
    assert refreshed(world.one, MESSAGES) == {(group, "rides", "1"): 1}


def test_a_client_of_that_version_gets_what_it_always_got(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides")
    running_broker.produce("rides")
    wish = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    reply = running_broker.ask(
        Api.LIST_OFFSETS,
        TIME_AT_VERSION,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": "rides", "partitions": [wish]}],
    )
    (told,) = reply.topics[0].partitions
    assert (told.offset, told.timestamp, told.error_code) == (1, -1, 0)


def test_lists_and_the_bound_choose_groups(start_broker: StartBroker) -> None:
    broker = start_broker(
        metrics_groups_allow="b*,c*",
        metrics_groups_deny="*-test",
        metrics_topics_deny="secret",
        metrics_series_max=40,
        offsets_topic_partitions=1,
    )
    for topic in ("rides", "secret"):
        broker.create_topic(topic)
        broker.produce(topic)
    broker.ask(Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["b"])
    for group in ("a", "b", "c", "b-test"):
        assert commit(broker, group, ("rides", 0, 0), ("secret", 0, 0)) == [0, 0]
    assert set(refreshed(broker, MESSAGES)) == {("b", "rides", "0"), ("c", "rides", "0")}
    for number in range(20):
        assert commit(broker, f"c{number}", ("rides", 0, 0)) == [0]
    told = set(refreshed(broker, MESSAGES))
    assert {("b", "rides", "0"), ("c", "rides", "0")} <= told
    dropped = collected(broker, "respool_metrics_series_dropped")
    assert 0 < dropped[("group",)] == 3 * (22 - len(told))
    # Those that were there first stay, from look to look.
    assert set(refreshed(broker, MESSAGES)) == told


def test_only_what_moved_is_looked_up_again(
    running_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = running_broker
    broker.create_topic("rides", partitions=2)
    broker.ask(Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
    for number in (0, 1):
        produce_every_minute(broker, "rides", number, 3)
    assert commit(broker, "g", ("rides", 0, 1), ("rides", 1, 1)) == [0, 0]
    broker.run(broker.broker.metrics.refresh())
    looked_up: list[int] = []
    found = PartitionLog.time_at

    def time_at(log: PartitionLog, offset: Offset) -> int | None:
        looked_up.append(offset)
        return found(log, offset)

    monkeypatch.setattr(PartitionLog, "time_at", time_at)
    assert commit(broker, "g", ("rides", 1, 2)) == [0]
    broker.run(broker.broker.metrics.refresh())
    assert looked_up == [2]
