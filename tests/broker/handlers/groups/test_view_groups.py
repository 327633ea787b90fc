"""Groups of a view: they commit under its name and id, at its parent's offsets."""

from typing import Any

import pytest

from broker.group_client import commit, committed, restart, start_with_groups
from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import settle, start_with_transactions
from broker.wire_client import versions
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.keys import TopicRecord, ViewRecord, encode_topic, topic_key
from respool.model.cluster import TopicImage
from respool.sim.runtime.simulated_metrics import SimMetrics
from respool.wire.api_table import Api

UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID = 3, 100


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_groups(start_broker)
    broker.create_topic("rides", partitions=3)
    broker.create_view("paid", of="rides", where="tag = 'paid'")
    return broker


def view(broker: RunningBroker) -> TopicImage:
    return broker.broker.image.views["paid"]


@pytest.mark.parametrize("version", versions(Api.OFFSET_COMMIT))
@pytest.mark.parametrize("crash", [False, True])
def test_offsets_of_a_view_are_committed_under_its_name(
    broker: RunningBroker, version: int, crash: bool
) -> None:
    assert commit(broker, "drivers", ("paid", 2, 7), ("rides", 2, 5), version=version) == [0, 0]
    restart(broker, crash=crash)
    assert committed(broker, "drivers") == {("paid", 2): 7, ("rides", 2): 5}


@pytest.mark.parametrize("version", versions(Api.OFFSET_COMMIT))
def test_a_view_has_no_more_partitions_than_its_parent(broker: RunningBroker, version: int) -> None:
    assert commit(broker, "drivers", ("paid", 3, 7), version=version) == [UNKNOWN_TOPIC]


@pytest.mark.parametrize("version", [9, 10])
def test_committed_offsets_are_fetched_by_name_and_by_id(
    broker: RunningBroker, version: int
) -> None:
    commit(broker, "drivers", ("paid", 0, 7))
    for topics in ([{**broker.topic_ref("paid"), "partition_indexes": [0, 1]}], None):
        group = {"group_id": "drivers", "member_id": None, "member_epoch": -1, "topics": topics}
        reply = broker.ask(Api.OFFSET_FETCH, version, groups=[group], require_stable=True)
        (topic,) = reply.groups[0].topics
        assert broker.topic_name(topic) == "paid"
        assert topic.partitions[0].committed_offset == 7


def test_offsets_of_a_deleted_view_are_not_those_of_the_next(broker: RunningBroker) -> None:
    commit(broker, "drivers", ("paid", 0, 7), ("rides", 0, 7))
    broker.run(broker.broker.topics.delete("paid"))
    assert committed(broker, "drivers") == {("rides", 0): 7}
    broker.create_view("paid", of="rides", where="tag = 'paid'")
    assert committed(broker, "drivers") == {("rides", 0): 7}


def test_offsets_of_views_end_with_their_parent(broker: RunningBroker) -> None:
    commit(broker, "drivers", ("paid", 0, 7), ("rides", 0, 7))
    broker.run(broker.broker.topics.delete("rides"))
    assert committed(broker, "drivers") == {}


def test_offsets_of_a_view_that_this_version_does_not_understand_stay(
    broker: RunningBroker,
) -> None:
    """A newer broker changed its condition: during a rolling upgrade its groups would start over."""
    commit(broker, "drivers", ("paid", 0, 7))
    catalog, known = broker.broker.catalog, view(broker)
    assert known.view is not None
    parent_id = known.view.parent_id

    async def change(where: str) -> None:
        record = TopicRecord(
            id=known.id,
            overrides={},
            partition_count=0,
            view=ViewRecord(parent_id=parent_id, where=where),
        )
        puts = {topic_key("paid"): encode_topic(record)}
        await catalog.write(GuardedWrite(guards=(), puts=puts, why="a newer broker"))
        broker.broker.groups.on_topics_changed()

    broker.run(change("tag ~ 'pa.*'"))
    assert "paid" in catalog.image.dormant_views
    settle(broker)
    broker.run(change("tag = 'paid'"))
    settle(broker)
    assert committed(broker, "drivers") == {("paid", 0): 7}


def test_a_group_is_taken_off_a_view(broker: RunningBroker) -> None:
    commit(broker, "drivers", ("paid", 0, 7), ("paid", 1, 8), ("rides", 0, 5))
    reply = broker.ask(
        Api.OFFSET_DELETE,
        0,
        group_id="drivers",
        topics=[
            {"name": "paid", "partitions": [{"partition_index": 0}]},
            {"name": "nothing", "partitions": [{"partition_index": 0}]},
        ],
    )
    codes = {one.name: one.partitions[0].error_code for one in reply.topics}
    assert codes == {"paid": 0, "nothing": UNKNOWN_TOPIC}
    assert committed(broker, "drivers") == {("paid", 1): 8, ("rides", 0): 5}


@pytest.mark.parametrize("version", versions(Api.TXN_OFFSET_COMMIT))
def test_offsets_of_a_view_are_committed_in_transactions(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_with_transactions(start_broker)
    broker.create_view("paid", of="rides", where="tag = 'paid'")
    producer = broker.ask(
        Api.INIT_PRODUCER_ID,
        4,
        transactional_id="copier",
        transaction_timeout=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    who = {
        "transactional_id": "copier",
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }
    if version < 5:
        assert broker.ask(Api.ADD_OFFSETS_TO_TXN, 3, **who, group_id="drivers").error_code == 0
    partition = {
        "partition_index": 1,
        "committed_offset": 9,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    reply = broker.ask(
        Api.TXN_OFFSET_COMMIT,
        version,
        **who,
        group_id="drivers",
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[{**broker.topic_ref("paid"), "partitions": [partition]}],
    )
    assert reply.topics[0].partitions[0].error_code == 0
    end = broker.ask(Api.END_TXN, 5 if version >= 5 else 4, **who, committed=True)
    assert end.error_code == 0
    assert committed(broker, "drivers") == {("paid", 1): 9}


def test_lag_of_a_view_is_to_its_parents_end(broker: RunningBroker) -> None:
    for _ in range(5):
        broker.produce("rides", 1)
    commit(broker, "drivers", ("paid", 1, 2), ("rides", 1, 5))
    broker.run(broker.broker.metrics.refresh())
    metrics = broker.broker.world.metrics
    assert isinstance(metrics, SimMetrics)
    assert metrics.collected("respool_group_lag_messages") == {
        ("drivers", "paid", "1"): 3,
        ("drivers", "rides", "1"): 0,
    }
    assert metrics.collected("respool_group_committed_offset")["drivers", "paid", "1"] == 2


def beat(broker: RunningBroker, member_id: str, epoch: int, **subscription: Any) -> Any:
    reply = broker.ask(
        Api.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id="drivers",
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout=30_000,
        topic_partitions=[],
        **{"subscribed_topic_names": None, "subscribed_topic_regex": None, **subscription},
    )
    assert reply.error_code == 0
    return reply


def assigned(reply: Any) -> dict[Any, tuple[int, ...]]:
    return {one.topic_id: one.partitions for one in reply.assignment.topic_partitions}


def test_a_member_of_a_new_group_subscribes_to_a_view_by_name(broker: RunningBroker) -> None:
    first = beat(broker, "m", 0, subscribed_topic_names=["paid"])
    assert assigned(first) == {view(broker).id: (0, 1, 2)}
    broker.run(broker.broker.topics.add_partitions("rides", partition_count=4))
    again = beat(broker, "m", first.member_epoch)
    assert assigned(again) == {view(broker).id: (0, 1, 2, 3)}
    # A member that subscribes before there is a view gets it as soon as there is.
    early = beat(broker, "m", again.member_epoch, subscribed_topic_names=["open"])
    assert assigned(early) == {}
    made = broker.create_view("open", of="rides", where="tag = 'open'")
    assert assigned(beat(broker, "m", early.member_epoch)) == {made.id: (0, 1, 2, 3)}


def test_a_pattern_matches_a_view_only_while_it_is_listed(broker: RunningBroker) -> None:
    """Otherwise a consumer of everything would read the same records twice."""
    rides = broker.broker.image.topics["rides"].id
    first = beat(broker, "m", 0, subscribed_topic_names=[], subscribed_topic_regex=".*")
    assert assigned(first).keys() == {rides}

    def list_it(is_listed: str) -> None:
        broker.run(
            broker.broker.topics.change_overrides(
                "paid",
                lambda topic: {
                    "respool.view.of": "rides",
                    "respool.view.where": "tag = 'paid'",
                    "respool.view.listed": is_listed,
                },
            )
        )

    list_it("true")
    second = beat(broker, "m", first.member_epoch)
    assert assigned(second).keys() == {rides, view(broker).id}
    list_it("false")
    assert assigned(beat(broker, "m", second.member_epoch)).keys() == {rides}
