"""What is said to batches behind one that was refused for now."""

import pytest

from respool.broker.partitions import refused_batches
from respool.broker.partitions.refused_batches import KEPT_MS, RefusedBatches
from respool.model.errors import (
    InvalidRecord,
    NotEnoughReplicas,
    NotLeader,
    RequestError,
    StorageFailed,
)
from respool.records.batch import BatchHeader, read_header
from respool.records.build import NewRecord, build_batch


def batch(sequence: int, *, producer: int = 7, epoch: int = 0) -> bytes:
    return build_batch(
        [NewRecord(value=b"v", timestamp_ms=1)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def header(sequence: int, *, producer: int = 7, epoch: int = 0) -> BatchHeader:
    return read_header(batch(sequence, producer=producer, epoch=epoch))


@pytest.mark.parametrize("error", [NotLeader("n"), NotEnoughReplicas("n"), StorageFailed("n")])
def test_what_comes_behind_is_refused_in_the_same_words(error: RequestError) -> None:
    refused = RefusedBatches()
    assert not refused
    for sequence in (5, 6):
        refused.note(header(sequence), error, now_ms=0)
    instead = refused.error_for_gap(header(7), now_ms=10)
    assert type(instead) is type(error)
    assert "sequence 5 of producer 7" in str(instead)
    # Not the missing one itself, nor others.
    for other in (header(5), header(7, producer=8), header(7, epoch=1)):
        assert refused.error_for_gap(other, now_ms=10) is None
    refused.on_appended(7)
    assert not refused
    assert refused.error_for_gap(header(7), now_ms=10) is None


def test_it_is_remembered_by_its_bytes_too_but_not_what_is_no_batch() -> None:
    refused = RefusedBatches()
    for records in (None, b"", b"\0" * 60, b"\0" * 100):
        refused.note_bytes(records, NotLeader("n"), now_ms=0)
    assert not refused
    refused.note_bytes(batch(5), NotLeader("n"), now_ms=0)
    assert refused.error_for_gap(header(6), now_ms=0) is not None


def test_only_what_may_pass_is_remembered_and_only_of_idempotent_producers() -> None:
    refused = RefusedBatches()
    refused.note(header(5), InvalidRecord("n"), now_ms=0)
    refused.note(header(-1, producer=-1, epoch=-1), NotLeader("n"), now_ms=0)
    assert not refused


def test_one_that_does_not_come_again_leaves_a_gap() -> None:
    refused = RefusedBatches()
    refused.note(header(5), NotLeader("n"), now_ms=0)
    assert refused.error_for_gap(header(6), now_ms=KEPT_MS) is not None
    assert refused.error_for_gap(header(6), now_ms=KEPT_MS + 1) is None
    assert refused.error_for_gap(header(6), now_ms=-KEPT_MS - 1) is None
    # What was refused long ago counts no more when another one is.
    refused.note(header(9), NotLeader("n"), now_ms=KEPT_MS + 1)
    assert refused.error_for_gap(header(8), now_ms=KEPT_MS + 1) is None


def test_there_is_an_end_to_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_batches, "PRODUCERS_MAX", 2)
    refused = RefusedBatches()
    for producer in (1, 2, 3):
        refused.note(header(5, producer=producer), NotLeader("n"), now_ms=0)
    kept = [refused.error_for_gap(header(6, producer=one), now_ms=0) for one in (1, 2, 3)]
    assert [one is not None for one in kept] == [False, True, True]
