"""What retention must keep of a log: delayed records wait there, or it is not archived yet."""

from typing import NamedTuple

from respool.model.ids import Offset

OFFSET_MAX = Offset(2**63 - 1)


class KeptRecords(NamedTuple):
    """Everything from an offset on; and bytes of the log that do not count as its size."""

    from_offset: Offset
    uncounted_bytes: int
    # Of an archived topic: everything from here on is on brokers only.
    archived_end: Offset = Offset(0)


KEPT_NONE = KeptRecords(OFFSET_MAX, 0)
