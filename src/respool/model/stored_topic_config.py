"""A topic's configuration in the metadata store, read by a broker that may not know all of its settings.

During a rolling upgrade, a newer broker may have stored settings or values that this one does not know. This broker
still serves the topic, with safe values instead: it deletes nothing, and keeps the stronger guarantees.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from respool.model.archiving.archive_topic_settings import AS_RETENTION, check_archive_settings
from respool.model.config_rules import INT_MAX, LONG_MAX, parse_each
from respool.model.errors import InvalidConfig
from respool.model.kafka_settings.inert_topic_settings import REFUSED
from respool.model.kafka_settings.kafka_flush import OFF, resolve_flush
from respool.model.layouts.layout_settings import NOT_ELASTIC, check_layout_settings
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
# Taken for no archive, the log would start where the local part of it does.
_KEEP_LOCAL: Mapping[str, Any] = {"local_retention_ms": -1, "local_retention_bytes": -1}
_AS_RETENTION: Mapping[str, Any] = {
    "local_retention_ms": AS_RETENTION,
    "local_retention_bytes": AS_RETENTION,
}
_SYNC_ALL: Mapping[str, Any] = {
    "respool_flush": Flush.ALWAYS,
    "flush_messages": OFF,
    "flush_ms": OFF,
}
# Replacements for unknown values of these settings. For all other settings the broker's default is used.
_CAREFUL: Mapping[str, Mapping[str, Any]] = {
    "cleanup.policy": _KEEP_ALL,
    "retention.ms": _KEEP_ALL,
    "retention.bytes": _KEEP_ALL,
    "min.compaction.lag.ms": _KEEP_ALL,
    "delete.retention.ms": _KEEP_ALL,
    # Capped at the number of replicas, so this means all of them.
    "min.insync.replicas": {"min_insync_replicas": INT_MAX},
    "respool.flush": _SYNC_ALL,
    "flush.messages": _SYNC_ALL,
    "flush.ms": _SYNC_ALL,
    "local.retention.ms": _KEEP_LOCAL,
    "local.retention.bytes": _KEEP_LOCAL,
    "remote.storage.enable": {**_KEEP_ALL, **_KEEP_LOCAL, "remote_storage_enable": True},
    "remote.log.copy.disable": {"remote_log_copy_disable": True},
    "unclean.leader.election.enable": {"unclean_leader_election_enable": False},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopicConfig:
    config: TopicConfig
    # Why settings are not used as stored.
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
        values = parse_each(known, CONFIG_RULES, of="topic")
        try:
            values |= resolve_flush(values, messages=base.flush_messages, ms=base.flush_ms)
            values["respool_flush"] = Flush(values.get("respool_flush", base.respool_flush))
        except InvalidConfig as error:
            complaints.append(f"{error}; it is always")
            values |= _SYNC_ALL
        config = replace(base, **values)
        # If they contradict each other, the one that would compact more is ignored.
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            complaints.append(
                f"max.compaction.lag.ms = {config.max_compaction_lag_ms} is not kept to: it is below "
                f"min.compaction.lag.ms = {config.min_compaction_lag_ms}"
            )
            config = replace(config, max_compaction_lag_ms=config.min_compaction_lag_ms)
        config = replace(config, **careful)
        try:
            check_archive_settings(config)
        except InvalidConfig as error:
            complaints.append(f"{error}; nothing is deleted earlier for that")
            config = replace(config, **_AS_RETENTION)
            if config.is_compacted:
                policy = CleanupPolicies((CleanupPolicy.DELETE,))
                config = replace(config, cleanup_policy=policy, **_KEEP_ALL)
        try:
            check_layout_settings(config, is_compacted=config.is_compacted)
        except InvalidConfig as error:
            complaints.append(f"{error}; its number of partitions stays as it is")
            config = replace(config, **NOT_ELASTIC)
        return cls(config=config, complaints=tuple(complaints))


def understood(overrides: Mapping[str, str]) -> dict[str, str]:
    """The overrides that this version knows, each checked on its own."""
    return {name: text for name, text in overrides.items() if _complaint((name, text)) is None}


def _complaint(setting: tuple[str, str]) -> str | None:
    try:
        parse_each(dict([setting]), CONFIG_RULES, of="topic", refused=REFUSED)
    except InvalidConfig as error:
        return str(error)
    return None


def _nearest_policy(text: str) -> CleanupPolicies:
    """The policy according to the known words: with 'compact', records need keys, as others may compact the log."""
    is_compacted = CleanupPolicy.COMPACT in {word.strip() for word in text.split(",")}
    return CleanupPolicies((CleanupPolicy.COMPACT if is_compacted else CleanupPolicy.DELETE,))
