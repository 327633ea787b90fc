"""The `retry=` argument of consumers: `Retry`. Pure."""

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise

from respool.client.messages.errors import BadArgument
from respool.model.times import TimeNotUnderstood, format_duration_ms, parse_duration_ms

Delay = str | timedelta

DELAYS_MAX = 32
# Ten years, as `respool.delay.max.ms` has it by default; a topic with a smaller one is refused at the start.
DELAY_MS_MAX = 3650 * 86_400_000
_DELAYS = ("10s", "1m", "10m", "1h")
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """What a consumer does with a message whose handling fails.

    Args:
        delays: how long it waits before each further attempt: text such as "90s" or "1h30m", or a `timedelta`. There is
            one attempt more than delays.
        dead_letters: True: after the last attempt it is sent to `dlq.<group>`. False: the error is raised, and the
            message stays where it is.
        give_up: exception classes that no further attempt helps against; they make it a dead letter at once.
        retry_rate_max: failures per second, beyond which the consumer pauses reading: if everything fails, a service
            that handlers depend on is down, and messages are better left where they are.

    Raises:
        BadArgument: an option is invalid.
    """

    delays: Iterable[Delay] = _DELAYS
    dead_letters: bool = True
    give_up: type[Exception] | tuple[type[Exception], ...] = ()
    retry_rate_max: float | None = None
    delays_ms: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        if isinstance(self.delays, str | timedelta) or not isinstance(self.delays, Iterable):
            raise BadArgument(
                f"delays are several lengths of time, such as ('10s', '1m'), not {self.delays!r}"
            )
        # An iterator is used up by the first who reads it.
        object.__setattr__(self, "delays", tuple(self.delays))
        delays_ms = tuple(_delay_ms(one) for one in self.delays)
        if not 1 <= len(delays_ms) <= DELAYS_MAX:
            raise BadArgument(f"delays are 1 to {DELAYS_MAX}, not {len(delays_ms)}")
        object.__setattr__(self, "delays_ms", delays_ms)
        if not isinstance(self.dead_letters, bool):
            raise BadArgument(f"dead_letters is True or False, not {self.dead_letters!r}")
        classes = self.give_up if isinstance(self.give_up, tuple) else (self.give_up,)
        for one in classes:
            if not (isinstance(one, type) and issubclass(one, Exception)):
                raise BadArgument(f"give_up has classes of exceptions, not {one!r}")
        object.__setattr__(self, "give_up", classes)
        _check_rate(self.retry_rate_max)
        _warn_of_falling(delays_ms)


def check_retry(retry: object, delivery: str) -> None:
    """
    Raises:
        BadArgument: the argument `retry` of a consumer is invalid, or contradicts its `delivery`.
    """
    if retry is None:
        return
    if not isinstance(retry, Retry):
        raise BadArgument(f"retry is a respool.Retry(...), not {retry!r}")
    if delivery == "at-most-once":
        raise BadArgument(
            "retry= contradicts delivery='at-most-once', which commits a message before it is handled, and loses it if"
            " that fails: choose 'at-least-once' or 'exactly-once'"
        )


def _delay_ms(delay: object) -> int:
    match delay:
        case timedelta():
            delay_ms = delay // _MILLISECOND
        case str():
            try:
                delay_ms = parse_duration_ms(delay)
            except TimeNotUnderstood as error:
                raise BadArgument(f"a delay of a retry: {error}") from None
        case _:
            raise BadArgument(f"a delay is text such as '90s', or a timedelta, not {delay!r}")
    if not 1 <= delay_ms <= DELAY_MS_MAX:
        raise BadArgument(
            f"a delay is 1ms to {format_duration_ms(DELAY_MS_MAX)}, not {delay!r}; to handle a message again at once,"
            " do that in the handler"
        )
    return delay_ms


def _check_rate(rate: object) -> None:
    if rate is None:
        return
    is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
    if not is_number or not 0 < float(str(rate)) < math.inf:
        raise BadArgument(f"retry_rate_max is a number of failures per second, not {rate!r}")


def _warn_of_falling(delays_ms: tuple[int, ...]) -> None:
    for one, following in pairwise(delays_ms):
        if following < one:
            warnings.warn(
                f"a retry waits {format_duration_ms(one)}, and the one after it {format_duration_ms(following)}:"
                " delays usually grow",
                stacklevel=4,
            )
            return
