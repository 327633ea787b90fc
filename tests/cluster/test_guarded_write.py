"""Several decisions in one write: as few writes as the store's limit allows, and nothing left out."""

from respool.cluster.guarded_write import MERGED_BYTES_MAX, OPERATIONS_MAX, GuardedWrite, merged
from respool.ports.metadata_store import Guard

CONTROLLER = Guard(key="/controller", revision=7)


def write(number: int, *, puts: int = 2) -> GuardedWrite:
    return GuardedWrite(
        guards=(CONTROLLER, Guard(key=f"/topics/t{number}", revision=0)),
        puts={f"/t{number}/{one}": b"v" for one in range(puts)},
        why=f"topic {number}",
    )


def test_writes_are_merged_up_to_the_limit_and_share_their_guard() -> None:
    writes = {f"t{number}": write(number) for number in range(100)}
    found = merged(writes, operations_max=OPERATIONS_MAX)
    # Three operations for each topic, and the controller's guard once.
    assert [len(names) for names, _ in found] == [33, 33, 33, 1]
    assert [name for names, _ in found for name in names] == list(writes)
    for names, one in found:
        assert one.operations <= OPERATIONS_MAX
        assert one.guards.count(CONTROLLER) == 1
        assert one.puts == {key: b"v" for name in names for key in writes[name].puts}


def test_without_a_limit_there_is_one_write() -> None:
    writes = {number: write(number) for number in range(1_000)}
    ((names, one),) = merged(writes, operations_max=None)
    assert names == list(writes)
    assert one.operations == 3_001


def test_a_large_write_stays_alone() -> None:
    large = write(1, puts=OPERATIONS_MAX - 2)
    found = merged({"a": write(0), "b": large, "c": write(2)}, operations_max=OPERATIONS_MAX)
    assert [names for names, _ in found] == [["a"], ["b"], ["c"]]
    assert found[1][1] is large


def test_writes_with_large_values_are_not_merged_to_more_than_etcd_takes() -> None:
    writes = {
        name: GuardedWrite(guards=(CONTROLLER,), puts={name: bytes(size)}, why=name)
        for name, size in {
            "a": 10,
            "b": MERGED_BYTES_MAX - 10,
            "c": 1,
            "d": MERGED_BYTES_MAX * 4,
            "e": 2,
        }.items()
    }
    found = merged(writes, operations_max=OPERATIONS_MAX)
    assert [names for names, _ in found] == [["a", "b"], ["c"], ["d"], ["e"]]


def test_nothing_is_merged_from_nothing() -> None:
    assert merged({}, operations_max=OPERATIONS_MAX) == []
