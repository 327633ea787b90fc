"""How much of the available messages a micro-batch reads, shared among partitions in proportion to their backlog.
Pure."""

from collections.abc import Mapping
from typing import TypeAlias

Place: TypeAlias = tuple[str, int]
Offsets: TypeAlias = Mapping[Place, int]


def waiting(start: Offsets, end: Offsets) -> dict[Place, int]:
    """The number of unread offsets per partition; those without any are omitted."""
    return {place: end[place] - start[place] for place in sorted(end) if end[place] > start[place]}


def limit_offsets(start: Offsets, end: Offsets, most: int) -> dict[Place, int]:
    """End offsets with at most `most` offsets in total: the same fraction of each partition, up to rounding.

    At least one offset is included, if any is available and `most` is not 0.
    """
    counts = waiting(start, end)
    total = sum(counts.values())
    if total <= most:
        return dict(end)
    return _moved(start, end, _shares(counts, most, total))


def limit_bytes(
    start: Offsets, end: Offsets, most: int, bytes_an_offset: Mapping[Place, float]
) -> dict[Place, int]:
    """End offsets with about `most` bytes in total. At least one offset is included, however large its message is."""
    counts = waiting(start, end)
    expected = sum(count * max(bytes_an_offset[place], 0) for place, count in counts.items())
    if expected <= most:
        return dict(end)
    total = sum(counts.values())
    # The same fraction of each partition: an exact fraction of its offsets is about that of its bytes.
    allowed = max(1, int(total * most / expected))
    return _moved(start, end, _shares(counts, allowed, total))


def is_worth_a_batch(start: Offsets, end: Offsets, least: int) -> bool:
    return sum(waiting(start, end).values()) >= least


def _shares(counts: Mapping[Place, int], most: int, total: int) -> dict[Place, int]:
    shares = {place: most * count // total for place, count in counts.items()}
    # The remainder of the rounding goes to those that lost most by it.
    left = most - sum(shares.values())
    lost = sorted(counts, key=lambda place: (-(most * counts[place] % total), place))
    for place in lost[:left]:
        shares[place] += 1
    return shares


def _moved(start: Offsets, end: Offsets, shares: Mapping[Place, int]) -> dict[Place, int]:
    return {place: start[place] + shares[place] if place in shares else end[place] for place in end}
