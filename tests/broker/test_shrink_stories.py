"""Stories of topics that are shrunk in a cluster: nothing is lost, doubled or reordered, whoever dies and when."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from broker.cluster_world import ONE, THREE, TWO, Cluster, Node, plays
from respool.cluster.layout_requests import is_aligned, is_handed_over
from respool.log.partition_log import ReadSpec
from respool.model.cluster import TopicImage
from respool.model.ids import BrokerId
from respool.ports.peers import PeerUnreachable
from respool.records.batch import RecordBatch
from respool.records.record import read_records
from respool.records.validate import walk_batches
from respool.wire.api_table import Api
from respool.wire.layout_change import LAYOUT_CHANGE_VERSION

PRODUCER = 4_711
NO_BARRIER: dict[str, Any] = {"respool_shrink_barrier_ms": 0}
# Errors after which a client looks for the leader and tries again.
RETRIABLE = {6, 7, 19, 56}


def topic(cluster: Cluster) -> TopicImage:
    node = next(one for one in cluster.nodes.values() if one.is_up)
    return node.broker.image.topics["rides"]


def has_active(cluster: Cluster, count: int) -> bool:
    return topic(cluster).active_count == count


def has_families_alike(cluster: Cluster) -> bool:
    found = topic(cluster)
    return found.layout is not None and is_aligned(found, found.layout)


async def ask_for(cluster: Cluster, count: int, kind: str = "shrink") -> tuple[int, str]:
    """Ask any broker that runs for a change, until it is complete."""
    while True:
        node = next(one for one in cluster.nodes.values() if one.is_up)
        try:
            reply = await node.ask(
                Api.CREATE_PARTITIONS,
                LAYOUT_CHANGE_VERSION,
                topics=[{"name": "rides", "count": count, "assignments": None}],
                timeout=1_000,
                validate_only=False,
                layout_change=kind,
            )
        except PeerUnreachable:
            await asyncio.sleep(0.05)
            continue
        (result,) = reply.results
        # Replicas are being aligned, a leader is missing, others write: try again, as the command does.
        if result.error_code in (60, 5, 7):
            await asyncio.sleep(0.05)
            continue
        return int(result.error_code), str(result.error_message or "")


async def shrink(cluster: Cluster, to: int) -> None:
    code, why = await ask_for(cluster, to)
    # A reply may be lost with its broker.
    assert code == 0 or topic(cluster).active_count == to, why
    await cluster.until(lambda: topic(cluster).active_count == to)


class Writer:
    """An idempotent producer that retries as clients do, and keeps the order of each partition."""

    def __init__(self, cluster: Cluster, count: int) -> None:
        self.cluster = cluster
        self.count = count
        self.sequences = [0] * count

    async def send(self, number: int) -> None:
        sequence = self.sequences[number]
        value = b"%d:%d" % (number, sequence)
        for _ in range(2_000):
            node = self._leader(number)
            code = None
            if node is not None:
                try:
                    answer = await self.cluster.produce(
                        value,
                        at=node.id,
                        number=number,
                        timeout_ms=500,
                        producer_id=PRODUCER,
                        producer_epoch=0,
                        base_sequence=sequence,
                    )
                    code = answer.error_code
                except PeerUnreachable:
                    code = None
            if code == 0:
                self.sequences[number] += 1
                return
            assert code is None or code in RETRIABLE, (number, sequence, code, answer)
            await asyncio.sleep(0.02)
        raise AssertionError(f"partition {number} takes no records")

    async def send_all(self) -> None:
        for number in range(self.count):
            await self.send(number)

    def _leader(self, number: int) -> Node | None:
        for node in self.cluster.nodes.values():
            if node.is_up:
                images = node.broker.image.topics["rides"].partitions
                leader = images[number].leader if number < len(images) else images[0].leader
                if leader is not None and self.cluster[leader].is_up:
                    return self.cluster[leader]
        return None

    def check(self) -> None:
        """Every record is there once; per partition that was named, in order within each log."""
        found: dict[int, list[int]] = {number: [] for number in range(self.count)}
        for values in self._logs():
            by_name: dict[int, list[int]] = {}
            for value in values:
                number, sequence = map(int, value.split(b":"))
                by_name.setdefault(number, []).append(sequence)
            for number, sequences in by_name.items():
                assert sequences == sorted(sequences), (number, sequences)
                found[number] += sequences
        for number, sequences in found.items():
            assert sorted(sequences) == list(range(self.sequences[number])), (number, sequences)

    def _logs(self) -> list[list[bytes]]:
        return [
            committed(self.cluster.leader(number), number)
            for number in range(len(topic(self.cluster).partitions))
        ]


def committed(node: Node, number: int) -> list[bytes]:
    partition = node.partition(number)
    log = partition.log
    if log.log_start == partition.high_watermark:
        return []
    spec = ReadSpec(log.log_start, max_offset=partition.high_watermark, bytes_max=1 << 20)
    data = bytes(log.read(spec))
    return [
        record.value or b""
        for at, header in walk_batches(data)
        for record in read_records(RecordBatch(header, data[at : at + header.size]), limit=1 << 20)
    ]


def leaders(cluster: Cluster) -> list[BrokerId | None]:
    return [one.leader for one in topic(cluster).partitions]


@plays(brokers=3)
async def test_replicas_are_aligned_before_a_topic_is_shrunk(cluster: Cluster) -> None:
    await cluster.create((1, 2), (2, 3), (3, 1), (1, 3), **NO_BARRIER)
    writer = Writer(cluster, 4)
    await writer.send_all()
    await shrink(cluster, 2)
    found = topic(cluster)
    assert found.layout is not None
    assert is_aligned(found, found.layout)
    assert found.partitions[3].replicas == (2, 3)
    await writer.send_all()
    await writer.send_all()
    await cluster.until(lambda: is_handed_over(topic(cluster)))
    writer.check()
    assert len(committed(cluster.leader(1), 1)) == 5


@plays(brokers=3)
async def test_a_change_that_cannot_be_aligned_in_time_leaves_the_topic_as_it_was(
    cluster: Cluster,
) -> None:
    await cluster.create((1, 2), (2, 3), (3, 1), (1, 3), **NO_BARRIER)
    cluster[THREE].kill()
    await cluster.until(lambda: THREE not in cluster[ONE].broker.image.brokers)
    writer = Writer(cluster, 4)
    await writer.send_all()
    reply = await cluster[ONE].ask(
        Api.CREATE_PARTITIONS,
        LAYOUT_CHANGE_VERSION,
        topics=[{"name": "rides", "count": 2, "assignments": None}],
        timeout=1_000,
        validate_only=False,
        layout_change="shrink",
    )
    assert reply.results[0].error_code in (60, 5)
    assert topic(cluster).active_count == 4
    await writer.send_all()
    writer.check()
    await cluster[THREE].start()
    await shrink(cluster, 2)
    await writer.send_all()
    writer.check()


@plays(brokers=3)
async def test_a_family_moves_together_when_its_leader_dies(cluster: Cluster) -> None:
    await cluster.create(*([(1, 2, 3)] * 4), **NO_BARRIER, min_insync_replicas=2)
    writer = Writer(cluster, 4)
    await writer.send_all()
    await shrink(cluster, 2)
    await writer.send_all()
    for number in (ONE, TWO):
        await cluster.until(lambda: all(len(one.isr) == 3 for one in topic(cluster).partitions))
        cluster[number].kill()
        await writer.send_all()
        assert len({*leaders(cluster)[1::2]}) == 1
        await cluster[number].start()
        await writer.send_all()
    writer.check()


@plays(brokers=3)
async def test_a_family_is_led_by_one_broker_also_after_the_topic_grew_again(
    cluster: Cluster,
) -> None:
    await cluster.create((1, 2), (2, 3), (3, 1), (1, 3), **NO_BARRIER)
    writer = Writer(cluster, 4)
    await writer.send_all()
    await shrink(cluster, 2)
    await writer.send_all()
    assert (await ask_for(cluster, 4, ""))[0] == 0
    await writer.send_all()
    found = leaders(cluster)
    assert (found[0], found[1]) == (found[2], found[3])
    leader = found[1]
    assert leader is not None
    cluster[leader].kill()
    await writer.send_all()
    found = leaders(cluster)
    assert found[1] == found[3] != leader
    await shrink(cluster, 2)
    await writer.send_all()
    await cluster[leader].start()
    writer.check()


@plays(brokers=3)
async def test_replicas_of_a_family_move_with_its_first_partition(cluster: Cluster) -> None:
    await cluster.create(*([(1, 2)] * 4), **NO_BARRIER)
    writer = Writer(cluster, 4)
    await writer.send_all()
    await shrink(cluster, 2)

    async def move(number: int, *replicas: int) -> int:
        reply = await cluster[ONE].ask(
            Api.ALTER_PARTITION_REASSIGNMENTS,
            0,
            timeout=1_000,
            topics=[
                {
                    "name": "rides",
                    "partitions": [{"partition_index": number, "replicas": list(replicas)}],
                }
            ],
        )
        return int(reply.responses[0].partitions[0].error_code)

    assert await move(3, 2, 3) == 44
    assert await move(1, 2, 3) == 0
    await cluster.until(
        lambda: [one.replicas for one in topic(cluster).partitions[1::2]] == [(2, 3)] * 2
    )
    await writer.send_all()
    found = leaders(cluster)
    assert found[1] == found[3]
    writer.check()


@plays(brokers=3)
async def test_no_record_is_redirected_while_an_earlier_one_could_still_be_lost(
    cluster: Cluster,
) -> None:
    await cluster.create(*([(1, 2, 3)] * 4), **NO_BARRIER, min_insync_replicas=2)
    await cluster.until(lambda: all(len(one.isr) == 3 for one in topic(cluster).partitions))
    cluster.cut(ONE, TWO)
    cluster.cut(ONE, THREE)
    who: dict[str, Any] = {"producer_id": PRODUCER, "producer_epoch": 0}
    first = await cluster.produce(b"1", at=ONE, number=3, timeout_ms=100, base_sequence=0, **who)
    assert first.error_code == 7
    assert (await ask_for(cluster, 2))[0] == 0
    later = asyncio.ensure_future(cluster.produce(b"2", at=ONE, number=3, base_sequence=1, **who))
    await cluster.pass_time(200)
    # Else a leader without the first one could not take it any more: the heir would have the second.
    assert cluster[ONE].log(1).log_end == 0
    cluster.heal()
    assert (await later).error_code == 0
    assert committed(cluster[ONE], 3) == [b"1"]
    await cluster.until(lambda: committed(cluster[ONE], 1) == [b"2"])


@plays(brokers=3, replica_lag_max_ms=30_000)
async def test_nothing_is_sealed_while_a_replica_may_lead_that_has_more(cluster: Cluster) -> None:
    await cluster.create(
        (1, 2, 3), (2, 1, 3), (1, 2, 3), (1, 2, 3), **NO_BARRIER, min_insync_replicas=2
    )
    await cluster.until(lambda: all(len(one.isr) == 3 for one in topic(cluster).partitions))
    cluster.cut(ONE, TWO)
    cluster.cut(ONE, THREE)
    who: dict[str, Any] = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": 0}
    first = await cluster.produce(b"1", at=ONE, number=3, timeout_ms=100, **who)
    assert first.error_code == 7
    # Its family's leader lacks the record. The one that has it is in sync as ever, and cannot be asked.
    assert (await ask_for(cluster, 2))[0] == 0
    assert (leaders(cluster)[3], set(cluster.image(3).isr)) == (TWO, {1, 2, 3})
    await cluster.pass_time(100)
    cluster[TWO].kill()
    await cluster.until_led(ONE, 3)
    cluster.heal()
    again = await cluster.produce(b"1", at=ONE, number=3, **who)
    await cluster.until(lambda: is_handed_over(topic(cluster)))
    # Sealed at 0, it would have got the record afterwards; and the heir would have taken it again.
    handover = cluster.image(3).handover
    assert handover is not None
    assert (again.error_code, handover.sealed_end) == (0, 1)
    assert [committed(cluster[ONE], number) for number in (3, 1)] == [[b"1"], []]


async def shrink_while_dying(
    cluster: Cluster, point: int, *, changes: Sequence[tuple[str, int]], later_s: float
) -> None:
    """The leader of the heir dies after the `point`-th write of the topic's keys; producers write all the time."""
    await cluster.create(
        (1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2), **NO_BARRIER, min_insync_replicas=2
    )
    writer = Writer(cluster, 4)
    await writer.send_all()
    written = 0

    def count_and_kill(puts: Mapping[str, bytes]) -> None:
        nonlocal written
        if any(key.startswith(("/topics/", "/partitions/")) for key in puts):
            written += 1
            if written == point:
                cluster.loop.call_later(later_s, kill_leader)

    def kill_leader() -> None:
        leader = next(
            (one.leader for one in topic(cluster).partitions[1:2] if one.leader is not None), None
        )
        if leader is not None and cluster[leader].is_up:
            killed.append(leader)
            cluster[leader].kill()

    killed: list[BrokerId] = []
    cluster.store.screens.append(count_and_kill)
    for kind, count in changes:
        change = asyncio.ensure_future(ask_for(cluster, count, kind))
        while not change.done():
            await writer.send_all()
        await cluster.until(partial(has_active, cluster, count))
        await writer.send_all()
    await cluster.until(lambda: killed)
    for number in killed:
        await cluster[number].start()
    await writer.send_all()
    await cluster.until(lambda: is_handed_over(topic(cluster)))
    writer.check()
    await cluster.until(partial(has_families_alike, cluster))


SHRINK, GROW, SHRINK_AGAIN = ("shrink", 2), ("", 4), ("shrink", 1)


def killed_after(point: int, *changes: tuple[str, int], later_s: float = 0) -> Callable[[], None]:
    @plays(brokers=3)
    async def test(cluster: Cluster) -> None:
        await shrink_while_dying(cluster, point, changes=changes, later_s=later_s)

    return test


# The record with the family; the replicas; the record with the number; the leaders' notes.
test_the_leader_dies_after_write_1 = killed_after(1, SHRINK)
test_the_leader_dies_after_write_2 = killed_after(2, SHRINK)
test_the_leader_dies_after_write_3 = killed_after(3, SHRINK)
test_the_leader_dies_after_write_4 = killed_after(4, SHRINK)
test_the_leader_dies_some_time_after_write_1 = killed_after(1, SHRINK, later_s=0.005)
test_the_leader_dies_some_time_after_write_2 = killed_after(2, SHRINK, later_s=0.005)
test_the_leader_dies_some_time_after_write_3 = killed_after(3, SHRINK, later_s=0.005)
test_the_leader_dies_some_time_after_write_4 = killed_after(4, SHRINK, later_s=0.02)
test_the_leader_dies_after_write_5 = killed_after(5, SHRINK, GROW)
test_the_leader_dies_after_write_6 = killed_after(6, SHRINK, GROW)
test_the_leader_dies_after_write_7 = killed_after(7, SHRINK, GROW)
test_the_leader_dies_some_time_after_write_6 = killed_after(6, SHRINK, GROW, later_s=0.005)
test_the_leader_dies_some_time_after_write_7 = killed_after(7, SHRINK, GROW, later_s=0.02)
test_the_leader_dies_after_write_8 = killed_after(8, SHRINK, GROW, SHRINK_AGAIN)
test_the_leader_dies_after_write_9 = killed_after(9, SHRINK, GROW, SHRINK_AGAIN)
test_the_leader_dies_after_write_10 = killed_after(10, SHRINK, GROW, SHRINK_AGAIN)
test_the_leader_dies_after_write_11 = killed_after(11, SHRINK, GROW, SHRINK_AGAIN)
test_the_leader_dies_some_time_after_write_10 = killed_after(
    10, SHRINK, GROW, SHRINK_AGAIN, later_s=0.02
)
