"""Loads the compiled kernels when they are first needed, if they are installed.

Loading takes half a second and some 120 MB: too much for a broker that never compacts. Until they are loaded, or if
they are not installed, plain Python does the work.
"""

import logging
from collections.abc import Sequence

from respool.model.extras import how_to_install
from respool.model.where import Where
from respool.ports.record_scan import (
    Buffer,
    KeyHasher,
    KeylessRecords,
    KeyOffsets,
    RecordMatcher,
    RecordScanner,
    TagCollector,
)
from respool.records.plain_scan import PlainScanner

logger = logging.getLogger(__name__)

# Takes plain Python a few seconds.
WORTH_LOADING_BYTES = 100 * 1024 * 1024


class ScannerOnDemand:
    def __init__(self) -> None:
        self._scanner: RecordScanner = PlainScanner()
        self._is_decided = False
        # The number of bytes that plain Python has scanned.
        self._bytes_checked = 0

    @property
    def quick_bytes_max(self) -> int:
        return self._scanner.quick_bytes_max

    def prepare(self) -> None:
        if self._bytes_checked >= WORTH_LOADING_BYTES:
            self._load()

    def find_keyless(
        self, records: Buffer, *, record_count: int, last_offset_delta: int
    ) -> KeylessRecords | None:
        self._bytes_checked += len(records)
        return self._scanner.find_keyless(
            records, record_count=record_count, last_offset_delta=last_offset_delta
        )

    def key_offsets(self, *, bytes_max: int, keys_max: int, secret: bytes) -> KeyOffsets:
        """Called to compact a log, so loading the kernels is worth it."""
        self._load()
        return self._scanner.key_offsets(bytes_max=bytes_max, keys_max=keys_max, secret=secret)

    def matcher(self, where: Where) -> RecordMatcher:
        """Called to read a view, so loading the kernels is worth it."""
        self._load()
        return self._scanner.matcher(where)

    def key_hasher(self, *, secret: bytes) -> KeyHasher:
        """Called to deliver in order by key, so loading the kernels is worth it."""
        self._load()
        return self._scanner.key_hasher(secret=secret)

    def tag_collector(self, names: Sequence[bytes | None], *, secret: bytes) -> TagCollector:
        """Called to index a topic's tags, so loading the kernels is worth it."""
        self._load()
        return self._scanner.tag_collector(names, secret=secret)

    def _load(self) -> None:
        """Load the kernels, if possible; thread-safe."""
        if self._is_decided:
            return
        try:
            self._scanner = _compiled()
        except Exception as error:  # noqa: BLE001 - if compiling fails for any reason, plain Python does the work
            logger.warning(
                "compaction is slow without compiled kernels (%s): %s",
                error,
                how_to_install("arrow"),
            )
        self._is_decided = True


def _compiled() -> RecordScanner:
    from respool.columnar.compiled_scan import CompiledScanner

    scanner = CompiledScanner()
    scanner.prepare()
    return scanner
