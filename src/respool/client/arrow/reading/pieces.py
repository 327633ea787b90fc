"""Fetched bytes -> pieces: decodes what came of one partition, and hands it on in order, a bounded part at a time."""

from contextlib import suppress

from respool.client.arrow.errors import BatchDamaged
from respool.client.arrow.reading.bounded_queue import BoundedQueue, Piece
from respool.client.arrow.reading.cursor import Cursor
from respool.client.arrow.reading.projection import Projection
from respool.columnar.decode_columns import DECOMPRESSED_MAX, decode
from respool.columnar.errors import BatchTooLarge, BatchUnreadable
from respool.wire.fetch_reply import FetchedPart

# When so much has been decompressed it is handed on, and the rest of what was fetched comes after it.
DECOMPRESSED_AT_ONCE = 32 * 1024 * 1024


class PieceMaker:
    """For one thread."""

    def __init__(
        self,
        projection: Projection,
        outlet: BoundedQueue,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        decompressed_max: int = DECOMPRESSED_MAX,
    ) -> None:
        """Messages of other times are left out. `decompressed_max` is the most that one compressed batch may hold."""
        self._columns = projection.decoded
        self._shape = projection.new_shaper().shape
        self._outlet = outlet
        self._since_ms = since_ms
        self._until_ms = until_ms
        self._decompressed_max = decompressed_max

    def hand_on(self, cursor: Cursor, begin: int, part: FetchedPart) -> None:
        """Decode what was fetched from `begin` on; the cursor has moved behind it already.

        Raises:
            BatchDamaged: a batch cannot be opened. Everything before it was handed on.
        """
        stop = cursor.position if cursor.end is None else min(cursor.position, cursor.end)
        limit = min(DECOMPRESSED_AT_ONCE, self._decompressed_max)
        while begin < stop:
            try:
                begin = self._hand_on_some(part, begin, stop, limit)
            except BatchTooLarge as error:
                if limit == self._decompressed_max:
                    raise self._damaged(cursor.topic, part, begin, error) from error
                # One batch alone holds more than is handed on at once.
                limit = self._decompressed_max
            except BatchUnreadable as error:
                raise self._damaged(cursor.topic, part, begin, error) from error

    def _hand_on_some(self, part: FetchedPart, begin: int, stop: int, limit: int) -> int:
        """Return the offset from which to go on."""
        # The same bytes again when some of them are left: whose transactions are aborted is told from their start.
        decoded = decode(
            part.records,
            begin=begin,
            end=stop,
            columns=self._columns,
            since_ms=self._since_ms,
            until_ms=self._until_ms,
            aborted=part.aborted,
            decompressed_max=limit,
        )
        # The last batch may reach beyond the end of the range: what lies there was not handed out.
        next_offset = min(decoded.next_offset, stop)
        assert next_offset > begin, (part.partition, begin, next_offset)
        shaped = [self._shape(batch, part.partition) for batch in decoded.batches]
        kept = [batch for batch in shaped if batch is not None]
        for batch in kept[:-1]:
            # Not all of these offsets yet: only the last piece says so.
            self._outlet.put(Piece(partition=part.partition, batch=batch, next_offset=begin))
        last = kept[-1] if kept else None
        self._outlet.put(Piece(partition=part.partition, batch=last, next_offset=next_offset))
        return next_offset

    def _damaged(
        self, topic: str, part: FetchedPart, begin: int, error: BatchUnreadable
    ) -> BatchDamaged:
        """Hand on what comes before the batch, and say what is wrong with it."""
        # Where its offset is what is damaged, it cannot be told what comes before: that is read again, then.
        with suppress(BatchUnreadable):
            while begin < error.offset:
                begin = self._hand_on_some(part, begin, error.offset, self._decompressed_max)
        return BatchDamaged(str(error), topic=topic, partition=part.partition, offset=begin)
