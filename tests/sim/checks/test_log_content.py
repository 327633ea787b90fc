"""What is compared of logs whose bytes differ: the records that compaction left."""

from log.log_world import LogWorld, batch_of
from respool.model.ids import LeaderEpoch, Offset
from respool.sim.checks.log_content import batches_between, records_between


def filled(*values: bytes) -> LogWorld:
    world = LogWorld.new()
    for value in values:
        world.append(batch_of(world.now_ms, world.now_ms, value=value))
    return world


def test_records_are_known_by_offset_epoch_and_content() -> None:
    one, same, other = filled(b"a", b"b"), filled(b"a", b"b"), filled(b"a", b"x")
    found = records_between(one.log, Offset(0), one.log_end)
    assert [record.offset for record in found] == [0, 1, 2, 3]
    assert found == records_between(same.log, Offset(0), same.log_end)
    assert found[:2] == records_between(other.log, Offset(0), other.log_end)[:2]
    assert found[2:] != records_between(other.log, Offset(0), other.log_end)[2:]
    one.log.on_leader_epoch(LeaderEpoch(7))
    assert found == records_between(one.log, Offset(0), one.log_end)


def test_only_whole_batches_below_the_end_count() -> None:
    world = filled(b"a", b"b")
    assert len(records_between(world.log, Offset(0), Offset(3))) == 2
    assert len(batches_between(world.log, Offset(1), Offset(4))) == 2
    assert records_between(world.log, Offset(4), Offset(4)) == []
