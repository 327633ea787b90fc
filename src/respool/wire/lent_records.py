"""Two tagged fields of Fetch that are ours: a reader says on which machine it is, and is told where the records lie.

```
request, tag 5001     the reader's machine, a compact string
reply, of a partition, tag 5001     position 8 | size 4 | device 8 | inode 8 | head 21 | path, to the end
```
The records of such a partition are empty, and the reader takes them from the file. Only readers that name the broker's
own machine get such replies, so no client of others ever sees one; who does not know a tag passes over it (KIP-482).
"""

from struct import Struct

from respool.model.file_place import FilePlace
from respool.records.batch import CRC_COVERS_FROM
from respool.wire.walk import pack_varint

# Far from those that Kafka has given out.
LENT_TAG = 5_001
# In this version of the request and those that our brokers follow each other with.
LENT_FETCH_VERSION = 13

_PLACE = Struct(f">qiQQ{CRC_COVERS_FROM}s")


def pack_place(place: FilePlace) -> bytes:
    """The tagged field as a whole: its tag, its size, its content."""
    assert len(place.head) == CRC_COVERS_FROM
    content = _PLACE.pack(place.position, place.size, place.device, place.inode, place.head)
    content += place.path.encode("utf-8", "surrogateescape")
    return pack_varint(LENT_TAG) + pack_varint(len(content)) + content


def read_place(content: memoryview) -> FilePlace:
    """The content of the tagged field.

    Raises:
        ValueError: it is no place in a file.
    """
    if len(content) < _PLACE.size:
        raise ValueError(f"{len(content)} bytes are no place in a file")
    position, size, device, inode, head = _PLACE.unpack_from(content)
    path = str(content[_PLACE.size :], "utf-8", "surrogateescape")
    if position < 0 or size < len(head) or not path.startswith("/") or "\0" in path:
        raise ValueError(f"{size} bytes at {position} of {path!r} are no place in a file")
    return FilePlace(path, device, inode, position, size, head)
