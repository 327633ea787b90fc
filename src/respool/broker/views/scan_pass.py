"""How much one pass over a fetch's partitions may scan for conditions, and what it scanned."""

from respool.ports.disk import NotCached

# A batch that holds more is not shown in views.
DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024


class ScanPass:
    __slots__ = (
        "bytes_left",
        "is_quick",
        "rebuilt_batches",
        "scanned_bytes",
        "sent_bytes",
        "skipped_bytes",
        "unreadable_batches",
    )

    def __init__(self, *, bytes_max: int, is_quick: bool) -> None:
        """`is_quick`: on the event loop; a pass that needs more than `bytes_max` is made in another thread instead."""
        self.bytes_left = bytes_max
        self.is_quick = is_quick
        self.scanned_bytes = 0
        self.sent_bytes = 0
        # Bytes of the log that an index told to pass over.
        self.skipped_bytes = 0
        self.rebuilt_batches = 0
        self.unreadable_batches = 0

    @property
    def is_over(self) -> bool:
        """True if nothing more may be scanned: the reply says how far it came."""
        return not self.is_quick and self.bytes_left <= 0

    @property
    def decompressed_bytes_max(self) -> int:
        """The largest size of the next batch's records, decompressed."""
        if self.is_quick:
            return max(0, min(self.bytes_left, DECOMPRESSED_BYTES_MAX))
        return DECOMPRESSED_BYTES_MAX

    def take(self, byte_count: int) -> None:
        """Account for bytes of the log that are about to be scanned. A batch larger than what is left is scanned whole.

        Raises:
            NotCached: they are too many for the event loop.
        """
        if self.is_quick and byte_count > self.bytes_left:
            raise NotCached(f"{byte_count} bytes to scan, {self.bytes_left} left on the event loop")
        self.bytes_left -= byte_count
        self.scanned_bytes += byte_count

    def take_decompressed(self, byte_count: int) -> None:
        """Account for the records of a compressed batch: a small one may hold very many."""
        self.bytes_left -= byte_count
