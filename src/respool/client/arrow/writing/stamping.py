"""A batch whose lane began anew since it was encoded gets its new producer epoch and sequence written in."""

from respool.client.kafka.partition_queue import Parcel, Stamp
from respool.columnar.encode_columns import ProducerStamp, restamp


def producer_stamp(stamp: Stamp, *, is_transactional: bool) -> ProducerStamp | None:
    if stamp.producer_id < 0:
        return None
    return ProducerStamp(
        producer_id=stamp.producer_id,
        epoch=stamp.epoch,
        base_sequence=stamp.sequence,
        is_transactional=is_transactional,
    )


def stamped(parcel: Parcel, *, is_transactional: bool) -> memoryview:
    """The batch as it is to be sent now."""
    data = parcel.data
    assert isinstance(data, bytes | bytearray | memoryview)
    if parcel.stamp != parcel.written_stamp:
        stamp = producer_stamp(parcel.stamp, is_transactional=is_transactional)
        assert stamp is not None
        if not isinstance(data, bytearray):
            data = bytearray(data)
        restamp(data, stamp)
        parcel.data = data
        parcel.written_stamp = parcel.stamp
    return memoryview(data)
