"""Runs blocking work outside of the event loop."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

T = TypeVar("T")


class Offload(Protocol):
    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` off the event loop; return its result or raise its exception.

        The number of concurrent jobs is bounded; further ones wait in a queue.
        """
        ...

    def lock(self) -> AbstractContextManager[object]:
        """A new lock, for work that must not run concurrently."""
        ...
