"""How far a consumer has come in each partition: what is in hand, what is done, what is written down. Pure.

    begun ───────────────────────────────────────┬──commit──> committed
    handed over ──> in hand ──asked for more──> done

All are the offset after the last message meant, as Kafka commits it. Invariant: a place that was taken away is
forgotten, so that nothing is ever committed for another's partition.
"""

from collections.abc import Iterable, Mapping

from respool.client.messages.message import Place


class Progress:
    def __init__(self) -> None:
        self._in_hand: dict[Place, int] = {}
        self._done: dict[Place, int] = {}
        # Where a new group began; written down at once, but nobody waits to see that it is.
        self._begun: dict[Place, int] = {}

    def on_handed(self, place: Place, offset: int) -> None:
        self._in_hand[place] = offset + 1

    def on_done(self) -> None:
        """Everything in hand has been handled."""
        if self._in_hand:
            self._done |= self._in_hand
            self._in_hand = {}

    def on_done_up_to(self, place: Place, offset: int) -> None:
        """Of this place, everything up to and with this offset has been handled."""
        next_offset = offset + 1
        self._done[place] = next_offset
        if self._in_hand.get(place, next_offset + 1) <= next_offset:
            self._in_hand.pop(place)

    def on_begun(self, offsets: Mapping[Place, int]) -> None:
        """A new group begins here."""
        self._begun |= offsets

    @property
    def begun(self) -> Mapping[Place, int]:
        """Where a new group began, as far as nobody has seen it written down."""
        return dict(self._begun)

    def to_commit(self, places: Iterable[Place] | None = None) -> dict[Place, int]:
        """What is done and not yet written down; and with it, or of places that are named, where the group began."""
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
