"""Work that would block the event loop, done elsewhere."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

T = TypeVar("T")


class Offload(Protocol):
    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` off the loop and return what it returns, or raise what it raises.

        The number of works under way is bounded; the rest wait their turn.
        """
        ...

    def lock(self) -> AbstractContextManager[object]:
        """A new lock, for what two works at the same time must not do both."""
        ...
