"""The acknowledgements of one partition in a request, checked and as ranges of one type each. Pure."""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple, Protocol

from respool.model.errors import InvalidRequest


class AcknowledgeType(IntEnum):
    # The offset had no record; it is finished without a dead letter.
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcknowledgedRange(NamedTuple):
    first: int
    last: int
    type: AcknowledgeType


class AcknowledgementBatch(Protocol):
    """As the wire's schemas have it: one type for all offsets, or one for each."""

    @property
    def first_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def acknowledge_types(self) -> Sequence[int]: ...


def acknowledged_ranges(
    batches: Iterable[AcknowledgementBatch], *, is_renewing: bool
) -> list[AcknowledgedRange]:
    """Check the form of the acknowledgements, without looking at any record.

    Raises:
        InvalidRequest: a range is empty, negative, unsorted or overlaps the one before, has no types or not one for
            each offset, or a type is unknown, or renews without the request's flag.
    """
    ranges: list[AcknowledgedRange] = []
    known = AcknowledgeType.RENEW if is_renewing else AcknowledgeType.REJECT
    before = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first < 0 or first > last:
            raise InvalidRequest(f"acknowledged offsets {first} to {last} are no range")
        if first <= before:
            raise InvalidRequest(
                f"acknowledged offsets {first} to {last} overlap or precede those up to {before}"
            )
        before = last
        count = last - first + 1
        if not types or len(types) not in {1, count}:
            raise InvalidRequest(
                f"acknowledged offsets {first} to {last} have {len(types)} types, not 1 or {count}"
            )
        for one in types:
            if not 0 <= one <= known:
                raise InvalidRequest(
                    f"acknowledge type {one} of offsets {first} to {last} is outside 0 to {known:d}"
                )
        if len(types) == 1:
            ranges.append(AcknowledgedRange(first, last, AcknowledgeType(types[0])))
            continue
        for one, group in groupby(types):
            part_last = first + sum(1 for _ in group) - 1
            ranges.append(AcknowledgedRange(first, part_last, AcknowledgeType(one)))
            first = part_last + 1
    return ranges
