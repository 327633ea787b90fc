"""A partition's copy: where it is, when it is tried again, and whether it is the source's."""

from typing import Any

import pytest

from respool.mirror.partition_copy import RETRY, CopyState, PartitionCopy, difference
from respool.model.ids import Offset
from respool.records.build import NewRecord, build_batch
from respool.records.mirrored_batches import fillers


def batch(base: int, value: bytes = b"v", *, epoch: int = 0, sequence: int = 0) -> bytes:
    return build_batch(
        [NewRecord(value=value, timestamp_ms=1)],
        base_offset=base,
        leader_epoch=epoch,
        producer_id=1,
        producer_epoch=0,
        base_sequence=sequence,
    )


def copying(**fields: Any) -> PartitionCopy:
    copy = PartitionCopy(place=("rides", 0), **fields)
    copy.begin(10, 3)
    return copy


def test_a_failure_makes_void_what_is_on_its_way_and_waits_longer_each_time() -> None:
    copy = copying()
    waits = []
    for _ in range(8):
        run = copy.run
        copy.seek_again("away", 100.0)
        assert copy.run == run + 1
        waits.append(copy.due_at - 100.0)
    assert waits == sorted(waits)
    assert waits[-1] == RETRY.longest
    assert (copy.state, copy.why) == (CopyState.SEEKING, "away")
    copy.begin(12, -1)
    copy.on_written(13)
    assert (copy.tries, copy.why, copy.target_end) == (0, "", 13)


def test_what_is_stopped_stays_so() -> None:
    copy = copying()
    copy.stop("diverged")
    copy.seek_again("away", 100.0)
    assert (copy.state, copy.why) == (CopyState.STOPPED, "diverged")


def test_a_fetch_begins_where_the_source_does_also_inside_a_batch() -> None:
    copy = copying(source_start=14)
    assert (copy.position, copy.fetch_offset) == (10, 14)
    copy.move_to(20, 3)
    assert (copy.position, copy.fetch_offset) == (20, 20)


@pytest.mark.parametrize(
    ("fields", "done", "done_with_start"),
    [
        ({"goal": None, "target_end": 20}, False, False),
        ({"goal": 20, "target_end": 19}, False, False),
        ({"goal": 20, "target_end": 20, "source_start": 5, "target_start": 4}, True, False),
        ({"goal": 20, "target_end": 20, "source_start": 5, "target_start": 5}, True, True),
    ],
)
def test_it_is_done_when_all_of_the_beginning_is_there(
    fields: dict[str, Any], done: bool, done_with_start: bool
) -> None:
    copy = PartitionCopy(place=("rides", 0), state=CopyState.COPYING, **fields)
    assert copy.is_done(with_log_start=False) is done
    assert copy.is_done(with_log_start=True) is done_with_start


def test_the_same_batch_under_another_leader_is_the_same() -> None:
    assert difference(batch(4), batch(4, epoch=9), 4, is_compacted=False) == ""


def test_another_batch_at_that_offset_is_told() -> None:
    told = difference(batch(4), batch(4, b"other"), 4, is_compacted=False)
    assert "the copy's last batch, from offset 4 to 4" in told
    assert difference(batch(4), batch(4, b"other", sequence=7), 4, is_compacted=True) != ""


def test_compaction_may_have_changed_what_is_in_a_batch() -> None:
    assert difference(batch(4), batch(4, b"other"), 4, is_compacted=True) == ""


def test_what_one_side_has_no_batch_of_cannot_be_compared() -> None:
    for theirs in (b"", batch(7)):
        assert difference(batch(4), theirs, 4, is_compacted=False) == ""
    assert difference(fillers(Offset(0), Offset(5)), batch(4), 4, is_compacted=False) == ""
