"""Where a reader on this machine finds the records that it fetches, and what of them was aborted.

Nobody looks at the records for it. So of aborted transactions it names all that the rest of the segment has, of which
the last ones may be about nothing that is lent: readers pass over those.
"""

from typing import NamedTuple

from respool.broker.fetch.readers import Reader
from respool.broker.partitions.watermarks import ReadTo
from respool.log.partition_log import PartitionLog, ReadSpec
from respool.model.file_place import FilePlace
from respool.model.ids import Offset

# With more aborted transactions the records are sent: those that are about them can be told then.
LENT_ABORTED_MAX = 200


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
        spec: ReadSpec,
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
        if end is None or self._is_little(log, spec):
            return None
        found = log.locate(spec._replace(max_offset=end))
        if found is None or found.place.size < self.bytes_min:
            return None
        if self._reader.read_to is not ReadTo.STABLE:
            return Lent(found.place, None)
        if not log.has_aborted_from(spec.offset):
            return Lent(found.place, [])
        aborted = log.aborted_in(
            spec.offset,
            found.end,
            cached_only=spec.cached_only,
            at_most=LENT_ABORTED_MAX + 1,
        )
        if len(aborted) > LENT_ABORTED_MAX:
            return None
        return Lent(found.place, [(one.producer_id, one.first_offset) for one in aborted])

    def _is_little(self, log: PartitionLog, spec: ReadSpec) -> bool:
        """Whether all there is lies in memory and is less than is lent: as nearly always for who reads as it comes."""
        if not spec.cached_only:
            return False
        some = log.read_tail(
            ReadSpec(spec.offset, spec.max_offset, self.bytes_min, at_least_one=False)
        )
        return some is not None and some.end >= spec.max_offset
