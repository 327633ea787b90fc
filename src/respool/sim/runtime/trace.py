"""Trace of a simulated run: a digest that identifies the run, and readable lines on request."""

from collections.abc import Callable
from zlib import crc32

_MASK = (1 << 64) - 1
_PRIME = 0x100000001B3


class Trace:
    """Mixes everything that influences a run into `digest`: equal digests mean equal runs."""

    def __init__(self, *, show: Callable[[str], None] | None = None) -> None:
        self.digest = 0xCBF29CE484222325
        self.steps = 0
        self._show = show

    def step(self, process: int, now_us: int) -> None:
        """Count one callback of this process and mix it into the digest."""
        self.steps += 1
        self.digest = ((self.digest ^ (now_us << 8 | process)) * _PRIME) & _MASK

    def bytes_moved(self, data: bytes) -> None:
        self.digest = ((self.digest ^ crc32(data)) * _PRIME) & _MASK

    def note(self, now_s: float, text: str) -> None:
        """Record an event in the trace and in the digest."""
        self.bytes_moved(text.encode())
        self.tell(now_s, text)

    def tell(self, now_s: float, text: str) -> None:
        """Show a line of text without changing the digest."""
        if self._show is not None:
            self._show(f"{now_s * 1000:12.3f} ms  {text}")

    @property
    def is_shown(self) -> bool:
        return self._show is not None
