"""Where a test's broker runs: a thread of this process, or a process of its own. Both take the same commands."""

from typing import Any, Protocol

# Timeout of a command: on a busy machine a broker is slow, not stuck.
COMMAND_S_MAX = 60.0


class Backend(Protocol):
    def call(self, name: str, /, **arguments: Any) -> Any:
        """Run a command, and return its result."""
        ...

    def close(self) -> None:
        """End the broker and everything around it, in whatever state it is."""
        ...

    @property
    def log(self) -> str:
        """The broker's log."""
        ...


def with_log(log: str) -> str:
    """The last part of a log, to append to an error message."""
    return f"\nThe end of its log:\n{log[-4000:]}" if log else ""
