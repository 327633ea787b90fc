"""Refused batches of idempotent producers: the batches sent behind them get the same error.

```
 client        batch 5 ----> no leader here yet: NOT_LEADER
               batch 6 ----> there is a leader now, but 5 is missing: NOT_LEADER again, not OUT_OF_ORDER_SEQUENCE
               batch 5, batch 6 ----> written, in order
```
A client with several batches in flight retries all refused ones, in order. Some clients take OUT_OF_ORDER_SEQUENCE for
a gap of their own making: librdkafka bumps its epoch for all its partitions, and writes again what was written but not
yet acknowledged.

If the missing batch does not arrive within a while, the gap is reported as OUT_OF_ORDER_SEQUENCE.
"""

from typing import NamedTuple

from respool.model.errors import NotEnoughReplicas, NotLeader, RequestError, StorageFailed
from respool.records.batch import HEADER_BYTES, MAGIC, BatchHeader, read_header

# Clients wait at least 0.1 s before they retry, and longer each time.
KEPT_MS = 5_000
# The maximum number of producers remembered per partition.
PRODUCERS_MAX = 1_000
# Errors after which nothing was written and the client may retry.
_PASSING = (NotLeader, NotEnoughReplicas, StorageFailed)


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    error: RequestError
    at_ms: int


class RefusedBatches:
    """The refused batches of one partition. They matter only to this broker, and may be lost."""

    __slots__ = ("_first",)

    def __init__(self) -> None:
        # By producer: the first refused batch that has not been retried yet.
        self._first: dict[int, _Refused] = {}

    def __bool__(self) -> bool:
        return bool(self._first)

    def note(self, header: BatchHeader, error: RequestError, *, now_ms: int) -> None:
        """Remember that this batch was refused."""
        if header.producer_id < 0 or not isinstance(error, _PASSING):
            return
        known = self._first.pop(header.producer_id, None)
        sequence = header.base_sequence
        if known is not None and known.epoch == header.producer_epoch and _is_fresh(known, now_ms):
            sequence = min(sequence, known.sequence)
        while len(self._first) >= PRODUCERS_MAX:
            self._first.pop(next(iter(self._first)))
        self._first[header.producer_id] = _Refused(header.producer_epoch, sequence, error, now_ms)

    def note_bytes(self, records: bytes | None, error: RequestError, *, now_ms: int) -> None:
        """Remember a refused batch that has not been parsed."""
        if records is not None and len(records) >= HEADER_BYTES:
            header = read_header(records)
            if header.magic == MAGIC:
                self.note(header, error, now_ms=now_ms)

    def error_for_gap(self, header: BatchHeader, *, now_ms: int) -> RequestError | None:
        """Return the error for an out-of-order batch, if the reason is that a batch before it was refused."""
        known = self._first.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch or not _is_fresh(known, now_ms):
            return None
        if header.base_sequence <= known.sequence:
            return None
        return type(known.error)(
            f"sequence {known.sequence} of producer {header.producer_id} was refused and comes first: "
            f"{known.error.message}"
        )

    def on_appended(self, producer_id: int) -> None:
        self._first.pop(producer_id, None)


def _is_fresh(known: _Refused, now_ms: int) -> bool:
    # The wall clock may have been set, forward or back.
    return abs(now_ms - known.at_ms) <= KEPT_MS
