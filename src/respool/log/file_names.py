"""The files of one partition's folder, under Kafka's names: twenty digits of an offset, then what it is.

```
00000000000000000000.log         00000000000000000000.timeindex      leader-epoch-checkpoint
00000000000000000000.index       00000000000000000000.snapshot       00000000000000000000.txnindex
```
"""

import re
from hashlib import blake2b

from respool.model.ids import Offset

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
SNAPSHOT = ".snapshot"
TRANSACTION_INDEX = ".txnindex"
EPOCHS_NAME = "leader-epoch-checkpoint"

# Renamed out of use, to be deleted later.
DELETED = ".deleted"
FOLDER_DELETED = "-delete"
# Written by a compaction, and then on their way to their places.
CLEANED = ".cleaned"
SWAP = ".swap"
# Left behind by work that a crash interrupted. Not `.swap` of a log: that counts.
LEFTOVERS = (DELETED, CLEANED, SWAP, ".tmp")

FILE_NAME_BYTES_MAX = 255

_OFFSET_NAME = re.compile(r"(\d{20})(\.[a-z]+)")


def offset_name(offset: Offset, kind: str) -> str:
    return f"{offset:020d}{kind}"


def parse_offset_name(name: str) -> tuple[Offset, str] | None:
    """The offset and the kind, or None for any other file."""
    match = _OFFSET_NAME.fullmatch(name)
    return (Offset(int(match[1])), match[2]) if match else None


def deleted_folder_name(name: str, *, attempt: int) -> str:
    """Kafka's name for a partition's folder on its way out: `<name>.<32 hex digits>-delete`."""
    # Kafka fills in a random UUID. Here is no random source; any free name will do.
    unique = blake2b(f"{name} {attempt}".encode(), digest_size=16).hexdigest()
    ending = f".{unique}{FOLDER_DELETED}"
    return name[: FILE_NAME_BYTES_MAX - len(ending)] + ending
