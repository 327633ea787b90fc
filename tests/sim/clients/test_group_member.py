"""A simulated member of a group finds what a coordinator must not do, from the group's view of all members."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from respool.model.ids import BrokerId, TopicPartition
from respool.ports.peers import PeerUnreachable
from respool.sim.checks.history import GroupView, History
from respool.sim.clients.group_member import UNKNOWN_MEMBER_ID, GroupMember
from respool.sim.clients.layout_clients import SteadyMember
from respool.sim.clients.sim_client import NOT_COORDINATOR, OK
from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_sources import NodeClock
from respool.wire.api_table import Api

RIDES, FARES = TopicPartition("rides", 0), TopicPartition("fares", 0)


class Told(GroupMember):
    """Hears what a test says instead of a coordinator."""

    generation = 1
    share: tuple[TopicPartition, ...] = (RIDES,)
    committed = 0
    commit_code = OK

    async def ask_coordinator(
        self, kind: Any, key: str, api: Api, version: int, **fields: Any
    ) -> Any:
        del kind, key, version, fields
        if api is Api.JOIN_GROUP:
            return SimpleNamespace(
                error_code=OK,
                member_id=self.name,
                generation_id=self.generation,
                leader="another",
                members=(),
            )
        if api is Api.SYNC_GROUP:
            names = ", ".join(f'["{one.topic}", {one.partition}]' for one in self.share)
            return SimpleNamespace(error_code=OK, assignment=f"[{names}]".encode())
        if api is Api.OFFSET_FETCH:
            one = SimpleNamespace(error_code=OK, committed_offset=self.committed)
            topics = [SimpleNamespace(partitions=[one])]
            return SimpleNamespace(groups=[SimpleNamespace(error_code=OK, topics=topics)])
        assert api is Api.OFFSET_COMMIT
        one = SimpleNamespace(error_code=self.commit_code)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[one])])


class Group:
    def __init__(self) -> None:
        self.loop = SimLoop(1)
        self.history = History()
        self.view = GroupView()

    def shared(self) -> dict[str, Any]:
        return {
            "group": "g",
            "view": self.view,
            "names": [RIDES, FARES],
            "is_committed": True,
            "loop": self.loop,
            "clock": NodeClock(self.loop),
            "rng": Random(1),
            "history": self.history,
            "brokers": {BrokerId(1): ("127.0.0.1", 1)},
        }

    def member(self, name: str) -> Told:
        return Told(name, **self.shared())

    @property
    def rules(self) -> list[str]:
        return [one.rule for one in self.history.violations]


@pytest.mark.parametrize(
    ("second", "generation", "rules"),
    [(FARES, 1, []), (RIDES, 1, ["B1"]), (RIDES, 2, [])],
    ids=["another partition", "the same partition", "the same, later"],
)
def test_a_partition_has_one_owner_in_a_generation(
    second: TopicPartition, generation: int, rules: list[str]
) -> None:
    group = Group()
    one, two = group.member("one"), group.member("two")
    two.share, two.generation = (second,), generation

    async def story() -> None:
        assert await one._join()
        assert await two._join()

    group.loop.run(story)
    assert group.rules == rules


def test_a_commit_that_is_accepted_after_a_newer_generation_began_is_found() -> None:
    group = Group()
    one, two = group.member("one"), group.member("two")
    two.generation = 2

    async def story() -> None:
        await one._join()
        assert await one._commit()
        assert group.rules == []
        await two._join()
        one.commit_code = UNKNOWN_MEMBER_ID
        assert not await one._commit()
        assert group.rules == []
        one.commit_code = OK
        await one._commit()

    group.loop.run(story)
    assert group.rules == ["B2"]


def test_a_committed_offset_that_goes_back_is_found() -> None:
    group = Group()
    one = group.member("one")

    async def story() -> None:
        await one._join()
        one._positions[RIDES] = 7
        assert await one._commit()
        one.committed = 7
        assert await one._committed(RIDES) == 7
        assert group.rules == []
        one.committed = 6
        await one._committed(RIDES)

    group.loop.run(story)
    assert group.rules == ["B3"]


def test_a_steady_member_leaves_until_its_coordinator_has_taken_it_out() -> None:
    """It stayed when a broker answered that it is not the coordinator: no later hold of readers ended."""
    group = Group()
    answers: list[int | None] = [NOT_COORDINATOR, None, OK]
    left: list[str] = []

    class Leaving(SteadyMember):
        async def ask_coordinator(
            self, kind: Any, key: str, api: Api, version: int, **fields: Any
        ) -> Any:
            del kind, key, version
            assert api is Api.LEAVE_GROUP
            left.append(fields["members"][0]["member_id"])
            answer = answers.pop(0)
            if answer is None:
                raise PeerUnreachable("it does not answer")
            return SimpleNamespace(error_code=answer)

    one = Leaving("one", order=None, **group.shared())
    one._member_id = "one-1"
    group.loop.run(one._leave)
    assert left == ["one-1"] * 3
    assert (one._member_id, answers, group.rules) == ("", [], [])
