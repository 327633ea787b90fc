"""Elections and moves of replicas asked for by clients, on a metadata store that several brokers write to."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.catalog_world import ONE, THREE, TWO, Node, World, play
from respool.broker.metadata.partition_changes import TRIES_MAX, Answers
from respool.cluster import keys
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.partition_requests import ElectionKind, reassignments
from respool.model.cluster import PartitionImage
from respool.model.errors import (
    ElectionNotNeeded,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from respool.model.ids import BrokerId, LeaderEpoch, TopicPartition
from respool.ports.metadata_store import GuardFailed, StoreUnavailable

# More than fit into one write.
MANY = 120


def of(number: int, topic: str = "rides") -> TopicPartition:
    return TopicPartition(topic, number)


def kinds(answers: Answers) -> dict[int, type[Exception] | None]:
    return {one.partition: None if why is None else type(why) for one, why in answers.items()}


async def change(world: World, node: Node, number: int, **fields: Any) -> None:
    """Somebody else changes a partition; the node hears of it."""
    await change_unheard(world, node, number, **fields)
    await node.catalog.read_view()


async def change_unheard(world: World, node: Node, number: int, **fields: Any) -> None:
    """The same, and the node does not hear of it."""
    topic = node.topic()
    key = keys.partition_key(topic.id, number)
    changed = replace(topic.partitions[number], **fields)
    await world.store.transact(puts={key: keys.encode_partition(changed)})


async def rides(world: World, count: int = 1) -> Node:
    """A topic on brokers 1 and 2; 1 is preferred everywhere."""
    node, _, _ = await world.start(ONE, TWO, THREE)
    await node.create(assignment=dict.fromkeys(range(count), (ONE, TWO)), partition_count=-1)
    return node


def partitions(node: Node) -> tuple[PartitionImage, ...]:
    return node.topic().partitions


def test_the_preferred_leader_leads_again_in_a_new_epoch(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node = await rides(world, 2)
        await change(world, node, 0, leader=TWO)
        asked = [of(0), of(1), of(5)]
        answers = await node.partition_writes.elect(ElectionKind.PREFERRED, asked)
        assert kinds(answers) == {0: None, 1: ElectionNotNeeded, 5: UnknownTopicOrPartition}
        assert (partitions(node)[0].leader, partitions(node)[0].leader_epoch) == (ONE, 1)

    play(tmp_path, story)


def test_of_all_partitions_those_are_answered_that_need_an_election(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node = await rides(world, 3)
        await change(world, node, 1, leader=TWO)
        await change(world, node, 2, leader=TWO, isr=(TWO,))
        answers = await node.partition_writes.elect(ElectionKind.PREFERRED, None)
        assert kinds(answers) == {1: None, 2: PreferredLeaderNotAvailable}

    play(tmp_path, story)


def test_an_unclean_election_is_done_where_nobody_who_has_everything_runs(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node = await rides(world)
        await world.die(ONE)
        await change(world, node, 0, leader=None, isr=(), elr=(ONE,), last_leader=ONE)
        answers = await node.partition_writes.elect(ElectionKind.UNCLEAN, [of(0)])
        assert kinds(answers) == {0: None}
        assert (partitions(node)[0].leader, partitions(node)[0].isr) == (TWO, (TWO,))

    play(tmp_path, story)


def test_a_move_begins_can_be_listed_and_cancelled(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node = await rides(world)
        writes = node.partition_writes
        answers = await writes.reassign({of(0): (TWO, THREE)}, may_change_factor=True)
        assert kinds(answers) == {0: None}
        (image,) = partitions(node)
        assert (image.target, image.adding, image.removing) == ((TWO, THREE), (THREE,), (ONE,))
        assert list(reassignments(node.catalog.view())) == [of(0)]

        assert kinds(await writes.reassign({of(0): None}, may_change_factor=True)) == {0: None}
        assert set(partitions(node)[0].replicas) == {ONE, TWO}
        assert not reassignments(node.catalog.view())

    play(tmp_path, story)


def test_a_move_that_cannot_be_is_refused_and_others_are_not(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node = await rides(world, 5)
        answers = await node.partition_writes.reassign(
            {
                of(0): (TWO, THREE),
                of(1): (TWO, BrokerId(9)),
                of(2): None,
                of(3): (THREE,),
                of(9): (ONE,),
                # There it is already.
                of(4): (ONE, TWO),
            },
            may_change_factor=False,
        )
        assert kinds(answers) == {
            0: None,
            1: InvalidReplicaAssignment,
            2: NoReassignmentInProgress,
            3: InvalidReplicationFactor,
            9: UnknownTopicOrPartition,
            4: None,
        }

    play(tmp_path, story)


def test_what_was_granted_before_another_was_faster_is_not_called_needless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many partitions take several writes; one of those fails its guard, and is decided anew."""

    async def story(world: World) -> None:
        node = await rides(world, MANY)
        await node.partition_writes.reassign(
            dict.fromkeys(map(of, range(MANY)), (TWO, ONE)), may_change_factor=True
        )
        write = node.catalog.write
        count = 0

        async def overtake(one: GuardedWrite) -> int:
            nonlocal count
            count += 1
            if count == 2:
                raise GuardFailed("as the test wants it")
            return await write(one)

        monkeypatch.setattr(node.catalog, "write", overtake)
        asked = [of(number) for number in range(MANY)]
        answers = await node.partition_writes.elect(ElectionKind.PREFERRED, asked)
        assert count > 3
        assert list(answers.values()) == [None] * MANY
        assert {one.leader for one in partitions(node)} == {TWO}

    play(tmp_path, story)


def test_another_who_changes_the_partition_first_is_seen(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node = await rides(world)
        # Not heard of here.
        epoch = LeaderEpoch(partitions(node)[0].leader_epoch + 1)
        await change_unheard(world, node, 0, leader=TWO, leader_epoch=epoch)

        answers = await node.partition_writes.reassign(
            {of(0): (THREE, TWO)}, may_change_factor=True
        )
        assert kinds(answers) == {0: None}
        assert partitions(node)[0].leader == TWO

    play(tmp_path, story)


def test_that_nothing_is_to_be_done_must_be_true_of_the_store(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node = await rides(world, 3)
        # None of it is heard of here.
        await change_unheard(world, node, 0, leader=TWO)
        elect = node.partition_writes.elect
        assert kinds(await elect(ElectionKind.PREFERRED, [of(0)])) == {0: None}
        assert partitions(node)[0].leader == ONE
        await change_unheard(world, node, 1, leader=TWO)
        assert kinds(await elect(ElectionKind.PREFERRED, None)) == {1: None}

        await change_unheard(world, node, 2, replicas=(TWO, ONE))
        answers = await node.partition_writes.reassign({of(2): (ONE, TWO)}, may_change_factor=True)
        assert kinds(answers) == {2: None}
        assert partitions(node)[2].replicas == (ONE, TWO)

    play(tmp_path, story)


def test_that_one_is_refused_must_be_true_of_the_store(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node, other, _ = await world.start(ONE, TWO, THREE)
        await other.create(assignment={0: (ONE, TWO)}, partition_count=-1)
        # Neither the topic is heard of here, nor that it is on its way.
        reassign = node.partition_writes.reassign
        answers = await reassign({of(0): (TWO, THREE)}, may_change_factor=True)
        assert kinds(answers) == {0: None}
        await other.catalog.read_view()
        cancelled = await other.partition_writes.reassign({of(0): None}, may_change_factor=True)
        assert kinds(cancelled) == {0: None}
        await other.partition_writes.reassign({of(0): (ONE, THREE)}, may_change_factor=True)
        assert kinds(await reassign({of(0): None}, may_change_factor=True)) == {0: None}
        # What is so is told.
        assert kinds(await reassign({of(0): None}, may_change_factor=True)) == {
            0: NoReassignmentInProgress
        }

    play(tmp_path, story)


def test_what_is_refused_by_an_old_view_only_is_not_refused_while_the_store_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        node = await rides(world)

        async def fail() -> None:
            raise StoreUnavailable("gone")

        monkeypatch.setattr(node.catalog, "read_view", fail)
        answers = await node.partition_writes.reassign({of(0): None}, may_change_factor=True)
        assert kinds(answers) == {0: RequestTimedOut}

    play(tmp_path, story)


@pytest.mark.parametrize("error", [GuardFailed("always"), StoreUnavailable("gone")])
def test_what_is_not_granted_in_the_end_timed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def story(world: World) -> None:
        node = await rides(world)
        await change(world, node, 0, leader=TWO)
        tries: list[GuardedWrite] = []

        async def refuse(write: GuardedWrite) -> int:
            tries.append(write)
            raise error

        monkeypatch.setattr(node.catalog, "write", refuse)
        elect = node.partition_writes.elect
        assert kinds(await elect(ElectionKind.PREFERRED, [of(0)])) == {0: RequestTimedOut}
        assert len(tries) in (1, TRIES_MAX)
        with pytest.raises(RequestTimedOut):
            await elect(ElectionKind.PREFERRED, None)

    play(tmp_path, story)
