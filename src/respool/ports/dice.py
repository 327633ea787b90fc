"""Chance, as something handed in."""

from typing import Protocol
from uuid import UUID


class Dice(Protocol):
    def uuid(self) -> UUID:
        """A random (version 4) UUID."""
        ...

    def below(self, limit: int) -> int:
        """A whole number from 0 up to but not including `limit`."""
        ...
