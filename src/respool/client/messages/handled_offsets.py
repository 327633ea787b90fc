"""A consumer's progress in each partition: returned, done, committed. Pure.

    begun ───────────────────────────────────────┬──commit──> committed
    returned ─────> in hand ──next poll───────> done

Every offset is the one after the last message, as Kafka commits it. Invariant: a revoked partition is forgotten, so
that nothing is committed for another member's partition.
"""

from collections.abc import Iterable, Mapping

from respool.client.messages.message import Place


class Progress:
    def __init__(self) -> None:
        self._in_hand: dict[Place, int] = {}
        self._done: dict[Place, int] = {}
        # A new group's start offsets, committed asynchronously.
        self._begun: dict[Place, int] = {}

    def on_handed(self, place: Place, offset: int) -> None:
        self._in_hand[place] = offset + 1

    def on_done(self) -> None:
        """Mark all returned messages as done."""
        if self._in_hand:
            self._done |= self._in_hand
            self._in_hand = {}

    def on_done_up_to(self, place: Place, offset: int) -> None:
        """Mark everything of this partition up to and including this offset as done."""
        next_offset = offset + 1
        self._done[place] = next_offset
        if self._in_hand.get(place, next_offset + 1) <= next_offset:
            self._in_hand.pop(place)

    def on_begun(self, offsets: Mapping[Place, int]) -> None:
        """Record a new group's start offset."""
        self._begun |= offsets

    @property
    def begun(self) -> Mapping[Place, int]:
        """A new group's start offsets that are not known to be committed."""
        return dict(self._begun)

    def to_commit(self, places: Iterable[Place] | None = None) -> dict[Place, int]:
        """The uncommitted offsets that are done, with any start offsets; for `places` alone if given."""
        if places is None:
            return self._begun | self._done if self._done else {}
        known = self._begun | self._done
        return {place: known[place] for place in places if place in known}

    def on_committed(self, offsets: Mapping[Place, int]) -> None:
        for place, offset in offsets.items():
            if self._done.get(place) == offset:
                del self._done[place]
            self._begun.pop(place, None)

    def forget(self, places: Iterable[Place]) -> None:
        for place in places:
            self._in_hand.pop(place, None)
            self._done.pop(place, None)
            self._begun.pop(place, None)
