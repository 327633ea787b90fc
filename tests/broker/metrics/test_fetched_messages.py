from respool.broker.metrics.fetched_messages import HEADERS_MAX, messages_in
from respool.model.ids import LeaderEpoch, Offset
from respool.records.batch import STAMP_BYTES, read_header, stamp
from respool.records.build import NewRecord, build_batch


def batch(base_offset: int, count: int) -> bytes:
    data = build_batch([NewRecord(value=b"v", timestamp_ms=1)] * count)
    head = stamp(read_header(data), base_offset=Offset(base_offset), leader_epoch=LeaderEpoch(0))
    return head + data[STAMP_BYTES:]


def test_messages_are_counted_from_the_fetch_offset_on() -> None:
    records = batch(0, 5) + batch(5, 3)
    assert messages_in(records, 0) == 8
    assert messages_in(records, 2) == 6
    assert messages_in(memoryview(records), 5) == 3
    assert messages_in(b"", 5) == 0


def test_a_batch_that_is_cut_off_does_not_count() -> None:
    records = batch(0, 5) + batch(5, 3)
    assert messages_in(records[:-1], 0) == 5
    assert messages_in(records[:70], 0) == 0


def test_beyond_the_first_batches_the_rest_is_taken_to_be_alike() -> None:
    records = b"".join(batch(2 * number, 2) for number in range(3 * HEADERS_MAX))
    assert messages_in(records, 0) == 6 * HEADERS_MAX


def test_nonsense_ends_the_count() -> None:
    assert messages_in(bytes(200), 0) == 0
