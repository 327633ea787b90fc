"""`respool.delay.levels`: the delays that producers may name by number, as in RocketMQ."""

from functools import cached_property

from respool.model.config_rules import ConfigKind, ConfigRule
from respool.model.errors import InvalidConfig
from respool.model.times import TimeNotUnderstood, parse_duration_ms

LEVELS_MAX = 100
DEFAULT_TEXT = "1s,5s,10s,30s,1m,2m,3m,4m,5m,6m,7m,8m,9m,10m,20m,30m,1h,2h"


class DelayLevels(tuple[str, ...]):
    """The delays in the given order, as they were written; level 1 is the first."""

    @classmethod
    def parse(cls, text: str) -> "DelayLevels":
        words = [word.strip() for word in text.split(",")]
        if len(words) > LEVELS_MAX:
            raise InvalidConfig(f"{len(words)} levels, at most {LEVELS_MAX} are allowed")
        for word in words:
            # RocketMQ separates its levels by spaces; the whole text would be one delay, their sum.
            if len(word.split()) > 1:
                raise InvalidConfig(
                    f"{word[:100]!r}: levels are separated by commas, as in 1s,5s,1h30m"
                )
        levels = cls(words)
        try:
            levels.delays_ms  # noqa: B018 checked here, once
        except (TimeNotUnderstood, OverflowError) as error:
            raise InvalidConfig(f"{text[:100]!r}: {error}") from None
        return levels

    @cached_property
    def delays_ms(self) -> tuple[int, ...]:
        return tuple(map(parse_duration_ms, self))

    def __str__(self) -> str:
        return ",".join(self)


DEFAULT_LEVELS = DelayLevels(DEFAULT_TEXT.split(","))


def delay_levels_rule(doc: str) -> dict[str, ConfigRule]:
    return {"rule": ConfigRule(kind=ConfigKind.LIST, doc=doc, parse=DelayLevels.parse)}
