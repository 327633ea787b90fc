"""Decodes fetched bytes of one partition, and queues them as pieces, in order and bounded in size."""

from contextlib import suppress

from respool.client.arrow.errors import BatchDamaged
from respool.client.arrow.reading.bounded_queue import BoundedQueue, Piece
from respool.client.arrow.reading.projection import Projection
from respool.client.kafka.reading.cursor import Cursor
from respool.columnar.clause_tables import ClauseTables
from respool.columnar.decode_columns import DECOMPRESSED_MAX, NO_CLAUSES, decode
from respool.columnar.errors import BatchTooLarge, BatchUnreadable
from respool.wire.fetch_reply import FetchedPart

# After decompressing this many bytes, a piece is queued before the rest of the fetch is decoded.
DECOMPRESSED_AT_ONCE = 32 * 1024 * 1024


class PieceMaker:
    """Decodes for one fetching thread."""

    def __init__(
        self,
        projection: Projection,
        queue: BoundedQueue,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        clauses: ClauseTables = NO_CLAUSES,
        decompressed_max: int = DECOMPRESSED_MAX,
    ) -> None:
        """Messages outside the time range are dropped, and those for which the clauses do not hold.

        `decompressed_max` limits the size of one decompressed batch.
        """
        self._columns = projection.decoded
        self._shape = projection.new_shaper().shape
        self._queue = queue
        self._since_ms = since_ms
        self._until_ms = until_ms
        self._clauses = clauses
        self._decompressed_max = decompressed_max

    def hand_on(self, cursor: Cursor, begin: int, part: FetchedPart) -> None:
        """Decode what was fetched from offset `begin`; the cursor has already advanced past it.

        Raises:
            BatchDamaged: a batch cannot be decoded. Everything before it was queued.
        """
        stop = cursor.position if cursor.end is None else min(cursor.position, cursor.end)
        limit = min(DECOMPRESSED_AT_ONCE, self._decompressed_max)
        while begin < stop:
            try:
                begin = self._hand_on_some(part, begin, stop, limit)
            except BatchTooLarge as error:
                if limit == self._decompressed_max:
                    raise self._damaged(cursor.topic, part, begin, error) from error
                # A single batch holds more than the usual limit.
                limit = self._decompressed_max
            except BatchUnreadable as error:
                raise self._damaged(cursor.topic, part, begin, error) from error

    def _hand_on_some(self, part: FetchedPart, begin: int, stop: int, limit: int) -> int:
        """Return the offset from which to continue."""
        # If some are left, decode the same bytes again: aborted transactions are tracked from their first byte.
        decoded = decode(
            part.records,
            begin=begin,
            end=stop,
            columns=self._columns,
            since_ms=self._since_ms,
            until_ms=self._until_ms,
            clauses=self._clauses,
            aborted=part.aborted,
            decompressed_max=limit,
        )
        # The last batch may extend beyond the end of the range; those messages are not returned.
        next_offset = min(decoded.next_offset, stop)
        assert next_offset > begin, (part.partition, begin, next_offset)
        shaped = [self._shape(batch, part.partition) for batch in decoded.batches]
        kept = [batch for batch in shaped if batch is not None]
        for batch in kept[:-1]:
            # Only the last piece advances the position past these offsets.
            self._queue.put(Piece(partition=part.partition, batch=batch, next_offset=begin))
        last = kept[-1] if kept else None
        self._queue.put(Piece(partition=part.partition, batch=last, next_offset=next_offset))
        return next_offset

    def _damaged(
        self, topic: str, part: FetchedPart, begin: int, error: BatchUnreadable
    ) -> BatchDamaged:
        """Queue everything before the damaged batch, and describe the damage."""
        # If the offset itself is damaged, nothing before it can be located; then that part is read again.
        with suppress(BatchUnreadable):
            while begin < error.offset:
                begin = self._hand_on_some(part, begin, error.offset, self._decompressed_max)
        return BatchDamaged(str(error), topic=topic, partition=part.partition, offset=begin)
