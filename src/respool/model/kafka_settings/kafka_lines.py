"""Lines of a Kafka broker's server.properties that are not settings of Respool: why each is accepted or refused.

Lines that are settings, under another name, are in `setting_fields.ALIASES`; those that need more than a name
(`listeners`, `log.dirs`, `process.roles`, ...) are read by `node/kafka_properties.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLine:
    # What Respool does instead, or why it cannot.
    why: str
    # The values that are accepted, since they ask for what Respool does anyway; None: any value has no effect.
    accepted: tuple[str, ...] | None


def kafka_line(name: str) -> KafkaLine | None:
    """None: the line is unknown, or a setting of Respool."""
    line = _LINES.get(name)
    if line is None:
        line = next((one for prefix, one in _PREFIXES.items() if name.startswith(prefix)), None)
    return line


def _no_effect(why: str, *names: str) -> dict[str, KafkaLine]:
    return dict.fromkeys(names, KafkaLine(why=why, accepted=None))


_THREADS = "one event loop serves all requests, and io_threads threads use the disk"
_BUFFERS = "the operating system sizes the buffers of sockets"
_PACE = "Respool's brokers time their requests to each other themselves"
_COORDINATOR = "coordinators batch and load their records themselves"
_METRICS = "metrics are counters for Prometheus (metrics_listen), without windows"
_STREAMS = "streams groups (KIP-1071) are not served"
_TIERED = "the archive has settings of its own, which begin with archive; see docs/archive.md"
_KRAFT = "metadata is in metadata.sqlite of the data folder, or in etcd"
_SECURITY = "TLS and logins have settings of Respool's own: see docs/security.md"
_JAVA = "Java classes cannot be loaded"
_ZOOKEEPER = "there is no ZooKeeper: " + _KRAFT

_TUNING = {
    **_no_effect(
        _THREADS,
        "background.threads",
        "group.coordinator.background.threads",
        "group.coordinator.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.alter.log.dirs.threads",
        "num.replica.fetchers",
        "share.coordinator.threads",
    ),
    **_no_effect(
        _BUFFERS,
        "replica.socket.receive.buffer.bytes",
        "socket.listen.backlog.size",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
    ),
    **_no_effect(
        "requests_pipelined_max and memory_bytes_max limit requests in progress",
        "queued.max.requests",
    ),
    **_no_effect(
        "waiting requests are woken, not swept",
        "delete.records.purgatory.purge.interval.requests",
        "fetch.purgatory.purge.interval.requests",
        "producer.purgatory.purge.interval.requests",
        "share.fetch.purgatory.purge.interval.requests",
    ),
    **_no_effect(
        _COORDINATOR,
        "group.consumer.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.regex.refresh.interval.ms",
        "group.coordinator.append.linger.ms",
        "group.coordinator.cached.buffer.max.bytes",
        "group.share.assignment.interval.ms",
        "group.share.initialize.retry.interval.ms",
        "group.share.max.assignment.interval.ms",
        "group.share.min.assignment.interval.ms",
        "offsets.commit.timeout.ms",
        "offsets.load.buffer.size",
        "producer.id.expiration.check.interval.ms",
        "share.coordinator.append.linger.ms",
        "share.coordinator.cached.buffer.max.bytes",
        "share.coordinator.load.buffer.size",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "transaction.state.log.load.buffer.size",
    ),
    **_no_effect(
        _METRICS,
        "alter.log.dirs.replication.quota.window.num",
        "alter.log.dirs.replication.quota.window.size.seconds",
        "auto.include.jmx.reporter",
        "controller.quota.window.num",
        "controller.quota.window.size.seconds",
        "kafka.metrics.polling.interval.secs",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "replication.quota.window.num",
        "replication.quota.window.size.seconds",
        "telemetry.max.bytes",
    ),
    **_no_effect(
        _PACE,
        "add.partitions.to.txn.retry.backoff.max.ms",
        "add.partitions.to.txn.retry.backoff.ms",
        "broker.heartbeat.interval.ms",
        "connection.failed.authentication.delay.ms",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "controller.socket.timeout.ms",
        "initial.broker.registration.timeout.ms",
        "leader.imbalance.check.interval.seconds",
        "log.dir.failure.timeout.ms",
        "max.request.partition.size.limit",
        "replica.fetch.backoff.ms",
        "replica.fetch.max.bytes",
        "replica.fetch.min.bytes",
        "replica.fetch.response.max.bytes",
        "replica.fetch.wait.max.ms",
        "replica.socket.timeout.ms",
        "request.timeout.ms",
        "server.max.startup.time.ms",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "unclean.leader.election.interval.ms",
    ),
    **_no_effect(
        "checkpoint_ms (log.flush.offset.checkpoint.interval.ms) is the interval of all checkpoints",
        "log.flush.start.offset.checkpoint.interval.ms",
        "log.initial.task.delay.ms",
        "replica.high.watermark.checkpoint.interval.ms",
    ),
    **_no_effect(
        "compaction reads whole segments",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
    ),
}

_OF_KAFKAS_CLUSTERS = {
    **_no_effect(
        "messages are stored in format 2 only, as by Kafka from 4.0 on",
        "log.message.format.version",
    ),
    **_no_effect(
        _KRAFT,
        "broker.id.generation.enable",
        "early.start.listeners",
        "inter.broker.protocol.version",
        "reserved.broker.max.id",
    ),
    **_no_effect(
        "passwords are not stored",
        "password.encoder.cipher.algorithm",
        "password.encoder.iterations",
        "password.encoder.key.length",
        "password.encoder.keyfactory.algorithm",
        "password.encoder.old.secret",
        "password.encoder.secret",
    ),
}

# The accepted values, and why there are no others.
_FIXED: Mapping[str, tuple[tuple[str, ...], str]] = {
    "alter.config.policy.class.name": (("",), _JAVA),
    "auto.leader.rebalance.enable": (
        ("true",),
        "leadership always returns to the preferred leaders",
    ),
    "client.quota.callback.class": (("",), _JAVA),
    "config.providers": (("",), "values are read from this file only"),
    "control.plane.listener.name": (("",), "there is one listener"),
    "controlled.shutdown.enable": (("true",), "a stopping broker always hands over its partitions"),
    "cordoned.log.dirs": (("",), "there is one data folder"),
    "create.topic.policy.class.name": (("",), _JAVA),
    "delete.topic.enable": (("true",), "topics can always be deleted"),
    "follower.fetch.last.tiered.offset.enable": (("false",), _TIERED),
    "group.consumer.assignors": (
        ("uniform,range", "range,uniform", "uniform", "range"),
        "there are the assignors uniform and range",
    ),
    "group.coordinator.rebalance.protocols": (
        (
            "classic,consumer",
            "consumer,classic",
            "classic,consumer,streams",
            "classic,consumer,share",
            "classic,consumer,share,streams",
        ),
        "classic, consumer and share groups are always served, and no others",
    ),
    "group.share.assignors": (("simple",), "share groups have the assignor simple"),
    "group.share.persister.class.name": (
        ("org.apache.kafka.server.share.persister.DefaultStatePersister",),
        _JAVA,
    ),
    "kafka.metrics.reporters": (("",), "metrics are for Prometheus: see metrics_listen"),
    "leader.imbalance.per.broker.percentage": (("10",), "the limit is 10 percent"),
    "log.cleaner.enable": (("true",), "compacted topics are always compacted"),
    "log.cleaner.io.max.bytes.per.second": (
        ("1.7976931348623157E308",),
        "compaction has no limit of bytes per second",
    ),
    "log.flush.scheduler.interval.ms": (
        ("9223372036854775807",),
        "set respool.flush and respool.flush.interval.ms (docs/durability.md)",
    ),
    "log.message.timestamp.difference.max.ms": (
        ("9223372036854775807",),
        "set log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms, which replaced it in Kafka",
    ),
    "max.connection.creation.rate": (
        ("2147483647",),
        "the number of connections is limited, not their rate: max.connections, max.connections.per.ip",
    ),
    "max.connections.per.ip.overrides": (
        ("",),
        "there is one limit for all addresses: max.connections.per.ip",
    ),
    "metric.reporters": (
        ("", "org.apache.kafka.common.metrics.JmxReporter"),
        "metrics are for Prometheus: see metrics_listen",
    ),
    "offsets.commit.required.acks": (("-1",), "commits are always written to all replicas in sync"),
    "offsets.topic.compression.codec": (("0",), "__consumer_offsets is not compressed"),
    "offsets.topic.segment.bytes": (("104857600",), "segments of internal topics have 100 MiB"),
    "principal.builder.class": (
        ("", "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"),
        _SECURITY,
    ),
    "queued.max.request.bytes": (("-1",), "set memory_bytes_max"),
    "replica.selector.class": (("",), "consumers fetch from leaders"),
    "security.providers": (("",), _JAVA),
    "share.coordinator.state.topic.compression.codec": (
        ("0",),
        "__share_group_state is not compressed",
    ),
    "share.coordinator.state.topic.min.isr": (
        ("1", "2"),
        "the state of a share partition is on two replicas, if there are two",
    ),
    "share.coordinator.state.topic.segment.bytes": (
        ("104857600",),
        "segments of internal topics have 100 MiB",
    ),
    "transaction.partition.verification.enable": (
        ("true",),
        "a transaction's first write to a partition is always verified",
    ),
    "transaction.state.log.min.isr": (
        ("1", "2"),
        "a decision about a transaction is on two replicas, if there are two",
    ),
    "transaction.state.log.segment.bytes": (
        ("104857600",),
        "segments of internal topics have 100 MiB",
    ),
    "transaction.two.phase.commit.enable": (
        ("false",),
        "transactions always have a timeout, as a prepared one has in Kafka",
    ),
    "unstable.api.versions.enable": (("false",), "there are no unstable versions"),
    "unstable.feature.versions.enable": (("false",), "there are no unstable versions"),
}

_LINES: Mapping[str, KafkaLine] = {
    **_TUNING,
    "delegation.token.expiry.check.interval.ms": KafkaLine(
        why="expired delegation tokens are deleted when others are made", accepted=None
    ),
    **_OF_KAFKAS_CLUSTERS,
    **{name: KafkaLine(why=why, accepted=values) for name, (values, why) in _FIXED.items()},
    "remote.log.storage.system.enable": KafkaLine(why=_TIERED, accepted=("false",)),
    **{
        name: KafkaLine(why="it can only be set while the broker runs, as in Kafka", accepted=())
        for name in ("follower.replication.throttled.rate", "leader.replication.throttled.rate")
    },
}

_PREFIXES: Mapping[str, KafkaLine] = {
    "controller.": KafkaLine(why=_KRAFT, accepted=None),
    "delegation.token.": KafkaLine(
        why="the key of delegation tokens is in a file, which delegation_token_secret_key_file names",
        accepted=(),
    ),
    "group.streams.": KafkaLine(why=_STREAMS, accepted=None),
    "internal.metadata.": KafkaLine(why=_KRAFT, accepted=None),
    "metadata.": KafkaLine(why=_KRAFT, accepted=None),
    "remote.": KafkaLine(why=_TIERED, accepted=None),
    "sasl.": KafkaLine(why=_SECURITY, accepted=()),
    "zookeeper.": KafkaLine(why=_ZOOKEEPER, accepted=None),
}
