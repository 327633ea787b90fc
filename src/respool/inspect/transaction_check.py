"""Checks a partition's transactions along with its batches: each segment's `.txnindex` must match its markers.

An abort of a transaction whose data was seen must be in the index, or read_committed consumers receive aborted
records. An index entry without its marker would make them skip what its producer has written since.
"""

from pathlib import Path

from respool.inspect.log_files import (
    RECORDS_BYTES_MAX,
    FoundBatch,
    SegmentFile,
    read_transaction_index,
)
from respool.log.index.transaction_index import AbortedTransaction
from respool.records.markers import EndTransactionMarker, read_marker


class TransactionCheck:
    """Carried from segment to segment, because transactions span segments."""

    def __init__(self) -> None:
        # Producers with data since their last marker.
        self._open: set[int] = set()
        # By the marker's offset; None if the file cannot be read, which is reported elsewhere.
        self._entries: dict[int, AbortedTransaction] | None = None

    def begin(self, log_path: Path) -> None:
        """Begin a segment: the batches that follow belong to it."""
        path = log_path.with_suffix(".txnindex")
        try:
            entries = read_transaction_index(path) if path.is_file() else []
        except ValueError:
            self._entries = None
            return
        self._entries = {entry.last_offset: entry for entry in entries}

    def on_batch(self, found: FoundBatch, segment: SegmentFile) -> str:
        """Return what is wrong with the index up to this batch; empty if nothing is."""
        header = found.header
        if not header.is_control:
            if header.is_transactional:
                self._open.add(header.producer_id)
            return ""
        if not found.crc_ok or header.size > RECORDS_BYTES_MAX:
            return ""
        marker = read_marker(segment.read_batch(found))
        return self._on_marker(marker, header.base_offset) if marker is not None else ""

    def on_end(self) -> str:
        """End the segment: return whether the index has entries without a marker; empty if not."""
        for entry in (self._entries or {}).values():
            return (
                f"it says that producer {entry.producer_id} aborted at offset {entry.last_offset}, "
                "but no such marker is there"
            )
        return ""

    def _on_marker(self, marker: EndTransactionMarker, offset: int) -> str:
        had_data = marker.producer_id in self._open
        self._open.discard(marker.producer_id)
        if marker.is_commit or self._entries is None:
            return ""
        entry = self._entries.get(offset)
        if entry is not None and entry.producer_id == marker.producer_id:
            del self._entries[offset]
            return ""
        if not had_data:
            return ""
        return (
            f"it does not know that producer {marker.producer_id} aborted a transaction at offset {offset}: "
            "read_committed readers get its records"
        )
