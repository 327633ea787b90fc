"""Stories of views in a cluster: any broker makes them, all see them, and they follow their parent to its leader."""

import asyncio
from functools import partial
from typing import Any

from broker.cluster_world import LATEST, LIST_OFFSETS_VERSION, ONE, THREE, TWO, Cluster, plays
from respool.model.cluster import TopicImage
from respool.model.errors import RequestError, TopicAlreadyExists, UnknownTopicOrPartition
from respool.model.ids import BrokerId
from respool.records.batch import RecordBatch
from respool.records.build import NewRecord, build_batch
from respool.records.record import read_records
from respool.records.validate import walk_batches
from respool.wire.api_table import Api

VIEW = {"respool.view.of": "rides", "respool.view.where": "tag = 'paid'"}
NOT_LEADER = 6


async def create_view(cluster: Cluster, name: str = "paid", *, at: BrokerId) -> TopicImage:
    node = cluster[at]
    made: TopicImage = await node.run(node.broker.topics.create(name, overrides=VIEW))
    return made


async def outcome_of(work: Any) -> object:
    try:
        return await work
    except RequestError as error:
        return error


async def end_of_view(cluster: Cluster, *, at: BrokerId) -> Any:
    wish = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}
    reply = await cluster[at].ask(
        Api.LIST_OFFSETS,
        LIST_OFFSETS_VERSION,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": "paid", "partitions": [wish]}],
    )
    return reply.topics[0].partitions[0]


async def shown(cluster: Cluster, *, at: BrokerId) -> Any:
    reply = await cluster[at].ask(
        Api.METADATA,
        12,
        topics=[{"name": "paid", "topic_id": None}],
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )
    return reply.topics[0]


def views(cluster: Cluster, at: BrokerId) -> dict[str, TopicImage]:
    return dict(cluster[at].broker.image.views)


def is_known(cluster: Cluster, at: BrokerId) -> bool:
    return cluster[at].broker.image.readable("paid") is not None


def has_no_topics(cluster: Cluster, at: BrokerId) -> bool:
    return not cluster[at].broker.image.topics


async def produce_tagged(cluster: Cluster, *tags: str, at: BrokerId) -> None:
    records = [NewRecord(value=b"v", headers=(("tag", tag.encode()),)) for tag in tags]
    reply = await cluster[at].ask(
        Api.PRODUCE,
        9,
        transactional_id=None,
        acks=-1,
        timeout=30_000,
        topic_data=[
            {
                "name": "rides",
                "partition_data": [{"index": 0, "records": build_batch(records)}],
            }
        ],
    )
    assert reply.responses[0].partition_responses[0].error_code == 0


async def shown_offsets(
    cluster: Cluster, view: TopicImage, *, at: BrokerId
) -> tuple[list[int], int]:
    """The offsets of the view's records, and where its reader is then. Read by id, from the start."""
    offsets: list[int] = []
    position = 0
    while True:
        wanted = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": position,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        reply = await cluster[at].ask(
            Api.FETCH,
            13,
            replica_id=-1,
            max_wait=0,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            session_id=0,
            session_epoch=-1,
            rack_id="",
            topics=[{"topic_id": view.id, "partitions": [wanted]}],
            forgotten_topics_data=[],
        )
        part = reply.responses[0].partitions[0]
        assert part.error_code == 0
        data = part.records or b""
        if not data:
            return offsets, position
        for begin, header in walk_batches(data):
            position = header.next_offset
            if not header.is_control:
                batch = RecordBatch(header, data[begin : begin + header.size])
                offsets += [one.offset for one in read_records(batch, limit=1 << 20)]


@plays(brokers=2)
async def test_what_a_view_shows_is_the_same_at_the_next_leader(cluster: Cluster) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    made = await create_view(cluster, at=ONE)
    await cluster.until(lambda: "paid" in views(cluster, TWO))
    await produce_tagged(cluster, "paid", "open", "paid", "open", at=ONE)
    await produce_tagged(cluster, "open", "open", at=ONE)
    assert await shown_offsets(cluster, made, at=ONE) == ([0, 2], 6)

    cluster[ONE].kill()
    await cluster.until_led(TWO)
    await produce_tagged(cluster, "open", "paid", "open", at=TWO)
    assert await shown_offsets(cluster, made, at=TWO) == ([0, 2, 7], 9)


@plays(brokers=3)
async def test_a_view_follows_its_parent_to_another_leader(cluster: Cluster) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    made = await create_view(cluster, at=THREE)
    await cluster.produce(b"a", b"b", at=ONE)
    await cluster.until(lambda: "paid" in views(cluster, ONE))
    assert (await end_of_view(cluster, at=ONE)).offset == 2
    assert (await end_of_view(cluster, at=TWO)).error_code == NOT_LEADER

    cluster[ONE].kill()
    await cluster.until_led(TWO)
    await cluster.until(lambda: views(cluster, THREE)["paid"].partitions[0].leader == TWO)
    assert (await end_of_view(cluster, at=TWO)).offset == 2
    found = await shown(cluster, at=THREE)
    assert (found.topic_id, found.partitions[0].leader_id) == (made.id, TWO)


@plays(brokers=2)
async def test_a_broker_that_comes_later_knows_the_views(cluster: Cluster) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    await cluster[TWO].stop()
    made = await create_view(cluster, at=ONE)
    await cluster[TWO].start()
    await cluster.until(lambda: views(cluster, TWO).keys() == {"paid"})
    assert views(cluster, TWO)["paid"].id == made.id


@plays(brokers=2)
async def test_of_a_topic_and_a_view_of_one_name_there_is_one(cluster: Cluster) -> None:
    """Created through two brokers at the same time; the other one's client hears that the name is taken."""
    await cluster.create([1, 2])
    await cluster.until(lambda: "rides" in cluster[TWO].broker.image.topics)
    two = cluster[TWO]
    outcomes = await asyncio.gather(
        outcome_of(create_view(cluster, at=ONE)),
        outcome_of(two.run(two.broker.topics.create("paid", partition_count=1))),
    )
    made = [one for one in outcomes if isinstance(one, TopicImage)]
    assert len(made) == 1
    assert [type(one) for one in outcomes if one not in made] == [TopicAlreadyExists]
    for at in (ONE, TWO):
        await cluster.until(partial(is_known, cluster, at))
        found = cluster[at].broker.image.readable("paid")
        assert found is not None
        assert (found.id, found.view is None) == (made[0].id, made[0].view is None)


@plays(brokers=2, auto_create_topics=True)
async def test_no_topic_is_auto_created_over_a_view_of_another_broker(cluster: Cluster) -> None:
    await cluster.create([1, 2])
    await cluster.until(lambda: "rides" in cluster[TWO].broker.image.topics)
    # The other broker reads of the view only after it was asked for a topic of that name.
    cluster[TWO].store.conditions.watch_lag_ms_max = 2_000
    made = await create_view(cluster, at=ONE)
    answer = await shown(cluster, at=TWO)
    assert answer.error_code == 0
    assert answer.topic_id == made.id
    assert cluster[TWO].broker.image.topics.keys() == {"rides"}


@plays(brokers=2)
async def test_a_view_is_not_created_for_a_parent_that_another_broker_deletes(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2])
    await cluster.until(lambda: "rides" in cluster[TWO].broker.image.topics)
    one = cluster[ONE]
    await asyncio.gather(
        outcome_of(one.run(one.broker.topics.delete("rides"))),
        outcome_of(create_view(cluster, at=TWO)),
    )
    for at in (ONE, TWO):
        await cluster.until(partial(has_no_topics, cluster, at))
        assert views(cluster, at) == {}
    # Whoever was first, the name is free.
    await one.run(one.broker.topics.create("paid", partition_count=1))
    assert one.broker.image.readable("paid") is not None


@plays(brokers=2)
async def test_a_view_deleted_at_one_broker_is_gone_at_all(cluster: Cluster) -> None:
    await cluster.create([1, 2])
    await create_view(cluster, at=ONE)
    await cluster.until(lambda: "paid" in views(cluster, TWO))
    two = cluster[TWO]
    await two.run(two.broker.topics.delete("paid"))
    await cluster.until(lambda: not views(cluster, ONE))
    assert isinstance(
        await outcome_of(two.run(two.broker.topics.delete("paid"))), UnknownTopicOrPartition
    )
    assert "rides" in cluster[ONE].broker.image.topics
