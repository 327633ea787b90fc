"""Seeded random sources."""

from random import Random
from uuid import UUID


def rng_of(who: str, seed: int | str) -> Random:
    """Return the random source of one participant: its draws do not change the draws of the others."""
    return Random(f"{who} {seed}")  # noqa: S311 - nothing here is secret


class SimRandomSource:
    """A `ports.rng.RandomSource`."""

    def __init__(self, seed: int | str = 0) -> None:
        self._random = rng_of("broker", seed)

    def uuid(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)

    def below(self, limit: int) -> int:
        return self._random.randrange(limit)
