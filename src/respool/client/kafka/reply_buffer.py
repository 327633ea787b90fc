"""Memory for one reply after the other: many megabytes are not asked of the system for each."""


class ReplyBuffer:
    def __init__(self, keep_bytes_max: int = 64 * 1024 * 1024) -> None:
        self._bytes = bytearray()
        self._keep_bytes_max = keep_bytes_max

    def room(self, size: int) -> memoryview:
        if size > self._keep_bytes_max:
            # Larger than usual: it goes when it was read.
            return memoryview(bytearray(size))
        if size > len(self._bytes):
            # A new one, not the old one enlarged: somebody may still look into that.
            self._bytes = bytearray(size)
        return memoryview(self._bytes)[:size]
