from replication.builders import FOUR, THREE, TWO
from respool.model.ids import BrokerId, Offset
from respool.replication.followers import ReadableReplica, closest_replica


def follower(
    broker: BrokerId, rack: str | None, *, log_start: int = 0, log_end: int = 10
) -> ReadableReplica:
    return ReadableReplica(
        broker=broker, rack=rack, log_start=Offset(log_start), log_end=Offset(log_end)
    )


def closest(
    rack: str | None, *followers: ReadableReplica, leader_rack: str | None = "a", offset: int = 5
) -> BrokerId | None:
    return closest_replica(
        client_rack=rack, leader_rack=leader_rack, offset=Offset(offset), followers=followers
    )


def test_a_replica_in_the_clients_rack_is_chosen() -> None:
    assert closest("c", follower(TWO, "b"), follower(THREE, "c")) == THREE


def test_the_leader_is_as_good_in_its_own_rack_and_where_no_rack_is_known() -> None:
    assert closest("a", follower(TWO, "a")) is None
    assert closest(None, follower(TWO, "b")) is None
    assert closest("", follower(TWO, "b")) is None
    assert closest("d", follower(TWO, "b"), follower(THREE, None)) is None


def test_only_a_replica_that_has_the_offset_is_chosen() -> None:
    late = follower(TWO, "b", log_start=6)
    short = follower(THREE, "b", log_end=4)
    assert closest("b", late, short) is None
    assert closest("b", late, short, offset=6) == TWO
    assert closest("b", late, short, offset=4) == THREE


def test_of_several_the_most_advanced_is_chosen_and_always_the_same() -> None:
    followers = [follower(THREE, "b"), follower(TWO, "b"), follower(FOUR, "b", log_end=9)]
    assert closest("b", *followers) == TWO
    assert closest("b", *reversed(followers)) == TWO
