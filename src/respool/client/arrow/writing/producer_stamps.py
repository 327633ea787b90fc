"""Rewrites the producer epoch and sequence of an encoded batch whose queue has restarted since."""

from respool.client.kafka.partition_queue import ProducerBatch, SequenceStamp
from respool.columnar.encode_columns import ProducerStamp, restamp


def producer_stamp(stamp: SequenceStamp, *, is_transactional: bool) -> ProducerStamp | None:
    if stamp.producer_id < 0:
        return None
    return ProducerStamp(
        producer_id=stamp.producer_id,
        epoch=stamp.epoch,
        base_sequence=stamp.sequence,
        is_transactional=is_transactional,
    )


def stamped(batch: ProducerBatch, *, is_transactional: bool) -> memoryview:
    """The batch with its current stamp, ready to send."""
    data = batch.data
    assert isinstance(data, bytes | bytearray | memoryview)
    if batch.stamp != batch.written_stamp:
        stamp = producer_stamp(batch.stamp, is_transactional=is_transactional)
        assert stamp is not None
        if not isinstance(data, bytearray):
            data = bytearray(data)
        restamp(data, stamp)
        batch.data = data
        batch.written_stamp = batch.stamp
    return memoryview(data)
