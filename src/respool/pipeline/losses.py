"""Events that were deleted from the log before a table had them: found by offsets, and never passed over in silence."""

from collections.abc import Mapping

from respool.pipeline.errors import EventsGone


def lost(
    topic: str,
    first: Mapping[int, int],
    known: Mapping[int, int | None],
    *,
    is_accepted: bool,
    table: str,
) -> dict[int, int]:
    """Partition -> how many offsets between where a table stands (`known`) and where the log begins (`first`).

    Raises:
        EventsGone: there are some, and nobody said that this is known.
    """
    gaps = {
        number: (at, first[number])
        for number, at in known.items()
        if at is not None and number in first and first[number] > at
    }
    if gaps and not is_accepted:
        told = ", ".join(
            f"partition {number}: offsets {at} to {begin - 1}"
            for number, (at, begin) in sorted(gaps.items())
        )
        raise EventsGone(
            f"{topic} no longer has events that {table} has not read yet ({told}): they were deleted, by retention or "
            "by hand; to go on without them give --accept-loss, and for the next time raise the topic's retention"
        )
    return {number: begin - at for number, (at, begin) in gaps.items()}
