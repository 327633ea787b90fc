"""Local reads on the wire: two tagged fields of Fetch name the reader's host and the records' file range.

```
request, tag 5001     the reader's host, a compact string
reply, of a partition, tag 5001     position 8 | size 4 | device 8 | inode 8 | head 21 | path, to the end
```
The records of such a partition are empty; the reader takes them from the file. Only readers that name the broker's own
host get such replies, so other clients never see one, and they would skip an unknown tag anyway (KIP-482).
"""

from struct import Struct

from respool.model.file_range import FileRange
from respool.records.batch import CRC_COVERS_FROM
from respool.wire.walk import pack_varint

# Far above the tags that Kafka uses.
LOCAL_READ_TAG = 5_001
# The fields exist in this version, and in the version that our followers use.
LOCAL_READ_FETCH_VERSION = 13

_RANGE = Struct(f">qiQQ{CRC_COVERS_FROM}s")


def pack_file_range(file_range: FileRange) -> bytes:
    """Encode the whole tagged field: tag, size, content."""
    assert len(file_range.head) == CRC_COVERS_FROM
    content = _RANGE.pack(
        file_range.position, file_range.size, file_range.device, file_range.inode, file_range.head
    )
    content += file_range.path.encode("utf-8", "surrogateescape")
    return pack_varint(LOCAL_READ_TAG) + pack_varint(len(content)) + content


def unpack_file_range(content: memoryview) -> FileRange:
    """Decode the content of the tagged field.

    Raises:
        ValueError: it is not a file range.
    """
    if len(content) < _RANGE.size:
        raise ValueError(f"{len(content)} bytes are not a file range")
    position, size, device, inode, head = _RANGE.unpack_from(content)
    path = str(content[_RANGE.size :], "utf-8", "surrogateescape")
    if position < 0 or size < len(head) or not path.startswith("/") or "\0" in path:
        raise ValueError(f"{size} bytes at {position} of {path!r} are not a file range")
    return FileRange(path, device, inode, position, size, head)
