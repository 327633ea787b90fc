"""Detects by offsets when events were deleted from the log before a table read them, and never skips them silently."""

from collections.abc import Mapping

from respool.pipeline.job_errors import EventsGone


def lost(
    topic: str,
    first: Mapping[int, int],
    known: Mapping[int, int | None],
    *,
    is_accepted: bool,
    table: str,
) -> dict[int, int]:
    """Return, per partition, how many offsets lie between the table's position (`known`) and the log start (`first`).

    Raises:
        EventsGone: there are such offsets, and the loss was not accepted.
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
            "by hand; to continue without them give --accept-loss, and for the next time raise the topic's retention"
        )
    return {number: begin - at for number, (at, begin) in gaps.items()}
