"""The headers of a delayed message, from a sender's arguments: `delay`, `deliver_at` and `schedule_id`.

The topic must have `respool.delay=true`: in any other the headers mean nothing, and the message is seen at once.
"""

from datetime import datetime, timedelta

from respool.client.messages.errors import BadArgument
from respool.client.messages.message import as_bytes, as_timestamp_ms
from respool.model.delays.delay_headers import DELAY, DELIVER_AT, SCHEDULE_ID
from respool.model.times import TimeNotUnderstood, parse_duration_ms

# A number is milliseconds; text is as in `30s` and `1h30m`.
Delay = timedelta | int | str
HeaderPair = tuple[str, bytes | None]


def delay_headers(
    delay: Delay | None, deliver_at: datetime | int | None, schedule_id: str | bytes | None
) -> list[HeaderPair]:
    """
    Raises:
        BadArgument: a value is invalid, or they contradict each other.
    """
    if delay is not None and deliver_at is not None:
        raise BadArgument("give delay= or deliver_at=, not both")
    headers: list[HeaderPair] = []
    if delay is not None:
        headers.append((DELAY, b"%d" % _delay_ms(delay)))
    if deliver_at is not None:
        headers.append((DELIVER_AT, b"%d" % as_timestamp_ms(deliver_at)))
    if schedule_id is not None:
        if not headers:
            raise BadArgument(
                "schedule_id= names a delayed message: give delay= or deliver_at=, too"
            )
        key = as_bytes(schedule_id, "schedule_id")
        if not key:
            raise BadArgument("schedule_id= is empty")
        headers.append((SCHEDULE_ID, key))
    return headers


def _delay_ms(delay: object) -> int:
    if isinstance(delay, timedelta):
        delay = delay // timedelta(milliseconds=1)
    if isinstance(delay, str):
        try:
            delay = parse_duration_ms(delay)
        except (TimeNotUnderstood, OverflowError) as error:
            raise BadArgument(f"delay={delay!r}: {error}") from None
    if isinstance(delay, bool) or not isinstance(delay, int) or delay < 0:
        raise BadArgument(
            f"a delay is a timedelta, milliseconds, or text such as '1h30m', not {delay!r}"
        )
    return delay
