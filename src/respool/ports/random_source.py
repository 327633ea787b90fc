"""Randomness, passed in."""

from typing import Protocol
from uuid import UUID


class RandomSource(Protocol):
    def uuid(self) -> UUID:
        """A random (version 4) UUID."""
        ...

    def below(self, limit: int) -> int:
        """An integer from 0 up to, not including, `limit`."""
        ...
