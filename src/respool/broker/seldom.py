"""One line for a trouble that comes again with every try, and lasts as long as somebody else wants it to."""

import asyncio

# So long as it lasts, the operator is reminded.
REMIND_EVERY_S = 60.0


class Seldom:
    """Whether a trouble is to be told: when it begins, and once a minute from then on."""

    def __init__(self) -> None:
        self._told_at_s: float | None = None

    def should_tell(self) -> bool:
        """It has happened (again). True: say so."""
        now_s = asyncio.get_running_loop().time()
        if self._told_at_s is not None and now_s - self._told_at_s < REMIND_EVERY_S:
            return False
        self._told_at_s = now_s
        return True

    def should_tell_end(self) -> bool:
        """It has not happened this time. True: it had been told, so say that it is over."""
        was_told, self._told_at_s = self._told_at_s is not None, None
        return was_told
