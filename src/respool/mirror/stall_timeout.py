"""How long `respool mirror --once` waits while nothing goes on. Pure: the caller brings the time."""

import math


class Patience:
    """First for messages; when all are copied, for the groups, whose time begins with their own trouble."""

    def __init__(self, *, seconds_max: float, now_s: float) -> None:
        self._seconds_max = seconds_max
        self._bytes_copied = -1
        self._copies_went_on_s = now_s
        # Not before the first look at groups has ended: they are asked for one by one, and that may take long.
        self._groups_went_on_s = math.inf
        self._had_trouble = False

    def on_copies(self, bytes_copied: int, *, now_s: float) -> None:
        if bytes_copied != self._bytes_copied:
            self._bytes_copied, self._copies_went_on_s = bytes_copied, now_s

    def on_groups(self, *, has_trouble: bool, are_moved: bool, now_s: float) -> None:
        """A look at the groups has ended; `are_moved`: some were set."""
        if are_moved or not self._had_trouble:
            self._groups_went_on_s = now_s
        self._had_trouble = has_trouble

    def is_over(self, *, waits_for_groups: bool, now_s: float) -> bool:
        since_s = self._copies_went_on_s
        if waits_for_groups:
            since_s = max(since_s, self._groups_went_on_s)
        return now_s - since_s > self._seconds_max
