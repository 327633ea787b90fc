"""The clock, passed in."""

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970, for visible timestamps. It may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary start, for waits and expiry. It never decreases.

        It stops while the machine sleeps, as the event loop's time does: peers that could not reach us then do not
        expire.
        """
        ...

    def stopwatch_s(self) -> float:
        """Seconds since an arbitrary start, fine enough for microseconds: only differences are meaningful."""
        ...

    def boot_ms(self) -> int:
        """As `monotonic_ms`, but continues while the machine sleeps: for what expires elsewhere, such as leases.

        The two have different starts: never compare one with the other.
        """
        ...
