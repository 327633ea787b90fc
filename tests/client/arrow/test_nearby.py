"""A reader that says where it is reads from the replica there, and goes back to the leader when that cannot serve."""

from collections.abc import Iterator

import pytest

from respool.client.arrow.nearby import NAMED_FOR_S, Nearby
from respool.client.arrow.read import read_table
from respool.wire.codec import Request
from support.scripted_broker import HANG_UP, TOPIC, ScriptedBroker

FOLLOWER = 2
OUT_OF_RANGE, NOT_AVAILABLE = 1, 78
ROWS = [b"one", b"two", b"three"]


def test_a_named_replica_is_asked_until_it_fails_or_its_time_is_over() -> None:
    nearby = Nearby()
    assert nearby.of(0, 10.0) is None
    nearby.on_named(0, FOLLOWER, 10.0)
    assert nearby.of(0, 10.0 + NAMED_FOR_S / 2) == FOLLOWER
    assert nearby.of(1, 10.0) is None
    assert nearby.of(0, 10.0 + NAMED_FOR_S) is None
    assert nearby.forget(0)
    assert not nearby.forget(0)
    assert nearby.of(0, 10.0) is None


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
    def answer(request: Request) -> bytes:
        racks.append(request.body.rack_id)
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
    # Asked once who is nearer; all that was read came from there.
    assert len(leader.fetches) == 1
    assert next(offset for _, offset, _ in follower.fetches) == 0


@pytest.mark.parametrize("trouble", ["behind", "refuses", "away"])
def test_a_replica_that_cannot_serve_is_left_for_the_leader_without_a_gap(
    leader: ScriptedBroker, trouble: str
) -> None:
    (follower,) = leader.others
    names_the_follower(leader, [])
    answers = {
        "behind": follower.refuse(OUT_OF_RANGE),
        "refuses": follower.refuse(NOT_AVAILABLE),
        "away": lambda _: HANG_UP,
    }
    follower.script.append(answers[trouble])
    assert read(leader, "west") == ROWS
    assert len(follower.fetches) == 1
    assert len(leader.fetches) > 1
