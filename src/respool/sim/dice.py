"""Chance by seed."""

from random import Random
from uuid import UUID


def dice_of(who: str, seed: int | str) -> Random:
    """The dice of one who takes part: what one of them throws does not change what the others throw."""
    return Random(f"{who} {seed}")  # noqa: S311 - nothing here is secret


class SimDice:
    """A `ports.dice.Dice`."""

    def __init__(self, seed: int | str = 0) -> None:
        self._random = dice_of("broker", seed)

    def uuid(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)

    def below(self, limit: int) -> int:
        return self._random.randrange(limit)
