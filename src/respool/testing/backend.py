"""Where a test's broker runs: in a thread of this process or in its own process. Both accept the same commands."""

from typing import Any, Protocol

# Timeout of a command; long, because a broker on a busy machine is slow but not stuck.
COMMAND_S_MAX = 60.0


class Backend(Protocol):
    def call(self, name: str, /, **arguments: Any) -> Any:
        """Run a command, and return its result."""
        ...

    def close(self) -> None:
        """End the broker and release all its resources, whatever its state."""
        ...

    @property
    def log(self) -> str:
        """The broker's log."""
        ...


def with_log(log: str) -> str:
    """The last part of a log, to append to an error message."""
    return f"\nThe end of its log:\n{log[-4000:]}" if log else ""
