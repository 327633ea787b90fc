"""A reader that says where it is reads from the replica there, and goes back to the leader when that cannot serve."""

from collections.abc import Iterator

import pytest

from respool.client.arrow.reading.read import read_table
from respool.client.kafka.reading.watched_topic import (
    AVOIDED_FOR_S,
    NAMED_FOR_S,
    PreferredReplicas,
)
from respool.wire.codec import Request
from support.scripted_broker import HANG_UP, TOPIC, ScriptedBroker

FOLLOWER = 2
OUT_OF_RANGE, NOT_AVAILABLE = 1, 78
ROWS = [b"one", b"two", b"three"]


def test_a_named_replica_is_asked_until_it_fails_or_its_time_is_over() -> None:
    replicas = PreferredReplicas()
    assert replicas.of(0, 10.0) is None
    replicas.on_named(0, FOLLOWER, 10.0)
    assert replicas.of(0, 10.0 + NAMED_FOR_S / 2) == FOLLOWER
    assert replicas.of(1, 10.0) is None
    assert replicas.of(0, 10.0 + NAMED_FOR_S) is None
    assert replicas.leave(0, 20.0)
    assert not replicas.leave(0, 20.0)
    assert replicas.of(0, 20.0) is None


def test_a_leader_is_not_told_of_the_rack_for_a_while_after_its_replica_failed() -> None:
    replicas = PreferredReplicas()
    replicas.leave(0, 10.0)
    assert replicas.may_be_named(0, 10.0)
    replicas.on_named(0, FOLLOWER, 10.0)
    replicas.leave(0, 20.0)
    assert not replicas.may_be_named(0, 20.0 + AVOIDED_FOR_S / 2)
    assert replicas.may_be_named(1, 20.0)
    assert replicas.may_be_named(0, 20.0 + AVOIDED_FOR_S)


@pytest.fixture
def leader() -> Iterator[ScriptedBroker]:
    """Broker 1 of two that have the same log; it leads, and names the other one for readers of its rack."""
    with ScriptedBroker() as first, ScriptedBroker() as second:
        first.others = [second]
        second.topic_id = first.topic_id
        first.append(*ROWS[:1])
        first.append(*ROWS[1:])
        second.batches = list(first.batches)
        yield first


def names_the_follower(leader: ScriptedBroker, racks: list[str]) -> None:
    """Whenever it is told of a rack, as leaders do."""

    def answer(request: Request) -> bytes:
        racks.append(request.body.rack_id)
        leader.script.append(answer)
        if not request.body.rack_id:
            return leader.good(request)
        return leader.refuse(0, preferred_read_replica=FOLLOWER)(request)

    leader.script.append(answer)


def read(leader: ScriptedBroker, rack: str) -> list[bytes]:
    table = read_table(TOPIC, bootstrap=leader.address, rack=rack, retry_ms=10_000)
    found = table.column("value").to_pylist()
    assert isinstance(found, list)
    return found


def test_a_reader_with_a_rack_reads_from_the_replica_that_the_leader_names(
    leader: ScriptedBroker,
) -> None:
    (follower,) = leader.others
    racks: list[str] = []
    names_the_follower(leader, racks)
    assert read(leader, "west") == ROWS
    assert racks == ["west"]
    # The leader named the follower once; everything read came from there.
    assert len(leader.fetches) == 1
    assert next(offset for _, offset, _ in follower.fetches) == 0


@pytest.mark.parametrize("trouble", ["behind", "refuses", "away"])
def test_a_replica_that_cannot_serve_is_left_for_the_leader_without_a_gap(
    leader: ScriptedBroker, trouble: str
) -> None:
    (follower,) = leader.others
    racks: list[str] = []
    names_the_follower(leader, racks)
    answers = {
        "behind": follower.refuse(OUT_OF_RANGE),
        "refuses": follower.refuse(NOT_AVAILABLE),
        "away": lambda _: HANG_UP,
    }
    follower.script.append(answers[trouble])
    assert read(leader, "west") == ROWS
    assert len(follower.fetches) == 1
    # Told of the rack again, it would name the same replica, over and over.
    assert racks[0] == "west"
    assert set(racks[1:]) == {""}
