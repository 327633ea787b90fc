"""How far copies are, from what brokers say of their replicas."""

import asyncio

from confluent_kafka import Producer

from cluster.cluster_world import ONE, THREE, TWO, image_of, view_of
from respool import testing
from respool.cli.copied_bytes import Copied, copied_bytes, progress, sizes_on
from respool.drivers.tcp_peers import TcpPeers
from respool.model.ids import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
MOVING = image_of(1, 2, 3, isr=[1], adding=(TWO, THREE))


def test_what_is_copied_is_told_for_all_who_copy_it_together() -> None:
    sizes = {ONE: {FIRST: 100, SECOND: 7}, TWO: {FIRST: 30}, THREE: {FIRST: 0, SECOND: 7}}
    assert progress(view_of(MOVING, image_of(1, 2)), sizes) == {FIRST: Copied(30, 200)}


def test_a_copy_that_is_larger_than_its_leader_is_no_more_than_whole() -> None:
    sizes = {ONE: {FIRST: 100}, TWO: {FIRST: 130}, THREE: {FIRST: 40}}
    assert progress(view_of(MOVING), sizes) == {FIRST: Copied(140, 200)}


def test_nothing_is_told_of_a_move_of_which_somebody_says_nothing() -> None:
    assert progress(view_of(MOVING), {ONE: {FIRST: 100}, TWO: {FIRST: 30}}) == {}
    assert progress(view_of(MOVING), {TWO: {FIRST: 30}, THREE: {FIRST: 30}}) == {}
    leaderless = image_of(1, 2, isr=[], leader=None, adding=(TWO,))
    assert progress(view_of(leaderless), {ONE: {FIRST: 1}, TWO: {FIRST: 1}}) == {}


def test_replicas_that_only_leave_have_nothing_to_copy() -> None:
    leaving = image_of(1, 2, removing=(TWO,))
    assert progress(view_of(leaving), {ONE: {FIRST: 100}, TWO: {FIRST: 100}}) == {}


def test_a_broker_says_how_large_its_replicas_are(respool_broker: testing.Broker) -> None:
    respool_broker.create_topic("t", partitions=2)
    producer = Producer({"bootstrap.servers": respool_broker.bootstrap})
    producer.produce("t", b"a ride", partition=0)
    assert producer.flush(30) == 0

    async def ask() -> None:
        peers = TcpPeers({ONE: (respool_broker.host, respool_broker.port)})
        wanted = [FIRST, SECOND, TopicPartition("t", 9), TopicPartition("unknown", 0)]
        sizes = await sizes_on(ONE, wanted, peers)
        assert sizes.keys() == {FIRST, SECOND}
        assert sizes[FIRST] > len(b"a ride")
        assert sizes[SECOND] == 0
        # Nobody listens there.
        assert await sizes_on(TWO, wanted, peers) == {}
        await peers.close()

    asyncio.run(ask())


def test_brokers_that_do_not_answer_are_done_without() -> None:
    """The view's brokers are nowhere."""
    assert asyncio.run(copied_bytes(view_of(MOVING, live=()))) == {}
    assert asyncio.run(copied_bytes(view_of(image_of(1, 2)))) == {}
