"""Declares settings: fields of nested groups, each with one flat name for files, environment and flags."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from respool.model.errors import SettingsError


def setting(
    default: Any,
    doc: str,
    *,
    name: str | None = None,
    low: int | None = None,
    needs_etcd: bool = False,
    is_secret: bool = False,
) -> Any:
    """A field that the operator can set. Other fields of a group are constants that only tests change.

    `name` is the flat name, if it differs from the field's; `low` is the smallest valid number; `needs_etcd` settings
    are refused for a single broker; `is_secret` values never appear in any text made from the settings.
    """
    metadata = {
        "doc": doc,
        "name": name,
        "low": low,
        "needs_etcd": needs_etcd,
        "is_secret": is_secret,
    }
    return field(default=default, repr=not is_secret, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingField:
    """One setting: its place in `Settings`, and everything that is needed to read its flat form."""

    name: str
    # None: a field of `Settings` itself.
    group: str | None
    attribute: str
    kind: type
    default: object
    doc: str
    low: int | None
    needs_etcd: bool
    is_secret: bool


def fields_of(group: type[Any], name: str | None = None) -> list[SettingField]:
    kinds = get_type_hints(group)
    return [
        SettingField(
            name=item.metadata["name"] or item.name,
            group=name,
            attribute=item.name,
            kind=kinds[item.name],
            default=item.default,
            doc=item.metadata["doc"],
            low=item.metadata["low"],
            needs_etcd=item.metadata["needs_etcd"],
            is_secret=item.metadata["is_secret"],
        )
        for item in dataclasses.fields(group)
        if "doc" in item.metadata
    ]


def check_lows(group: Any) -> None:
    """
    Raises:
        SettingsError: a number is below its lowest valid value.
    """
    for item in dataclasses.fields(group):
        low, value = item.metadata.get("low"), getattr(group, item.name)
        if low is not None and value < low:
            raise SettingsError(f"{item.metadata['name'] or item.name} = {value} is below {low}")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """
    Raises:
        SettingsError: the value is not one of the choices.
    """
    if value not in choices:
        raise SettingsError(f"{name} = {value!r} is not one of {', '.join(choices)}")


# -- aliases ---------------------------------------------------------------------------------------------------------

# Former names of settings; accepted with a warning until the next release.
OLD_NAMES: Mapping[str, str] = {
    "lend_files": "local_reads",
    "replica_hurry_bytes": "replica_fetch_ahead_bytes",
}

# Settings with the same meaning as one of Kafka's broker settings, and its name. Files and `--set` may use either.
# Kafka's tools show these names, and `respool.<name>` for all other settings.
KAFKA_NAMES: Mapping[str, str] = {
    "data": "log.dirs",
    "listen": "listeners",
    "advertised": "advertised.listeners",
    "broker_id": "node.id",
    "rack": "broker.rack",
    "sasl_enabled_mechanisms": "sasl.enabled.mechanisms",
    "ssl_client_auth": "ssl.client.auth",
    "ssl_principal_mapping_rules": "ssl.principal.mapping.rules",
    "ssl_protocols": "ssl.enabled.protocols",
    "connections_max_reauth_ms": "connections.max.reauth.ms",
    "connection_failed_authentication_delay_ms": "connection.failed.authentication.delay.ms",
    "sasl_server_max_receive_size": "sasl.server.max.receive.size",
    "sasl_oauthbearer_jwks_endpoint_url": "sasl.oauthbearer.jwks.endpoint.url",
    "sasl_oauthbearer_jwks_endpoint_refresh_ms": "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl_oauthbearer_expected_issuer": "sasl.oauthbearer.expected.issuer",
    "sasl_oauthbearer_expected_audience": "sasl.oauthbearer.expected.audience",
    "sasl_oauthbearer_sub_claim_name": "sasl.oauthbearer.sub.claim.name",
    "sasl_oauthbearer_clock_skew_seconds": "sasl.oauthbearer.clock.skew.seconds",
    "delegation_token_max_lifetime_ms": "delegation.token.max.lifetime.ms",
    "delegation_token_expiry_time_ms": "delegation.token.expiry.time.ms",
    "auto_create_topics": "auto.create.topics.enable",
    "num_partitions": "num.partitions",
    "default_replication_factor": "default.replication.factor",
    "connections_max": "max.connections",
    "connections_per_address_max": "max.connections.per.ip",
    "connection_idle_ms": "connections.max.idle.ms",
    "super_users": "super.users",
    "allow_everyone_if_no_acl_found": "allow.everyone.if.no.acl.found",
    "quota_window_num": "quota.window.num",
    "quota_window_size_seconds": "quota.window.size.seconds",
    "frame_bytes_max": "socket.request.max.bytes",
    "fetch_bytes_max": "fetch.max.bytes",
    "fetch_sessions_max": "max.incremental.fetch.session.cache.slots",
    "retention_check_ms": "log.retention.check.interval.ms",
    "checkpoint_ms": "log.flush.offset.checkpoint.interval.ms",
    "compaction_check_ms": "log.cleaner.backoff.ms",
    "compaction_memory_bytes_max": "log.cleaner.dedupe.buffer.size",
    "producer_id_expiration_ms": "producer.id.expiration.ms",
    "session_ttl_ms": "broker.session.timeout.ms",
    "replica_lag_max_ms": "replica.lag.time.max.ms",
    "offsets_topic_partitions": "offsets.topic.num.partitions",
    "offsets_topic_replication_factor": "offsets.topic.replication.factor",
    "transaction_state_topic_replication_factor": "transaction.state.log.replication.factor",
    "transactions_topic_partitions": "transaction.state.log.num.partitions",
    "transaction_max_timeout_ms": "transaction.max.timeout.ms",
    "transactional_id_expiration_ms": "transactional.id.expiration.ms",
    "transactional_id_expiration_check_interval_ms": "transaction.remove.expired.transaction.cleanup.interval.ms",
    "group_min_session_timeout_ms": "group.min.session.timeout.ms",
    "group_max_session_timeout_ms": "group.max.session.timeout.ms",
    "group_initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
    "group_max_size": "group.max.size",
    "group_consumer_session_timeout_ms": "group.consumer.session.timeout.ms",
    "group_consumer_min_session_timeout_ms": "group.consumer.min.session.timeout.ms",
    "group_consumer_max_session_timeout_ms": "group.consumer.max.session.timeout.ms",
    "group_consumer_heartbeat_interval_ms": "group.consumer.heartbeat.interval.ms",
    "group_consumer_min_heartbeat_interval_ms": "group.consumer.min.heartbeat.interval.ms",
    "group_consumer_max_heartbeat_interval_ms": "group.consumer.max.heartbeat.interval.ms",
    "group_consumer_max_size": "group.consumer.max.size",
    "group_consumer_migration_policy": "group.consumer.migration.policy",
    "group_share_session_timeout_ms": "group.share.session.timeout.ms",
    "group_share_min_session_timeout_ms": "group.share.min.session.timeout.ms",
    "group_share_max_session_timeout_ms": "group.share.max.session.timeout.ms",
    "group_share_heartbeat_interval_ms": "group.share.heartbeat.interval.ms",
    "group_share_min_heartbeat_interval_ms": "group.share.min.heartbeat.interval.ms",
    "group_share_max_heartbeat_interval_ms": "group.share.max.heartbeat.interval.ms",
    "group_share_record_lock_duration_ms": "group.share.record.lock.duration.ms",
    "group_share_min_record_lock_duration_ms": "group.share.min.record.lock.duration.ms",
    "group_share_max_record_lock_duration_ms": "group.share.max.record.lock.duration.ms",
    "group_share_delivery_count_limit": "group.share.delivery.count.limit",
    "group_share_min_delivery_count_limit": "group.share.min.delivery.count.limit",
    "group_share_max_delivery_count_limit": "group.share.max.delivery.count.limit",
    "group_share_partition_max_record_locks": "group.share.partition.max.record.locks",
    "group_share_min_partition_max_record_locks": "group.share.min.partition.max.record.locks",
    "group_share_max_partition_max_record_locks": "group.share.max.partition.max.record.locks",
    "group_share_max_size": "group.share.max.size",
    "group_share_max_share_sessions": "group.share.max.share.sessions",
    "errors_deadletterqueue_topic_name_prefix": "errors.deadletterqueue.topic.name.prefix",
    "errors_deadletterqueue_auto_create_topics_enable": "errors.deadletterqueue.auto.create.topics.enable",
    "share_coordinator_state_topic_partitions": "share.coordinator.state.topic.num.partitions",
    "share_coordinator_state_topic_replication_factor": "share.coordinator.state.topic.replication.factor",
    "share_coordinator_snapshot_update_records_per_snapshot": "share.coordinator.snapshot.update.records.per.snapshot",
    "share_coordinator_write_timeout_ms": "share.coordinator.write.timeout.ms",
    "share_coordinator_prune_interval_ms": "share.coordinator.state.topic.prune.interval.ms",
    "share_coordinator_cold_snapshot_interval_ms": "share.coordinator.cold.partition.snapshot.interval.ms",
    "offset_metadata_max_bytes": "offset.metadata.max.bytes",
    "offsets_retention_minutes": "offsets.retention.minutes",
    "offsets_retention_check_interval_ms": "offsets.retention.check.interval.ms",
}

# Kafka's broker settings that are the defaults of topic settings, if the names differ.
TOPIC_DEFAULT_NAMES: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.downconversion.enable": "log.message.downconversion.enable",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
}

# The same in coarser units, in Kafka's order of precedence after the name above: the topic setting, and the unit.
TOPIC_DEFAULTS_IN_UNITS: Mapping[str, tuple[str, int]] = {
    "log.retention.minutes": ("retention.ms", 60_000),
    "log.retention.hours": ("retention.ms", 3_600_000),
    "log.roll.hours": ("segment.ms", 3_600_000),
    "log.roll.jitter.hours": ("segment.jitter.ms", 3_600_000),
}

ALIASES: Mapping[str, str] = {
    **OLD_NAMES,
    **{kafka: name for name, kafka in KAFKA_NAMES.items()},
    **{kafka: f"topic.{name}" for name, kafka in TOPIC_DEFAULT_NAMES.items()},
    **{kafka: f"topic.{name}" for kafka, (name, _) in TOPIC_DEFAULTS_IN_UNITS.items()},
}
