"""Kafka's topic settings on which the broker does not act.

`InertTopicSettings` are accepted with the value that asks for what Respool does anyway, and refused with any other, so
that nobody relies on a setting that has no effect. `REFUSED` have no such value.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from respool.model.config_rules import LONG_MAX, ConfigRule, long_between, yes_or_no
from respool.model.errors import InvalidConfig

# Kafka's value for a local limit that is the topic's own.
AS_RETENTION = -2

_NO_TIERING = "Respool has no tiered storage: all segments stay on the brokers' disks"


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
    local_retention_bytes: int = field(
        default=AS_RETENTION,
        metadata=_only(
            AS_RETENTION,
            long_between(-2, LONG_MAX, "Only -2, which means retention.bytes: no tiered storage."),
            why_not_others=f"{_NO_TIERING}, and retention.bytes limits them",
        ),
    )
    local_retention_ms: int = field(
        default=AS_RETENTION,
        metadata=_only(
            AS_RETENTION,
            long_between(-2, LONG_MAX, "Only -2, which means retention.ms: no tiered storage."),
            why_not_others=f"{_NO_TIERING}, and retention.ms limits them",
        ),
    )
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
    remote_log_copy_disable: bool = field(
        default=False,
        metadata=_only(
            False, yes_or_no("Only false: no tiered storage."), why_not_others=_NO_TIERING
        ),
    )
    remote_log_delete_on_disable: bool = field(
        default=False,
        metadata=_only(
            False, yes_or_no("Only false: no tiered storage."), why_not_others=_NO_TIERING
        ),
    )
    remote_storage_enable: bool = field(
        default=False,
        metadata=_only(
            False, yes_or_no("Only false: no tiered storage."), why_not_others=_NO_TIERING
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
    "remote.copy.lag.bytes": _NO_TIERING,
    "remote.copy.lag.ms": _NO_TIERING,
}
