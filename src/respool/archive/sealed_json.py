"""JSON objects with a checksum as their last field: a flipped bit may leave valid JSON with a wrong number."""

import json
from collections.abc import Mapping
from typing import Any

from crc32c import crc32c

from respool.model.archiving.archive_errors import ArchiveCorrupt

_SEAL = b',"crc":'


def seal_json(fields: Mapping[str, object]) -> bytes:
    assert fields, "an object without fields has no place for a checksum"
    body = json.dumps(fields, separators=(",", ":")).encode()
    return b"%s%s%d}" % (body[:-1], _SEAL, crc32c(body))


def open_json(data: bytes | memoryview, *, name: str, bytes_max: int) -> dict[str, Any]:
    """
    Raises:
        ArchiveCorrupt: it is damaged, too large, or was written by somebody else.
    """
    if len(data) > bytes_max:
        raise ArchiveCorrupt(f"{name}: {len(data)} bytes, at most {bytes_max} are read")
    content = bytes(data)
    body, seal, crc = content.rpartition(_SEAL)
    if not seal or crc != b"%d}" % crc32c(body + b"}"):
        raise ArchiveCorrupt(f"{name} fails its checksum")
    try:
        fields = json.loads(body + b"}")
    except (ValueError, RecursionError) as error:
        raise ArchiveCorrupt(f"{name} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ArchiveCorrupt(f"{name} is not a JSON object")
    return fields
