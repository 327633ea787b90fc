"""Batches of a read, and which of their records a share group may have."""

from typing import Any

from respool.broker.share.stored_batches import deliverable, stored_batches
from respool.log.partition_log import AbortedTransaction, TailBatches
from respool.model.ids import LeaderEpoch, Offset, ProducerId
from respool.records.batch import STAMP_BYTES, read_header, seal, stamp
from respool.records.build import NewRecord, append_record, build_batch
from respool.records.markers import EndTransactionMarker, build_marker


def batch(base_offset: int, count: int = 2, **fields: Any) -> bytes:
    records = [NewRecord(value=b"v", timestamp_ms=1)] * count
    return build_batch(records, base_offset=base_offset, **fields)


def test_batches_are_the_same_from_memory_and_from_the_disk() -> None:
    one, two = batch(0), batch(2, 3)
    buffers: list[bytes | memoryview] = [
        one[:STAMP_BYTES],
        memoryview(one)[STAMP_BYTES:],
        two[:STAMP_BYTES],
        memoryview(two)[STAMP_BYTES:],
    ]
    apart = stored_batches(TailBatches(buffers, len(one) + len(two), Offset(5)))
    joined = stored_batches(TailBatches([one + two], len(one) + len(two), Offset(5)))
    # The last batch is cut off.
    read = stored_batches(one + two + batch(5)[:70])
    for found in (apart, joined, read):
        assert [found[0][:5], found[1][:5]] == [(0, 1, 0, -1, 2), (2, 4, 0, -1, 3)]
        assert [b"".join(each.buffers) for each in found] == [one, two]
        assert deliverable(found, Offset(1)).spans == [(0, 1, 0), (2, 4, 1)]
    assert stored_batches(b"") == []
    assert stored_batches(TailBatches([], 0, Offset(0))) == []


def test_markers_and_aborted_records_are_not_delivered() -> None:
    marker = build_marker(
        EndTransactionMarker(
            producer_id=ProducerId(7), producer_epoch=0, is_commit=False, coordinator_epoch=0
        ),
        timestamp_ms=1,
    )
    data = bytes(marker.data)
    end = stamp(read_header(data), base_offset=Offset(4), leader_epoch=LeaderEpoch(0))
    mine = batch(0, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    others = batch(2, producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True)
    found = stored_batches(mine + others + end + data[STAMP_BYTES:])
    assert deliverable(found, Offset(0)).spans == [(0, 1, 0), (2, 3, 1)]
    aborted = AbortedTransaction(7, Offset(0), Offset(4), Offset(0))
    committed = deliverable(found, Offset(0), aborted=[aborted])
    assert committed.spans == [(2, 3, 1)]
    assert committed.end == 5


def test_a_compacted_batch_is_opened_to_see_what_is_left() -> None:
    body = bytearray()
    for delta in (0, 3, 4):
        append_record(
            body, NewRecord(value=b"v", timestamp_ms=1), offset_delta=delta, base_timestamp=1
        )
    header = read_header(batch(10, 3))._replace(last_offset_delta=6)
    found = stored_batches(seal(header, body).data)
    assert deliverable(found, Offset(10)).spans == [(10, 10, 0), (13, 14, 0)]
    assert deliverable(found, Offset(10)).end == 17
