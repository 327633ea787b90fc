"""What lies in a broker's log files, read without the broker's code: the headers of their batches.

```
 0            8        12       16     17     21          23               27
 | base offset | length | epoch | magic | crc | attributes | last offset delta |
 27              35             43            51               53              57      61
 | base timestamp | max timestamp | producer id | producer epoch | base sequence | count | records …
```
"""

from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from support.message import CODECS, Place

_HEADER = Struct(">qiibIhiqqqhii")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    path: Path
    position: int
    size: int
    base_offset: int
    codec: str
    is_log_append_time: bool
    max_timestamp: int
    producer_id: int
    record_count: int


def stored_batches(data: Path, place: Place) -> list[StoredBatch]:
    """The batches of a partition, oldest first; a torn one at the end is left out."""
    batches = []
    for path in sorted((data / f"{place[0]}-{place[1]}").glob("*.log")):
        content = path.read_bytes()
        position = 0
        while position + _HEADER.size <= len(content):
            fields = _HEADER.unpack_from(content, position)
            size = fields[1] + 12
            if position + size > len(content):
                break
            batches.append(
                StoredBatch(
                    path=path,
                    position=position,
                    size=size,
                    base_offset=fields[0],
                    codec=CODECS[fields[5] & 7],
                    is_log_append_time=bool(fields[5] & 8),
                    max_timestamp=fields[8],
                    producer_id=fields[9],
                    record_count=fields[12],
                )
            )
            position += size
    return batches
