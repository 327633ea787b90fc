"""Which offsets of a share partition have changed since they were stored. Pure."""

from collections.abc import Iterable

# More ranges than this are joined; if many are left, they become one.
RANGES_MAX = 256


class ChangedRanges:
    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, first: int, last: int) -> None:
        ranges = self._ranges
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = ranges[-1][0], last
            return
        ranges.append((first, last))
        if len(ranges) > RANGES_MAX:
            ranges = _joined(ranges)
            if len(ranges) > RANGES_MAX // 2:
                ranges = [(ranges[0][0], ranges[-1][1])]
            self._ranges = ranges

    def take(self) -> list[tuple[int, int]]:
        """All of them, sorted and disjoint; they count as stored now."""
        ranges, self._ranges = self._ranges, []
        return _joined(ranges)


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found
