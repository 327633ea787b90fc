"""The parts of a log that retention must keep: delayed records wait there, or they are not archived yet."""

from typing import NamedTuple

from respool.model.ids import Offset

OFFSET_MAX = Offset(2**63 - 1)


class KeptRecords(NamedTuple):
    """Everything from an offset on is kept; some bytes of the log do not count as its size."""

    from_offset: Offset
    uncounted_bytes: int
    # For an archived topic: everything from here on is only on brokers.
    archived_end: Offset = Offset(0)


KEPT_NONE = KeptRecords(OFFSET_MAX, 0)
