"""The index of ids beside a list, with hashes that collide and hashes that are not spread evenly."""

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from respool.model.ids import Offset
from respool.sim.disk.simulated_disk import SimDisk
from respool.timing.id_index import IdAt, IdIndex, hash_id
from respool.timing.wheel_files import WheelFiles

FOLDER = "reminders-0/pending"
hashes = st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1), st.just(2**64 - 1))
actions = st.one_of(
    st.tuples(st.just("add"), st.lists(hashes, min_size=1, max_size=80)),
    st.tuples(st.just("merge"), st.integers(1, 50)),
    st.tuples(st.just("restart"), st.none()),
)


def small_index(files: WheelFiles) -> IdIndex:
    index = IdIndex(files)
    index.memory_max = 32
    return index


@given(st.lists(actions, max_size=25), st.lists(hashes, max_size=5))
@settings(max_examples=100, deadline=None)
def test_index_is_a_list(steps: list[tuple[str, Any]], asked: list[int]) -> None:
    disk = SimDisk(Random(1))
    files = WheelFiles(disk, FOLDER)
    index = small_index(files)
    added: list[tuple[int, IdAt]] = []
    for action, value in steps:
        if action == "add":
            for hashed in value:
                at = IdAt(Offset(len(added)), Offset(len(added) + hashed % 3))
                added.append((hashed, at))
                index.add(hashed, at)
        elif action == "merge":
            index.merge_some(value, log_start=Offset(0))
        else:
            files.write_checkpoint({"ids": index.state()})
            disk.kill()
            disk = disk.reopen()
            files = WheelFiles(disk, FOLDER)
            index = small_index(files)
            document = files.load_checkpoint()
            assert document is not None
            index.restore(document["ids"])
    for hashed in [*asked, *(one for one, _ in added)]:
        first = Offset(len(added) // 3)
        expected = [at for one, at in added if one == hashed and at.first > first]
        assert index.newer(hashed, first) == sorted(expected, reverse=True)


def test_merging_leaves_few_files_and_forgets_what_was_deleted() -> None:
    disk = SimDisk(Random(1))
    files = WheelFiles(disk, FOLDER)
    index = small_index(files)
    hashed = [hash_id(b"id-%d" % number) for number in range(5_000)]
    for number, one in enumerate(hashed):
        index.add(one, IdAt(Offset(number), Offset(number)))
        while index.merge_some(1_000, log_start=Offset(2_500)):
            pass
    state = index.state()
    assert len(state["sorted"]) < 10
    assert index.all(hashed[100]) == []
    assert index.all(hashed[4_000]) == [IdAt(Offset(4_000), Offset(4_000))]
