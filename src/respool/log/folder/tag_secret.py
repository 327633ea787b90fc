"""The secret of the hashes in a data folder's tag indexes: without it nobody can construct values with the same hash.

```
tag-index-secret        16 random bytes; if they are lost, all tag indexes are rebuilt
```
"""

from respool.ports.disk import Disk

NAME = "tag-index-secret"
SECRET_BYTES = 16


def tag_secret(disk: Disk, new: bytes) -> bytes:
    """Return the folder's secret; store `new` if it has none yet.

    Raises:
        DiskFull, DiskFailed: it can be neither read nor stored.
    """
    assert len(new) == SECRET_BYTES
    found = disk.read_file(NAME)
    if found is not None and len(found) == SECRET_BYTES:
        return found
    disk.replace_file(NAME, new)
    return new
