"""One log line per key and minute for an event that repeats. Pure: the caller brings the time, in seconds.

The first event of a key is logged at once. Those that follow within `INTERVAL_S` are counted, and the next line of that
key says how many were suppressed. Memory and log volume are bounded: beyond `keys_max` keys, all others share one.
"""

import logging
from dataclasses import dataclass

INTERVAL_S = 60.0
KEYS_MAX = 200

# The shared key of all events beyond `keys_max`.
_OVERFLOW = "(others)"


class RateLimitedLog:
    def __init__(self, logger: logging.Logger, *, keys_max: int = KEYS_MAX) -> None:
        self._logger = logger
        self._keys_max = keys_max
        self._logged: dict[str, _Logged] = {}

    def log(
        self,
        level: int,
        message: str,
        *args: object,
        now_s: float,
        key: str = "",
        exc_info: BaseException | None = None,
    ) -> bool:
        """Log the event unless one of its key was logged within the last minute; True if it was logged."""
        if key not in self._logged and len(self._logged) >= self._keys_max:
            self.flush(now_s)
            if len(self._logged) >= self._keys_max:
                key = _OVERFLOW
        known = self._logged.get(key)
        if known is not None and now_s - known.at_s < INTERVAL_S:
            known.suppressed += 1
            # As text: an argument may be an error, which keeps the request alive that it was raised for.
            known.level = level
            known.newest = message % args
            return False
        suppressed = known.suppressed if known is not None else 0
        self._logged[key] = _Logged(now_s, level)
        self._write(level, message, args, suppressed, exc_info)
        return True

    def clear(self, key: str = "") -> bool:
        """Log the next event of this key at once, for the fault is over; True if it had been logged."""
        return self._logged.pop(key, None) is not None

    def flush(self, now_s: float) -> None:
        """Log the suppressed events of keys that were silent for a minute, and forget those keys.

        To be called from time to time: else the end of a burst is never logged.
        """
        over = [key for key, one in self._logged.items() if now_s - one.at_s >= INTERVAL_S]
        for key in over:
            one = self._logged.pop(key)
            if one.suppressed:
                # Counts as this key's line of the minute that begins now.
                self._logged[key] = _Logged(now_s, one.level)
                self._write(one.level, "%s", (one.newest,), one.suppressed - 1, None)

    def _write(
        self,
        level: int,
        message: str,
        args: tuple[object, ...],
        suppressed: int,
        exc_info: BaseException | None,
    ) -> None:
        if suppressed:
            message += " (%d more like this since the last such line)"
            args = (*args, suppressed)
        self._logger.log(level, message, *args, exc_info=exc_info)


@dataclass(slots=True)
class _Logged:
    """The last line of a key, and the newest event that was suppressed after it."""

    at_s: float
    level: int
    suppressed: int = 0
    newest: str = ""
