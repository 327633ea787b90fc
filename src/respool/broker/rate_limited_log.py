"""One log line per key and minute for an event that repeats as often as a peer or a fault repeats it.

The first event of a key is logged at once. Those that follow within `INTERVAL_S` are counted, and the next line of that
key says how many were suppressed. Memory and log volume are bounded: beyond `keys_max` keys, all others share one.
"""

import asyncio
import logging
from dataclasses import dataclass

INTERVAL_S = 60.0
KEYS_MAX = 200

# The key of all events for which there is no room.
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
        key: str = "",
        exc_info: BaseException | None = None,
    ) -> bool:
        """Log the event unless one of its key was logged within the last minute; True if it was logged."""
        now_s = asyncio.get_running_loop().time()
        if key not in self._logged and len(self._logged) >= self._keys_max:
            self.flush(now_s)
            if len(self._logged) >= self._keys_max:
                key = _OVERFLOW
        known = self._logged.get(key)
        if known is not None and now_s - known.at_s < INTERVAL_S:
            known.suppressed += 1
            # As text: arguments may be errors, which keep alive the requests that they were raised for.
            known.level = level
            known.newest = message % args
            return False
        suppressed = known.suppressed if known is not None else 0
        self._logged[key] = _Logged(now_s, level)
        self._write(level, message, args, suppressed, exc_info)
        return True

    def clear(self, key: str = "") -> bool:
        """The fault is over, so its next occurrence is logged at once; True if it had been logged."""
        return self._logged.pop(key, None) is not None

    def flush(self, now_s: float) -> None:
        """Log what was suppressed and never followed by another event, and forget keys that are silent for a minute.

        Called now and then with the loop's time.
        """
        over = [key for key, one in self._logged.items() if now_s - one.at_s >= INTERVAL_S]
        for key in over:
            one = self._logged.pop(key)
            if one.suppressed:
                # This is the key's line of the minute that begins now.
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
