"""The offset range to read of each partition. Pure: options and offsets in, cursors out.

```
                  start          position                stop            end
  partition  -----|--------------|-----------------------|---------------|
            deleted   read already         still to read          not to be read
```
`stop` is the first offset that is not read. Without --follow it is at most the end seen at the start, so reading ends.
"""

from collections.abc import Mapping
from datetime import datetime

from respool.cli import options
from respool.model.operator_errors import UsageError
from respool.model.seek_target import (
    AtOffset,
    AtTime,
    Earliest,
    Latest,
    SeekTarget,
    clamp,
    parse_offset,
    resolve,
)

Until = AtOffset | AtTime | None


def parse_start(
    *, from_beginning: bool, offset: str | None, since: str | None, follow: bool, now: datetime
) -> SeekTarget:
    """
    Raises:
        UsageError: more than one start is given, or the start is invalid.
    """
    if sum([from_beginning, offset is not None, since is not None]) > 1:
        raise UsageError("give only one of --from-beginning, --offset and --since")
    if since is not None:
        return AtTime(options.time_ms(since, option="--since", now=now))
    if offset is not None:
        return _parse_offset(offset)
    # --follow alone waits for new messages; without --follow, starting at the end would show nothing.
    return Latest() if follow and not from_beginning else Earliest()


def parse_until(text: str | None, *, now: datetime) -> Until:
    """Parse --until: a plain number is an offset; a timestamp in digits needs a leading @."""
    if text is None:
        return None
    if text.strip().isdecimal():
        return AtOffset(int(text))
    return AtTime(options.time_ms(text, option="--until", now=now))


def is_empty(start: SeekTarget, until: Until) -> bool:
    """True if no message can lie between them, whatever the topic contains."""
    match start, until:
        case (AtTime(begin), AtTime(end)) | (AtOffset(begin), AtOffset(end)):
            return begin >= end
        case _:
            return False


def _parse_offset(text: str) -> SeekTarget:
    found = parse_offset(text)
    if found is None:
        raise UsageError(
            f"--offset {text!r} is not an offset",
            hint="give a number, earliest, latest, or -N for the last N messages of each partition",
        )
    return found


def first_offset(start: SeekTarget, *, low: int, high: int, at_time: int | None) -> int:
    """The first offset to read in a partition with offsets `low` to `high`; `at_time` is the resolved `AtTime`."""
    return clamp(resolve(start, low=low, high=high, at_time=at_time), low=low, high=high)


def group_offset(committed: int, *, low: int, log_end: int) -> int | None:
    """The offset at which a group resumes in a partition with offsets `low` to `log_end`; None: by the start option.

    If the group's next message was deleted (retention, DeleteRecords), it resumes at the log start. An offset beyond
    the log end was committed for an earlier topic of the same name.
    """
    if committed > log_end:
        return None
    return max(committed, low)


def stop_offset(until: Until, *, high: int, follow: bool, at_time: int | None) -> int | None:
    """The first offset not to read; None if unknown, which is only possible with --follow."""
    end = None if follow else high
    match until:
        case AtOffset(offset):
            return offset if end is None else min(offset, end)
        case AtTime() if at_time is not None:
            return at_time if end is None else min(at_time, end)
        case _:
            return end


class RangeProgress:
    """How far one partition has been read, and whether its range is complete."""

    def __init__(self, *, position: int, stop: int | None, until_ms: int | None) -> None:
        # Every offset below this one has been read, or holds no message.
        self.position = position
        self.stop = stop
        self._until_ms = until_ms
        self._is_at_end = False
        self.is_done = stop is not None and position >= stop

    def moved_to(self, position: int) -> "RangeProgress":
        """A cursor with the same stop and another position."""
        return RangeProgress(position=position, stop=self.stop, until_ms=self._until_ms)

    def on_message(self, offset: int, timestamp_ms: int) -> bool:
        """Move beyond this message; return whether to show it."""
        if self.is_done or offset < self.position:
            return False
        self._is_at_end = False
        beyond_stop = self.stop is not None and offset >= self.stop
        # Only with --follow: otherwise the time was resolved to an offset before reading began.
        beyond_time = (
            self.stop is None and self._until_ms is not None and timestamp_ms >= self._until_ms
        )
        if beyond_stop or beyond_time:
            self.is_done = True
            return False
        self.position = offset + 1
        self.is_done = self.stop is not None and self.position >= self.stop
        return True

    def on_end(self, end: int) -> None:
        """The partition ends at `end` now. Its last offsets may hold no messages, only transaction markers."""
        self.position = max(self.position, end)
        self._is_at_end = True
        if self.stop is not None and self.position >= self.stop:
            self.is_done = True

    def on_tick(self, now_ms: int) -> None:
        """With --follow --until TIME: done once that time has passed and everything has been read."""
        waits_for_time = self.stop is None and self._until_ms is not None
        if waits_for_time and self._is_at_end and now_ms >= (self._until_ms or 0):
            self.is_done = True


def all_done(cursors: Mapping[int, RangeProgress]) -> bool:
    return all(cursor.is_done for cursor in cursors.values())
