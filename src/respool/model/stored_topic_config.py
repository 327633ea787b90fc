"""A topic's settings as they are in the metadata store, read by a broker that may not understand all of them.

Brokers are upgraded one by one, and their defaults are changed one by one: a newer one may have stored what this one
does not know. It serves the topic all the same, and whatever it cannot tell, it deletes nothing for it, and promises no
less than it might have to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from respool.model.config_rules import INT_MAX, LONG_MAX, parse_each
from respool.model.errors import InvalidConfig
from respool.model.topic_config import (
    CONFIG_RULES,
    CleanupPolicies,
    CleanupPolicy,
    Flush,
    TopicConfig,
)

_KEEP_ALL: Mapping[str, Any] = {
    "retention_ms": -1,
    "retention_bytes": -1,
    "min_compaction_lag_ms": LONG_MAX,
    "max_compaction_lag_ms": LONG_MAX,
}
# What to go by in place of a value that is not understood. Of all others the broker's default will do.
_CAREFUL: Mapping[str, Mapping[str, Any]] = {
    "cleanup.policy": _KEEP_ALL,
    "retention.ms": _KEEP_ALL,
    "retention.bytes": _KEEP_ALL,
    "min.compaction.lag.ms": _KEEP_ALL,
    "delete.retention.ms": _KEEP_ALL,
    # No more than there are replicas are needed: all of them.
    "min.insync.replicas": {"min_insync_replicas": INT_MAX},
    "respool.flush": {"respool_flush": Flush.ALWAYS},
    "unclean.leader.election.enable": {"unclean_leader_election_enable": False},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopicConfig:
    config: TopicConfig
    # What is not as it is stored, and why.
    complaints: tuple[str, ...] = ()

    @classmethod
    def read(cls, overrides: Mapping[str, str], *, base: TopicConfig) -> "StoredTopicConfig":
        try:
            return cls(config=TopicConfig.parse(overrides, base=base))
        except InvalidConfig:
            pass
        known = understood(overrides)
        careful: dict[str, Any] = {}
        for name in overrides.keys() - known.keys():
            careful.update(_CAREFUL.get(name, {}))
        if "cleanup.policy" in overrides and "cleanup.policy" not in known:
            careful["cleanup_policy"] = _nearest_policy(overrides["cleanup.policy"])
        complaints = [why for why in map(_complaint, overrides.items()) if why is not None]
        config = replace(base, **parse_each(known, CONFIG_RULES, of="topic"))
        # They may not go together: then the one gives way that would have more compacted.
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            complaints.append(
                f"max.compaction.lag.ms = {config.max_compaction_lag_ms} is not kept to: it is below "
                f"min.compaction.lag.ms = {config.min_compaction_lag_ms}"
            )
            config = replace(config, max_compaction_lag_ms=config.min_compaction_lag_ms)
        return cls(config=replace(config, **careful), complaints=tuple(complaints))


def understood(overrides: Mapping[str, str]) -> dict[str, str]:
    """Those that mean something to this version, each by itself."""
    return {name: text for name, text in overrides.items() if _complaint((name, text)) is None}


def _complaint(setting: tuple[str, str]) -> str | None:
    try:
        parse_each(dict([setting]), CONFIG_RULES, of="topic")
    except InvalidConfig as error:
        return str(error)
    return None


def _nearest_policy(text: str) -> CleanupPolicies:
    """Whether records need keys, by the words that are known: who compacts later must find nothing else."""
    is_compacted = CleanupPolicy.COMPACT in {word.strip() for word in text.split(",")}
    return CleanupPolicies((CleanupPolicy.COMPACT if is_compacted else CleanupPolicy.DELETE,))
