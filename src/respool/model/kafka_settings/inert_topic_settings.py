"""Kafka's topic settings on which the broker does not act.

`InertTopicSettings` are accepted with the value that asks for what Respool does anyway, and refused with any other, so
that nobody relies on a setting that has no effect. `REFUSED` have no such value.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from respool.model.config_rules import ConfigRule, yes_or_no
from respool.model.errors import InvalidConfig

_NO_COPY_LAG = (
    "local segments are never removed before they are archived, and by local.retention.* only"
)


def _only(
    value: object, rule: Mapping[str, ConfigRule], *, why_not_others: str
) -> dict[str, ConfigRule]:
    kafkas = rule["rule"]

    def parse(text: str) -> object:
        found = kafkas.parse(text)
        if found != value:
            raise InvalidConfig(f"{text.strip().lower()} is refused: {why_not_others}")
        return found

    return {"rule": dataclasses.replace(kafkas, parse=parse)}


@dataclass(frozen=True, kw_only=True)
class InertTopicSettings:
    message_downconversion_enable: bool = field(
        default=True,
        metadata=yes_or_no(
            "Deprecated and without effect: all clients read the one record format there is."
        ),
    )
    preallocate: bool = field(
        default=False,
        metadata=_only(
            False,
            yes_or_no("Only false: a segment's file grows with its records."),
            why_not_others="a segment's file grows with its records, and is not allocated in advance",
        ),
    )


INERT = frozenset(one.name.replace("_", ".") for one in dataclasses.fields(InertTopicSettings))

# Settings of Kafka that are refused with every value, and why.
REFUSED: Mapping[str, str] = {
    "internal.segment.bytes": "it is for Kafka's own tests; segment.bytes may be as low as 1024",
    "max.decompressed.message.bytes": "what a batch may hold decompressed is not limited per topic",
    "message.format.version": "Kafka 4.0 removed it; records are stored in format v2 only",
    "message.timestamp.difference.max.ms": (
        "Kafka 4.0 removed it; use message.timestamp.before.max.ms and message.timestamp.after.max.ms"
    ),
    "remote.copy.lag.bytes": _NO_COPY_LAG,
    "remote.copy.lag.ms": _NO_COPY_LAG,
}
