"""A broker as one of a cluster: what it does when others come and go, and how it comes and goes itself."""

import asyncio
from random import Random
from typing import Any
from unittest.mock import patch
from uuid import UUID

from broker.cluster_world import LAG_MS, ONE, THREE, TOPIC, TWO, Cluster, Node, plays
from respool.cluster import keys
from respool.log.folder.data_folder import DataFolder
from respool.model.coordinator_errors import NotCoordinator
from respool.model.errors import DiskFull
from respool.ports.metadata_store import StoreUnavailable
from respool.sim.checks.cluster_observer import ClusterObserver
from respool.sim.disk.simulated_disk import SimDisk
from respool.sim.runtime.simulated_sources import SimRandomSource
from respool.wire.api_table import Api


def member_of(node: Node) -> Any:
    assert node.broker.member is not None
    return node.broker.member


@plays(brokers=2)
async def test_a_broker_that_came_is_known_to_the_others_and_they_to_it(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        assert set(node.broker.image.brokers) == {ONE, TWO}
        assert node.broker.image.brokers[node.id].epoch == member_of(node).epoch


@plays(brokers=2)
async def test_whose_registration_was_taken_away_registers_anew_and_is_back(
    cluster: Cluster,
) -> None:
    """Somebody took it for dead. It does not wait until its lease would be renewed."""
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    await cluster.produce(b"a", at=ONE)
    epoch = member_of(cluster[ONE]).epoch
    cluster.store.revoke_lease(member_of(cluster[ONE])._lifecycle._lease)
    await cluster.until_led(TWO)
    await cluster.until(lambda: (member_of(cluster[ONE]).epoch or 0) > epoch)
    await cluster.until_in_sync(1, 2)
    assert cluster[ONE].values() == cluster[TWO].values()


@plays(brokers=1)
async def test_which_folder_it_is_is_written_down_as_soon_as_there_is_room(
    cluster: Cluster,
) -> None:
    """Seed 80007031: it was not tried again, and after the next start all that only this folder had was offline."""
    node = cluster[ONE]
    await node.stop()
    node.disk, node.rng = SimDisk(Random(9)), SimRandomSource(9)
    note, failures = DataFolder.note_id, [DiskFull("no room"), DiskFull("no room")]

    def note_at_last(folder: DataFolder, new: UUID) -> None:
        if failures:
            raise failures.pop()
        note(folder, new)

    with patch.object(DataFolder, "note_id", note_at_last):
        await node.start()
        assert node.broker.folder.id is None
        await cluster.until(lambda: node.broker.folder.id is not None)
    registered = ClusterObserver(cluster.store).view().registry[ONE].folder
    assert registered is not None
    assert node.disk.reopen().read_file("folder-id") == registered.hex.encode()


@plays(brokers=2)
async def test_whose_turn_it_is_to_copy_is_looked_at_when_brokers_come_and_go(
    cluster: Cluster,
) -> None:
    """Though no topic changes by it: a copy to a broker that is gone keeps nobody from copying."""
    await cluster.create([1])
    await cluster.pass_time(LAG_MS)
    member = member_of(cluster[ONE])
    looks = []
    member.throttle.on_image = lambda: looks.append(cluster.loop.time())
    cluster[TWO].kill()
    await cluster.until(lambda: TWO not in cluster[ONE].broker.image.brokers)
    assert looks


@plays(brokers=1, handover_max_ms=5_000)
async def test_who_has_nobody_to_hand_over_to_stops_at_once(cluster: Cluster) -> None:
    await cluster.create([1])
    began = cluster.loop.time()
    await cluster[ONE].stop()
    assert cluster.loop.time() - began < 1


@plays(brokers=2, handover_max_ms=5_000)
async def test_a_hand_over_that_nobody_takes_is_waited_for_so_long_only(cluster: Cluster) -> None:
    """The controller is broker 1's to be; with its seat taken by nobody else, nobody elects."""
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    for node in cluster.nodes.values():
        election = member_of(node)._election
        election._catalog = None
        for task in tuple(node.broker._background):
            if "ControllerElection.run" in repr(task):
                node.broker._background.pop(task)
                task.cancel()
    began = cluster.loop.time()
    await cluster[ONE].run(cluster[ONE].broker.leave_leadership())
    assert 5 <= cluster.loop.time() - began < 6


@plays(brokers=2)
async def test_nobody_waits_for_a_broker_that_stops_while_the_store_is_away(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    cluster[ONE].store.conditions.is_disconnected = True
    await cluster.until(lambda: not cluster[ONE].broker.may_act())
    began = cluster.loop.time()
    await cluster[ONE].run(cluster[ONE].broker.leave_leadership())
    await cluster[ONE].run(cluster[ONE].broker.stop())
    assert cluster.loop.time() - began < 1


@plays(brokers=2)
async def test_a_stop_ends_also_when_the_store_is_gone_before_it_could_be_told(
    cluster: Cluster,
) -> None:
    broker = cluster[ONE].broker
    await cluster[ONE].run(broker.leave_leadership())
    await cluster[ONE].run(broker.stop())
    cluster[ONE].store.conditions.is_disconnected = True
    began = cluster.loop.time()
    await cluster[ONE].run(broker.leave_cluster())
    assert 5 <= cluster.loop.time() - began < 6


@plays(brokers=3, copies_per_broker_max=1)
async def test_partitions_are_moved_a_few_at_a_time_and_all_of_them_arrive(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2], [1, 2], [1, 2])
    for number in range(3):
        await cluster.until_in_sync(1, 2, number=number)
        await cluster.produce(b"a", at=ONE, number=number)
    reply = await cluster[ONE].ask(
        Api.ALTER_PARTITION_REASSIGNMENTS,
        0,
        timeout=10_000,
        topics=[
            {
                "name": TOPIC,
                "partitions": [
                    {"partition_index": number, "replicas": [1, 3]} for number in range(3)
                ],
            }
        ],
    )
    assert reply.error_code == 0
    for number in range(3):
        await cluster.until_in_sync(1, 3, number=number)
        assert len(cluster[THREE].values(number)) == 1
    await cluster.until(lambda: not cluster[TWO].broker.partitions.of_topic(TOPIC))


@plays(brokers=2)
async def test_followers_that_wait_cost_no_more_than_a_few_requests_a_second(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2], [1, 2], [2, 1], [2, 1])
    for number in range(4):
        await cluster.until_in_sync(1, 2, number=number)
    await cluster.pass_time(5_000)
    before = len(cluster.asked)
    await cluster.pass_time(10_000)
    assert len(cluster.asked) - before <= 2 * 10 * 2 + 4


@plays(brokers=2)
async def test_a_follower_asks_a_dead_leader_no_more_than_now_and_then(cluster: Cluster) -> None:
    await cluster.create([1, 2], min_insync_replicas=2)
    await cluster.until_in_sync(1, 2)
    cluster.cut(ONE, TWO)
    asked = []
    peers = cluster[TWO].broker.world.peers
    assert peers is not None
    request = peers.request

    async def count(*args: Any, **more: Any) -> bytes | memoryview:
        asked.append(args)
        return await request(*args, **more)

    peers.request = count  # type: ignore[method-assign]
    await cluster.pass_time(3_000)
    assert 10 <= len(asked) <= 60


@plays(brokers=2)
async def test_a_stop_ends_all_that_the_broker_has_under_way(cluster: Cluster) -> None:
    await cluster.create([1, 2], [2, 1])
    await cluster.until_in_sync(1, 2)
    waiting = asyncio.ensure_future(cluster.fetch(0, at=TWO, max_wait=1_000))
    await cluster.pass_time(10)
    await cluster[TWO].run(cluster[TWO].broker.leave_leadership())
    await cluster[TWO].run(cluster[TWO].broker.stop())
    assert not cluster[TWO].broker._background
    assert len(cluster[TWO].broker.partitions) == 0
    await asyncio.wait({waiting})


@plays(brokers=2)
async def test_a_partition_that_is_busy_does_not_keep_others_from_being_led(
    cluster: Cluster,
) -> None:
    """Its log may be being cut off on a slow disk, or many others deleted, while a leader dies."""
    await cluster.create([1, 2], topic="aaa")
    await cluster.create([1, 2])
    await cluster.until(lambda: set(cluster.image(0, "aaa").isr) == {1, 2})
    await cluster.until_in_sync(1, 2)
    busy = cluster[TWO].partition(0, "aaa")
    await busy.changing.acquire()
    cluster[ONE].kill()
    await cluster.until_led(TWO)
    assert not busy.is_leading
    busy.changing.release()
    await cluster.until(lambda: busy.is_leading)


@plays(brokers=2)
async def test_what_is_being_deleted_does_not_keep_others_from_being_led(cluster: Cluster) -> None:
    await cluster.create([1, 2], topic="aaa")
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    busy = cluster[TWO].partition(0, "aaa")
    await busy.changing.acquire()
    await cluster[ONE].run(cluster[ONE].broker.topics.delete("aaa"))
    await cluster.until(lambda: not busy.is_online)
    cluster[ONE].kill()
    await cluster.until_led(TWO)
    busy.changing.release()
    await cluster.until(lambda: not cluster[TWO].disk.exists("aaa-0"))


@plays(brokers=3)
async def test_who_became_the_controller_without_hearing_of_it_acts_as_one(
    cluster: Cluster,
) -> None:
    """The store's answer was lost: nobody else can take the seat while this broker lives."""
    await cluster.create([2, 3], [3, 2])
    await cluster.until_in_sync(2, 3)
    await cluster.until_in_sync(2, 3, number=1)
    assert cluster.image().leader == TWO
    lost = []
    for node in (cluster[TWO], cluster[THREE]):
        transact = node.store.transact

        async def lose(transact: Any = transact, **write: Any) -> int:
            revision = await transact(**write)
            if keys.CONTROLLER in (write.get("puts") or {}):
                lost.append(revision)
                raise StoreUnavailable("the answer is lost")
            return int(revision)

        node.store.transact = lose  # type: ignore[method-assign]
    cluster[ONE].kill()
    await cluster.until(lambda: lost)
    heir = next(one for one in (TWO, THREE) if cluster[one].broker.image.controller == one)
    other = TWO if heir == THREE else THREE
    number = 0 if other == TWO else 1
    cluster[other].kill()
    await cluster.until_led(heir, number)


@plays(brokers=2)
async def test_nobody_waits_for_a_coordinator_whose_followers_are_gone(cluster: Cluster) -> None:
    """As at a stop: what it leads is not committed any more, and the stop would never end."""
    await cluster[ONE].run(cluster[ONE].broker.transactions.runtimes.ensure_topic())
    runtimes = cluster[ONE].broker.transactions.runtimes
    await cluster.until(
        lambda: (
            runtimes.leader_of("bank").id == ONE
            or cluster[TWO].broker.transactions.runtimes.leader_of("bank").id == TWO
        )
    )
    leader = cluster[runtimes.leader_of("bank").id]
    await cluster.until(lambda: leader.broker.transactions.runtimes.runtime_of("bank").is_active)
    cluster.cut(ONE, TWO)
    asking = asyncio.ensure_future(
        leader.ask(
            Api.INIT_PRODUCER_ID,
            4,
            transactional_id="bank",
            transaction_timeout=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
    )
    await cluster.pass_time(LAG_MS // 2)
    assert not asking.done()
    leader.in_process(leader.broker.stop_coordinators)
    await cluster.until(asking.done)
    assert asking.result().error_code == NotCoordinator.code
