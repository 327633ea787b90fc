"""Where a reader on this machine finds the records that it fetches, and what of them was aborted.

Nobody looks at the records for it. So of aborted transactions it names all that the rest of the segment has, of which
the last ones may be about nothing that is lent: readers pass over those.
"""

from typing import NamedTuple

from respool.broker.fetch.readers import Reader
from respool.broker.partitions.watermarks import ReadTo
from respool.log.partition_log import PartitionLog
from respool.model.file_place import FilePlace
from respool.model.ids import Offset

# With more aborted transactions the records are sent: those that are about them can be told then.
LENT_ABORTED_MAX = 200


class Wish(NamedTuple):
    """Which records of a log somebody would like."""

    offset: Offset
    max_offset: Offset
    bytes_max: int
    # The first batch comes whole even if it is larger than any limit: else a consumer would ask for it forever.
    is_first: bool
    # Whether nothing may come from the disk.
    cached_only: bool


class Lent(NamedTuple):
    place: FilePlace
    # None: the reader does not want to know.
    aborted: list[tuple[int, int]] | None


class LentPlaces:
    def __init__(self, reader: Reader, *, bytes_min: int) -> None:
        """Less than `bytes_min` is not lent: to send it costs no more than to open a file."""
        self._reader = reader
        self.bytes_min = bytes_min

    def find(
        self,
        log: PartitionLog,
        wish: Wish,
        *,
        last_stable_offset: Offset,
        high_watermark: Offset,
    ) -> Lent | None:
        """None: the records are to be sent.

        Raises:
            As `PartitionLog.locate`; NotCached also where the records are in memory, and only the index is not.
        """
        end = self._reader.lent_end(
            log, last_stable_offset=last_stable_offset, high_watermark=high_watermark
        )
        if end is None or self._is_little(log, wish):
            return None
        found = log.locate(
            wish.offset,
            max_offset=end,
            bytes_max=wish.bytes_max,
            at_least_one=wish.is_first,
            cached_only=wish.cached_only,
            with_empty=self._reader.with_empty,
        )
        if found is None or found.place.size < self.bytes_min:
            return None
        if self._reader.read_to is not ReadTo.STABLE:
            return Lent(found.place, None)
        if not log.has_aborted_from(wish.offset):
            return Lent(found.place, [])
        aborted = log.aborted_in(
            wish.offset,
            found.end,
            cached_only=wish.cached_only,
            at_most=LENT_ABORTED_MAX + 1,
        )
        if len(aborted) > LENT_ABORTED_MAX:
            return None
        return Lent(found.place, [(one.producer_id, one.first_offset) for one in aborted])

    def _is_little(self, log: PartitionLog, wish: Wish) -> bool:
        """Whether all there is lies in memory and is less than is lent: as nearly always for who reads as it comes."""
        if not wish.cached_only:
            return False
        some = log.read_tail(
            wish.offset, max_offset=wish.max_offset, bytes_max=self.bytes_min, at_least_one=False
        )
        return some is not None and some.end >= wish.max_offset
