"""What retention must keep of a log because delayed records wait there."""

from typing import NamedTuple

from respool.model.ids import Offset

OFFSET_MAX = Offset(2**63 - 1)


class KeptRecords(NamedTuple):
    """Everything from an offset on; and bytes of the log that do not count as its size."""

    from_offset: Offset
    uncounted_bytes: int


KEPT_NONE = KeptRecords(OFFSET_MAX, 0)
