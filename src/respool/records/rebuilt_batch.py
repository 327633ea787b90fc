"""A stored batch with only those of its records that a reader is shown, and the marker for what it is not shown.

A rebuilt batch keeps base offset, leader epoch, producer and sequence of the stored one, and its records their offsets.
It ends with the last shown record: a marker may follow within the offsets of the stored batch.

A reader must move on from offsets that it is shown nothing of. The only thing that moves the fetch position of all
clients, and the committed offset of most, is a transaction marker of no producer. Clients that get a batch without
records instead take it for a truncated reply (librdkafka, from the eleventh one on).
"""

from respool.model.ids import LeaderEpoch, Offset
from respool.ports.record_scan import Buffer, MatchSummary
from respool.records.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    BatchHeader,
    Codec,
    RecordBatch,
    seal,
)
from respool.records.compress import codec_of, compress
from respool.records.markers import EndTransactionMarker, build_marker

_NO_PRODUCER = -1


def rebuild_batch(stored: BatchHeader, shown: Buffer, summary: MatchSummary) -> RecordBatch:
    """Return the batch with the records `shown`, of which `summary` tells the number and the last one.

    It is compressed only if it would otherwise be larger than the stored one.
    """
    assert 0 < summary.matched <= stored.record_count
    header = stored._replace(
        attributes=stored.attributes & ~CODEC_MASK,
        last_offset_delta=summary.offset_delta_last,
        max_timestamp=stored.max_timestamp_of(summary.timestamp_delta_max),
        record_count=summary.matched,
    )
    codec = codec_of(stored.codec_bits)
    if codec is Codec.NONE or HEADER_BYTES + len(shown) <= stored.size:
        return seal(header, bytes(shown))
    return seal(header._replace(attributes=stored.attributes), compress(codec, shown))


def build_skip_marker(
    *, last_offset: Offset, leader_epoch: LeaderEpoch, timestamp_ms: int
) -> bytes:
    """Return a batch that moves its reader past `last_offset`. It is made for a reply, and never stored.

    It has no producer id: with one, it would end that producer's transaction in the client.
    """
    marker = EndTransactionMarker(
        producer_id=_NO_PRODUCER, producer_epoch=_NO_PRODUCER, coordinator_epoch=0, is_commit=True
    )
    batch = build_marker(marker, timestamp_ms=timestamp_ms)
    # Outside of the checksum.
    header = batch.header._replace(base_offset=last_offset, leader_epoch=leader_epoch)
    return seal(header, memoryview(batch.data)[HEADER_BYTES:]).data  # type: ignore[return-value]
