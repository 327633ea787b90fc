"""`--delay`, `--at` and `--schedule-id` of `respool produce` -> headers."""

from datetime import datetime, timedelta

from respool.cli import options
from respool.model.operator_errors import UsageError

_TOMORROW = "tomorrow"


def delay_options(
    delay: str | None, at: str | None, schedule_id: str | None
) -> tuple[tuple[str, bytes], ...]:
    """
    Raises:
        UsageError: an option is invalid, or they contradict each other.
    """
    from respool.model.delays.delay_headers import DELAY, DELIVER_AT, SCHEDULE_ID

    if delay is not None and at is not None:
        raise UsageError("--delay and --at cannot both be given")
    headers: list[tuple[str, bytes]] = []
    if delay is not None:
        headers.append((DELAY, b"%d" % options.duration_ms(delay, option="--delay")))
    if at is not None:
        headers.append((DELIVER_AT, b"%d" % time_ahead_ms(at)))
    if schedule_id is not None:
        if not headers:
            raise UsageError("--schedule-id needs --delay or --at")
        if not schedule_id:
            raise UsageError("--schedule-id is empty")
        headers.append((SCHEDULE_ID, schedule_id.encode()))
    return tuple(headers)


def time_ahead_ms(text: str) -> int:
    """Parses a time as other options do; also `tomorrow`, with or without a time of day."""
    words = text.lower().split()
    if words[:1] != [_TOMORROW]:
        return options.time_ms(text, option="--at")
    tomorrow = datetime.now().astimezone().date() + timedelta(days=1)
    return options.time_ms(" ".join([tomorrow.isoformat(), *words[1:]]), option="--at")
