"""Producer states <-> the bytes of a `.snapshot` file: Kafka's format, version 1, big-endian.

```
 0         2     6       10
 | version | crc | count | entries …          the crc (CRC-32C) covers everything after it

 an entry, 46 bytes
 0             8       10              14            22             26
 | producer id | epoch | last sequence | last offset | offset delta |
 26          34                  38                         46
 | timestamp | coordinator epoch | current txn first offset |
```
Kafka writes one entry per producer, for its last batch, and forgets the four batches before it: a client that retries
five batches after a broker restart gets OUT_OF_ORDER_SEQUENCE for the first. We keep all five, with one entry per
batch, oldest first. Kafka can read the file: it maps entries by producer id, so the last entry, the one it would have
written, wins. There is no second file to lose or to keep at the same offset, and files written by Kafka can be read.

The last entry's timestamp is that of the producer's last batch or marker, as in Kafka's own. It repeats the last batch
where that was a marker, or where the producer's time of activity differs: that time, which expiration uses, is then in
one more entry before it, which repeats the batch too.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from respool.log.producers.producer_state import (
    NO_OFFSET,
    NO_SEQUENCE,
    AppendedBatch,
    ProducerState,
)
from respool.model.ids import Offset

SNAPSHOT_VERSION = 1
ENTRY_BYTES = 46

_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_ENTRIES_AT = _HEAD.size + _COUNT.size
assert _ENTRY.size == ENTRY_BYTES


class SnapshotEntry(NamedTuple):
    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: Offset


def encode_entries(entries: Iterable[SnapshotEntry]) -> bytes:
    body = b"".join(_ENTRY.pack(*entry) for entry in entries)
    counted = _COUNT.pack(len(body) // ENTRY_BYTES) + body
    return _HEAD.pack(SNAPSHOT_VERSION, crc32c(counted)) + counted


def decode_entries(data: bytes) -> list[SnapshotEntry]:
    """Decode a snapshot file.

    Raises:
        ValueError: it is damaged or has another version; the message says which.
    """
    if len(data) < _ENTRIES_AT:
        raise ValueError(f"a snapshot of {len(data)} bytes, at least {_ENTRIES_AT} expected")
    version, crc = _HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise ValueError(f"snapshot version {version}, only {SNAPSHOT_VERSION} is known")
    computed = crc32c(memoryview(data)[_HEAD.size :])
    if crc != computed:
        raise ValueError(f"snapshot crc {crc:#010x}, computed {computed:#010x}")
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    size = _ENTRIES_AT + count * ENTRY_BYTES
    if count < 0 or len(data) != size:
        raise ValueError(f"a snapshot of {len(data)} bytes, {size} expected for {count} entries")
    body = memoryview(data)[_ENTRIES_AT:]
    return [SnapshotEntry._make(fields) for fields in _ENTRY.iter_unpack(body)]


def entries_of(state: ProducerState, *, active_at_ms: int) -> Iterable[SnapshotEntry]:
    """The producer's batches, oldest first; then entries for its times, if they are not the last batch's."""
    for batch in state.batches:
        yield _entry(state, batch)
    last = state.batches[-1] if state.batches else _NO_BATCH
    if active_at_ms != state.last_timestamp:
        yield _entry(state, last._replace(timestamp=active_at_ms))
    elif state.batches and last.timestamp == state.last_timestamp:
        return
    yield _entry(state, last._replace(timestamp=state.last_timestamp))


def state_of(entries: Sequence[SnapshotEntry]) -> ProducerState:
    """The state of one producer, from all of its entries."""
    first, last = entries[0], entries[-1]
    state = ProducerState(
        producer_id=first.producer_id,
        epoch=first.epoch,
        active_at_ms=last.timestamp,
        last_timestamp=last.timestamp,
        is_fresh=False,
    )
    # Of the entries after the last batch's.
    times: list[int] = []
    for entry in entries:
        if state.epoch != entry.epoch:
            state.begin_epoch(entry.epoch)
        if entry.last_offset >= 0 and entry.last_offset != state.last_offset:
            state.add(
                AppendedBatch(
                    last_sequence=entry.last_sequence,
                    last_offset=entry.last_offset,
                    offset_delta=entry.offset_delta,
                    timestamp=entry.timestamp,
                )
            )
            times.clear()
        else:
            times.append(entry.timestamp)
    if len(times) > 1:
        state.active_at_ms = times[0]
    state.coordinator_epoch = last.coordinator_epoch
    state.current_txn_first_offset = last.current_txn_first_offset
    return state


_NO_BATCH = AppendedBatch(
    last_sequence=NO_SEQUENCE, last_offset=NO_OFFSET, offset_delta=0, timestamp=-1
)


def _entry(state: ProducerState, batch: AppendedBatch) -> SnapshotEntry:
    return SnapshotEntry(
        producer_id=state.producer_id,
        epoch=state.epoch,
        last_sequence=batch.last_sequence,
        last_offset=batch.last_offset,
        offset_delta=batch.offset_delta,
        timestamp=batch.timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_first_offset=state.current_txn_first_offset,
    )
