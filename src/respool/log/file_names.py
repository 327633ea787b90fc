"""The files in a partition's folder, under Kafka's names: a 20-digit offset and a suffix.

```
00000000000000000000.log         00000000000000000000.timeindex      leader-epoch-checkpoint
00000000000000000000.index       00000000000000000000.snapshot       00000000000000000000.txnindex
00000000000000000000.tagindex    ours: which batches may hold which tags
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
TAG_INDEX = ".tagindex"
EPOCHS_NAME = "leader-epoch-checkpoint"

# Renamed, to be deleted later.
DELETED = ".deleted"
FOLDER_DELETED = "-delete"
# Written by a compaction, and then renamed into place.
CLEANED = ".cleaned"
SWAP = ".swap"
# Suffixes of unfinished work. A `.swap` log is not unfinished: it is valid.
UNFINISHED_SUFFIXES = (DELETED, CLEANED, SWAP, ".tmp")

FILE_NAME_BYTES_MAX = 255

_OFFSET_NAME = re.compile(r"(\d{20})(\.[a-z]+)")


def offset_name(offset: Offset, kind: str) -> str:
    return f"{offset:020d}{kind}"


def parse_offset_name(name: str) -> tuple[Offset, str] | None:
    """Return offset and suffix; None for any other file name."""
    match = _OFFSET_NAME.fullmatch(name)
    return (Offset(int(match[1])), match[2]) if match else None


def deleted_folder_name(name: str, *, attempt: int) -> str:
    """Kafka's name for a folder to be deleted: `<name>.<32 hex digits>-delete`."""
    # Kafka uses a random UUID. The log has no random source; any unused name will do.
    unique = blake2b(f"{name} {attempt}".encode(), digest_size=16).hexdigest()
    ending = f".{unique}{FOLDER_DELETED}"
    return name[: FILE_NAME_BYTES_MAX - len(ending)] + ending
