"""Time, as something handed in."""

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970: for timestamps people see. It may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some start: for waiting and expiry. It never goes back."""
        ...
