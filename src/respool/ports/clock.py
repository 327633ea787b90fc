"""Time, as something handed in."""

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970: for timestamps people see. It may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some start: for waiting and expiry. It never goes back.

        It stands still while the machine sleeps, as the event loop's time does: whoever could not be heard of then
        loses nothing.
        """
        ...

    def stopwatch_s(self) -> float:
        """Seconds since some start, fine enough for what takes microseconds: only differences of it mean anything."""
        ...

    def boot_ms(self) -> int:
        """As `monotonic_ms`, but it goes on while the machine sleeps: for what runs out elsewhere, as a lease.

        The two begin at different times: neither is compared with the other.
        """
        ...
