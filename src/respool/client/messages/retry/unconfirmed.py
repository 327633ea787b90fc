"""Messages that failed and are not safe yet in the retry topic or among the dead letters. Pure.

A group's offset must not pass such a message: it would be lost if its retry is not written. So commits stop below the
lowest of them, and go further once it is acknowledged.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from respool.client.messages.message import Place


class RefusedRetry(NamedTuple):
    place: Place
    offset: int
    reason: str


class Unconfirmed:
    """By partition that they were read from."""

    def __init__(self) -> None:
        # Offset -> how often it is under way. Twice, if it was read again before the first was answered.
        self._waiting: dict[Place, dict[int, int]] = {}
        self._refused: dict[Place, RefusedRetry] = {}

    @property
    def has_refused(self) -> bool:
        return bool(self._refused)

    @property
    def is_waiting(self) -> bool:
        """True if some are neither acknowledged nor refused."""
        return bool(self._waiting)

    def on_sent(self, place: Place, offset: int) -> None:
        offsets = self._waiting.setdefault(place, {})
        offsets[offset] = offsets.get(offset, 0) + 1

    def on_not_sent(self, place: Place, offset: int) -> None:
        """It did not get under way."""
        self._on_answer(place, offset)

    def on_acknowledged(self, place: Place, offset: int) -> None:
        self._on_answer(place, offset)

    def on_refused(self, place: Place, offset: int, reason: str) -> None:
        """It must be read again; of several of a partition the first is where reading continues."""
        if not self._on_answer(place, offset):
            return
        known = self._refused.get(place)
        if known is None or offset < known.offset:
            self._refused[place] = RefusedRetry(place, offset, reason)

    def limited(self, offsets: Mapping[Place, int]) -> dict[Place, int]:
        """The offsets to commit, none beyond a message that is not safe."""
        return {
            place: min(offset, self._lowest(place, offset)) for place, offset in offsets.items()
        }

    def take_refused(self) -> list[RefusedRetry]:
        """Return those to be read again, and forget everything that is waiting in their partitions."""
        taken = list(self._refused.values())
        self.forget([one.place for one in taken])
        return taken

    def forget(self, places: Iterable[Place]) -> None:
        """These partitions are read from elsewhere now, by this member or another."""
        for place in places:
            self._waiting.pop(place, None)
            self._refused.pop(place, None)

    def _lowest(self, place: Place, otherwise: int) -> int:
        lowest = min(self._waiting.get(place, ()), default=otherwise)
        refused = self._refused.get(place)
        return lowest if refused is None else min(lowest, refused.offset)

    def _on_answer(self, place: Place, offset: int) -> bool:
        """True if this message was still waited for."""
        offsets = self._waiting.get(place, {})
        if offset not in offsets:
            return False
        offsets[offset] -= 1
        if not offsets[offset]:
            del offsets[offset]
        if not offsets:
            self._waiting.pop(place, None)
        return True
