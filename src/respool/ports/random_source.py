"""Randomness, passed in."""

from typing import Protocol
from uuid import UUID


class RandomSource(Protocol):
    def uuid(self) -> UUID:
        """A random (version 4) UUID."""
        ...

    def below(self, limit: int) -> int:
        """A whole number from 0 up to but not including `limit`."""
        ...
