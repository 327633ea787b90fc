"""Transaction markers: a control batch of one record, 78 bytes, in Kafka's format.

```
 key     | version 2 | kind 2              kind: 0 abort, 1 commit
 value   | version 2 | coordinator epoch 4
```
Producer id and epoch are in the batch header. Consumers with read_committed evaluate markers; none returns them to an
application. Other kinds of control records are ignored here.
"""

from dataclasses import dataclass
from struct import Struct

from respool.model.errors import RequestError
from respool.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset
from respool.model.topic_config import MIB
from respool.records.batch import (
    CONTROL_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    RecordBatch,
    seal,
)
from respool.records.record import read_records

MARKER_BYTES = 78
ABORT, COMMIT = 0, 1
_KINDS = (ABORT, COMMIT)
_VERSION = 0
_NO_SEQUENCE = -1

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
# The whole record, 16 bytes after its length: attributes, two deltas, key and value with their lengths, no headers.
_RECORD = Struct(">BBBBBhhBhiB")
_ZIGZAG_16, _ZIGZAG_4, _ZIGZAG_6 = 32, 8, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionMarker:
    producer_id: int
    # With transactions V2, one more than the epoch of its data.
    producer_epoch: int
    # Epoch of the coordinator that decided: an older coordinator must not end what a newer one has begun.
    coordinator_epoch: int
    is_commit: bool


def build_marker(marker: EndTransactionMarker, *, timestamp_ms: int) -> RecordBatch:
    """Build the batch to append."""
    kind = COMMIT if marker.is_commit else ABORT
    record = _RECORD.pack(
        _ZIGZAG_16, 0, 0, 0,
        _ZIGZAG_4, _VERSION, kind,
        _ZIGZAG_6, _VERSION, marker.coordinator_epoch,
        0,
    )  # fmt: skip
    header = BatchHeader(
        base_offset=Offset(0),
        length=0,
        leader_epoch=LeaderEpoch(NO_LEADER_EPOCH),
        magic=MAGIC,
        crc=0,
        attributes=CONTROL_BIT | TRANSACTIONAL_BIT,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        base_sequence=_NO_SEQUENCE,
        record_count=1,
    )
    return seal(header, record)


def read_marker(batch: RecordBatch) -> EndTransactionMarker | None:
    """Decode a control batch; None if it is not a transaction marker, or compaction left only its header."""
    header = batch.header
    if not header.is_control or not header.record_count:
        return None
    try:
        record = read_records(batch, limit=MIB)[0]
    except RequestError:
        return None
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size or len(value) < _VALUE.size:
        return None
    kind = _KEY.unpack_from(key)[1]
    if kind not in _KINDS:
        return None
    return EndTransactionMarker(
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        coordinator_epoch=_VALUE.unpack_from(value)[1],
        is_commit=kind == COMMIT,
    )
