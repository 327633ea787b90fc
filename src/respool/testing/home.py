"""Where a test's broker lives: a thread of this process, or a process of its own. Both take the same orders."""

from typing import Any, Protocol

# How long an order may take; a broker whose machine is busy is slow, not stuck.
ORDER_S_MAX = 60.0


class Home(Protocol):
    def call(self, name: str, /, **arguments: Any) -> Any:
        """Give an order, and return what came of it."""
        ...

    def close(self) -> None:
        """End the broker and everything around it, however it is."""
        ...

    @property
    def log(self) -> str:
        """What the broker logged."""
        ...


def with_log(log: str) -> str:
    """The end of a log, for the end of a message."""
    return f"\nThe end of its log:\n{log[-4000:]}" if log else ""
