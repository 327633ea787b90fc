"""The broker's own settings: one frozen value, checked as a whole.

Names are what the settings file and `RESPOOL_<NAME>` in the environment use. Topic settings under Kafka's names are
in `topic_config.py`; the defaults for new topics are the `topic` table here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property

from respool.model.addresses import is_loopback, is_wildcard, parse_address
from respool.model.config_rules import INT_MAX
from respool.model.errors import InvalidConfig, SettingsError
from respool.model.etcd_endpoints import host_of, parse_endpoints
from respool.model.topic_config import DAY_MS, MIB, MINUTE_MS, TopicConfig


def _setting(doc: str) -> dict[str, str]:
    return {"doc": doc}


@dataclass(frozen=True, kw_only=True)
class Settings:
    data: str = field(
        default="./respool-data", metadata=_setting("The data folder; one broker per folder.")
    )
    listen: str = field(
        default="127.0.0.1:9092",
        metadata=_setting("HOST:PORT to accept clients on; port 0 picks one."),
    )
    advertised: str = field(
        default="",
        metadata=_setting(
            "HOST:PORT advertised to clients, where it differs from listen; port 0 is the port of listen. "
            "Required where listen is 0.0.0.0 or [::]."
        ),
    )
    insecure: bool = field(
        default=False,
        metadata=_setting(
            "Allow listening beyond this machine although nothing authenticates clients."
        ),
    )
    broker_id: int = field(default=1, metadata=_setting("This broker's number in the cluster."))
    rack: str = field(default="", metadata=_setting("The rack or zone this broker stands in."))
    etcd: str = field(
        default="",
        metadata=_setting(
            "etcd's addresses, HOST:PORT or https://HOST:PORT, separated by commas; empty for a single broker."
        ),
    )
    cluster: str = field(
        default="respool",
        metadata=_setting("The cluster's name in etcd; its brokers all have the same."),
    )
    etcd_user: str = field(default="", metadata=_setting("The user to log in to etcd as."))
    # Not in any text made of the settings.
    etcd_password: str = field(
        default="",
        repr=False,
        metadata=_setting("That user's password. Never shown.") | {"is_secret": True},
    )
    etcd_password_file: str = field(
        default="", metadata=_setting("A file with that password, instead of etcd_password.")
    )
    etcd_ca_file: str = field(
        default="",
        metadata=_setting(
            "Certificates (PEM) of those who vouch for etcd; empty for whom this system trusts."
        ),
    )
    etcd_cert_file: str = field(
        default="", metadata=_setting("This broker's own certificate (PEM) towards etcd.")
    )
    etcd_key_file: str = field(
        default="",
        metadata=_setting("The key (PEM) of that certificate, where it is not in the same file."),
    )
    etcd_allow_old_versions: bool = field(
        default=False,
        metadata=_setting("Only warn of versions of etcd that have known faults; for development."),
    )
    etcd_wait_ms: int = field(
        default=30_000,
        metadata=_setting("How long a broker that starts waits for an etcd that does not answer."),
    )
    session_ttl_ms: int = field(
        default=9_000,
        metadata=_setting("A broker that etcd has not heard of this long is taken for dead."),
    )
    dead_after_refused_ms: int = field(
        default=1_000,
        metadata=_setting(
            "A broker whose address refuses connections this long is dead before etcd misses it; 0: never."
        ),
    )
    replica_lag_max_ms: int = field(
        default=10_000,
        metadata=_setting("A follower that has not caught up for so long is not in sync."),
    )
    replica_hurry_bytes: int = field(
        default=256 * 1024,
        metadata=_setting(
            "A follower that is sent so much at once fetches on while that is being synced."
        ),
    )
    dead_after_ms: int = field(
        default=600_000,
        metadata=_setting("Replicas of a broker that is missing for so long are made elsewhere."),
    )
    unclean_wait_ms: int = field(
        default=30_000,
        metadata=_setting(
            "Where a topic allows unclean election: so long one that lost nothing may take to return."
        ),
    )
    copies_per_broker_max: int = field(
        default=8,
        metadata=_setting("Partitions copied to or from a broker at once, when they are moved."),
    )
    copy_bytes_per_s_max: int = field(
        default=0,
        metadata=_setting("Bytes per second taken by such copies, to this broker; 0 for no limit."),
    )
    handover_max_ms: int = field(
        default=10_000,
        metadata=_setting("How long a broker that stops waits for others to lead in its place."),
    )
    metrics_listen: str = field(
        default="", metadata=_setting("HOST:PORT for Prometheus to scrape; empty for none.")
    )
    metrics_series_max: int = field(
        default=50_000,
        metadata=_setting("Series with names of topics, partitions or groups, at the most."),
    )
    metrics_topics_allow: str = field(
        default="*",
        metadata=_setting("Topics with series of their own: glob patterns, separated by commas."),
    )
    metrics_topics_deny: str = field(
        default="", metadata=_setting("Of those, the ones without: patterns again.")
    )
    metrics_groups_allow: str = field(
        default="*",
        metadata=_setting("Groups whose lag is published: glob patterns, separated by commas."),
    )
    metrics_groups_deny: str = field(
        default="", metadata=_setting("Of those, the ones whose lag is not: patterns again.")
    )
    metrics_lag_interval_ms: int = field(
        default=5_000,
        metadata=_setting("How often the lag of groups and the age of records are looked up."),
    )
    log_level: str = field(
        default="info",
        metadata=_setting("debug, info, warning or error; written to standard error."),
    )
    log_format: str = field(
        default="text",
        metadata=_setting("text, or json: one JSON object per line."),
    )

    auto_create_topics: bool = field(
        default=True, metadata=_setting("Create a topic when a client that allows it asks for it.")
    )
    num_partitions: int = field(
        default=1, metadata=_setting("Partitions of a topic created without saying how many.")
    )
    default_replication_factor: int = field(
        default=3,
        metadata=_setting(
            "Replicas of a topic created without saying how many; as many as there are brokers, at most."
        ),
    )
    partitions_max: int = field(
        default=10_000, metadata=_setting("Partitions this broker holds at the most.")
    )
    topic: Mapping[str, str] = field(
        default_factory=dict,
        metadata=_setting(
            "Defaults for topics, under Kafka's names: a table of its own in the file."
        ),
    )

    connections_max: int = field(
        default=5_000, metadata=_setting("Client connections at the same time.")
    )
    connections_per_address_max: int = field(
        default=2_000, metadata=_setting("Client connections from one address at the same time.")
    )
    connection_idle_ms: int = field(
        default=10 * MINUTE_MS,
        metadata=_setting("A connection without a request this long is closed."),
    )
    frame_bytes_max: int = field(
        default=100 * MIB, metadata=_setting("The largest request a client may send.")
    )
    frame_arrival_ms: int = field(
        default=MINUTE_MS, metadata=_setting("How long a begun request may take to arrive whole.")
    )
    reply_stall_ms: int = field(
        default=MINUTE_MS,
        metadata=_setting("How long a client may take nothing of a reply that waits for it."),
    )
    memory_bytes_max: int = field(
        default=256 * MIB,
        metadata=_setting("Memory for requests and replies under way, over all connections."),
    )
    fetch_bytes_max: int = field(
        default=16 * MIB, metadata=_setting("The most record bytes in one fetch reply.")
    )
    tail_bytes_max: int = field(
        default=32 * MIB,
        metadata=_setting(
            "Memory for what was produced last: who reads at the end of a log is served from it; 0 for none."
        ),
    )
    lend_files: bool = field(
        default=True,
        metadata=_setting(
            "Readers on this machine that may open the log's files take large reads from there, unsent."
        ),
    )
    fetch_sessions_max: int = field(
        default=1_000,
        metadata=_setting("Incremental fetch sessions (KIP-227) kept at the same time."),
    )
    requests_pipelined_max: int = field(
        default=64, metadata=_setting("Requests of one connection waiting for their reply.")
    )

    retention_check_ms: int = field(
        default=MINUTE_MS, metadata=_setting("How often old segments are looked for.")
    )
    checkpoint_ms: int = field(
        default=MINUTE_MS, metadata=_setting("How often recovery points are written down.")
    )
    compaction_check_ms: int = field(
        default=15_000,
        metadata=_setting("How often logs that are due for compaction are looked for."),
    )
    compaction_memory_bytes_max: int = field(
        default=128 * MIB,
        metadata=_setting(
            "Memory for the keys of one compaction, 24 bytes each; with more keys it takes more rounds."
        ),
    )
    producer_id_expiration_ms: int = field(
        default=DAY_MS, metadata=_setting("An idempotent producer silent this long is forgotten.")
    )
    io_threads: int = field(
        default=4, metadata=_setting("Threads for syncing, cold reads and deletions.")
    )
    stop_grace_ms: int = field(
        default=10_000,
        metadata=_setting("How long a stopping broker waits for requests under way."),
    )

    offsets_topic_partitions: int = field(
        default=50,
        metadata=_setting(
            "Partitions of the topic groups are kept in; of use only before there are groups."
        ),
    )
    offsets_topic_replication_factor: int = field(
        default=3,
        metadata=_setting(
            "Replicas of that topic, where there are so many brokers when it is made."
        ),
    )
    group_min_session_timeout_ms: int = field(
        default=6_000, metadata=_setting("The shortest session timeout a group's member may have.")
    )
    group_max_session_timeout_ms: int = field(
        default=30 * MINUTE_MS,
        metadata=_setting("The longest session timeout a group's member may have."),
    )
    group_initial_rebalance_delay_ms: int = field(
        default=3_000,
        metadata=_setting("How long a group without members waits for more after the first."),
    )
    group_max_size: int = field(
        default=INT_MAX, metadata=_setting("Members a group has at the most.")
    )
    group_consumer_session_timeout_ms: int = field(
        default=45_000,
        metadata=_setting("Members of next-generation groups (KIP-848) silent this long are out."),
    )
    group_consumer_heartbeat_interval_ms: int = field(
        default=5_000,
        metadata=_setting("How often members of next-generation groups are to be heard of."),
    )
    group_consumer_max_size: int = field(
        default=INT_MAX, metadata=_setting("Members a next-generation group has at the most.")
    )
    group_consumer_migration_policy: str = field(
        default="bidirectional",
        metadata=_setting(
            "How groups with members may change protocol: disabled, upgrade, downgrade, bidirectional."
        ),
    )
    offset_metadata_max_bytes: int = field(
        default=4_096, metadata=_setting("The longest text a client may commit with an offset.")
    )
    offsets_retention_minutes: int = field(
        default=7 * 24 * 60,
        metadata=_setting("How long the offsets of a group without members are kept."),
    )
    offsets_retention_check_interval_ms: int = field(
        default=10 * MINUTE_MS,
        metadata=_setting("How often offsets to be forgotten are looked for."),
    )

    transactions_topic_partitions: int = field(
        default=8,
        metadata=_setting(
            "Partitions of the topic transactions are kept in; of use only before there are any."
        ),
    )
    transaction_state_topic_replication_factor: int = field(
        default=3,
        metadata=_setting(
            "Replicas of that topic, where there are so many brokers when it is made."
        ),
    )
    transaction_max_timeout_ms: int = field(
        default=15 * MINUTE_MS,
        metadata=_setting("The longest time a producer may ask for its transactions to be open."),
    )
    transactional_id_expiration_ms: int = field(
        default=7 * DAY_MS,
        metadata=_setting("A transactional id that nobody used this long is forgotten."),
    )
    transactional_id_expiration_check_interval_ms: int = field(
        default=60 * MINUTE_MS,
        metadata=_setting("How often transactional ids to be forgotten are looked for."),
    )

    def __post_init__(self) -> None:
        self._check_numbers()
        host, _ = self.listen_address
        if not is_loopback(host) and not self.insecure:
            raise SettingsError(
                f"listen = {self.listen!r} would let anyone who reaches this machine read and write: clients are not "
                "authenticated. Listen on 127.0.0.1, or allow it on a trusted network with insecure = true "
                "(--insecure)"
            )
        _ = self.advertised_address, self.metrics_address, self.topic_defaults
        self._check_advertised()
        self._check_etcd()

    def _check_numbers(self) -> None:
        for name, low in _LOWEST.items():
            value = getattr(self, name)
            if value < low:
                raise SettingsError(f"{name} = {value} is below {low}")
        if self.frame_bytes_max > self.memory_bytes_max:
            raise SettingsError(
                f"frame_bytes_max = {self.frame_bytes_max} exceeds memory_bytes_max = {self.memory_bytes_max}: "
                "such a request could never be read"
            )
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise SettingsError(
                f"group_min_session_timeout_ms = {self.group_min_session_timeout_ms} exceeds "
                f"group_max_session_timeout_ms = {self.group_max_session_timeout_ms}"
            )
        if self.group_consumer_migration_policy not in MIGRATION_POLICIES:
            raise SettingsError(
                f"group_consumer_migration_policy = {self.group_consumer_migration_policy!r} is not one of "
                f"{', '.join(MIGRATION_POLICIES)}"
            )
        if self.log_level not in LOG_LEVELS:
            raise SettingsError(
                f"log_level = {self.log_level!r} is not one of {', '.join(LOG_LEVELS)}"
            )
        if self.log_format not in LOG_FORMATS:
            raise SettingsError(
                f"log_format = {self.log_format!r} is not one of {', '.join(LOG_FORMATS)}"
            )

    def _check_advertised(self) -> None:
        """Clients connect to the advertised address, so it must not be a wildcard.

        The host's name is no default: clients may be unable to resolve it, and then fail far from the cause.
        """
        host, _ = self.listen_address
        if self.advertised_address is None:
            if is_wildcard(host):
                raise SettingsError(
                    f"listen = {self.listen!r} accepts clients on every interface, but clients cannot connect to that "
                    "address. Set one that they can reach: advertised = 'HOST:PORT' (--advertised)"
                )
        elif is_wildcard(self.advertised_address[0]):
            raise SettingsError(
                f"advertised = {self.advertised!r} is not an address that clients can connect to"
            )

    def _check_etcd(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", self.cluster):
            raise SettingsError(
                f"cluster = {self.cluster!r} is not a name of up to 249 letters, digits, dots, dashes and underscores"
            )
        if not self.etcd:
            for name, default in _ONLY_WITH_ETCD.items():
                if getattr(self, name) != default:
                    raise SettingsError(f"{name} is of no use without etcd")
        if self.etcd_password and self.etcd_password_file:
            raise SettingsError(
                "etcd_password and etcd_password_file are both given; one is enough"
            )
        if bool(self.etcd_user) != bool(self.etcd_password or self.etcd_password_file):
            raise SettingsError(
                "etcd_user needs etcd_password or etcd_password_file, and they need etcd_user"
            )
        if self.etcd_key_file and not self.etcd_cert_file:
            raise SettingsError("etcd_key_file is of no use without etcd_cert_file")
        for url in self.etcd_endpoints:
            if url.startswith("http:") and not is_loopback(host_of(url)) and not self.insecure:
                raise SettingsError(
                    f"etcd = {self.etcd!r}: {url} is another machine, and nothing protects what is said on the way, "
                    "passwords included. Use https, or allow it on a trusted network with insecure = true (--insecure)"
                )

    @cached_property
    def etcd_endpoints(self) -> tuple[str, ...]:
        """Whole URLs; none: a single broker."""
        return parse_endpoints(self.etcd, is_tls=bool(self.etcd_ca_file or self.etcd_cert_file))

    @cached_property
    def listen_address(self) -> tuple[str, int]:
        return parse_address("listen", self.listen)

    @cached_property
    def advertised_address(self) -> tuple[str, int] | None:
        return parse_address("advertised", self.advertised) if self.advertised else None

    def advertised_for(self, host: str, port: int) -> tuple[str, int]:
        """The address that a broker which listens on this one advertises to clients."""
        if self.advertised_address is None:
            return host, port
        name, number = self.advertised_address
        return name, number or port

    @cached_property
    def metrics_address(self) -> tuple[str, int] | None:
        if not self.metrics_listen:
            return None
        host, port = parse_address("metrics_listen", self.metrics_listen)
        if not is_loopback(host) and not self.insecure:
            raise SettingsError(
                f"metrics_listen = {self.metrics_listen!r} is open to other machines; allow it with insecure = true"
            )
        return host, port

    @cached_property
    def topic_defaults(self) -> TopicConfig:
        try:
            return TopicConfig.parse(self.topic)
        except InvalidConfig as error:
            raise SettingsError(f"[topic] {error}") from None


# What they are when nobody has set them.
_ONLY_WITH_ETCD = {
    one.name: one.default
    for one in fields(Settings)
    if one.name.startswith("etcd_")
    or one.name
    in {
        "cluster",
        "session_ttl_ms",
        "dead_after_refused_ms",
        "replica_lag_max_ms",
        "replica_hurry_bytes",
        "dead_after_ms",
        "unclean_wait_ms",
        "copies_per_broker_max",
        "copy_bytes_per_s_max",
        "handover_max_ms",
    }
}
MIGRATION_POLICIES = ("disabled", "upgrade", "downgrade", "bidirectional")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")

_LOWEST = {
    "broker_id": 0,
    "metrics_series_max": 0,
    "metrics_lag_interval_ms": 100,
    # etcd knows no shorter lease.
    "etcd_wait_ms": 0,
    "session_ttl_ms": 2_000,
    "dead_after_refused_ms": 0,
    "replica_lag_max_ms": 500,
    "replica_hurry_bytes": 1,
    "dead_after_ms": 1_000,
    "unclean_wait_ms": 0,
    "copies_per_broker_max": 1,
    "copy_bytes_per_s_max": 0,
    "handover_max_ms": 0,
    "num_partitions": 1,
    "default_replication_factor": 1,
    "partitions_max": 1,
    "connections_max": 1,
    "connections_per_address_max": 1,
    "connection_idle_ms": 1_000,
    "frame_bytes_max": 1_024,
    "frame_arrival_ms": 1_000,
    "reply_stall_ms": 1_000,
    "memory_bytes_max": 1_024,
    "fetch_bytes_max": 1_024,
    "tail_bytes_max": 0,
    "fetch_sessions_max": 0,
    "requests_pipelined_max": 1,
    "retention_check_ms": 10,
    "checkpoint_ms": 10,
    "compaction_check_ms": 10,
    "compaction_memory_bytes_max": 1_024,
    "producer_id_expiration_ms": 1,
    "io_threads": 1,
    "stop_grace_ms": 0,
    "offsets_topic_partitions": 1,
    "offsets_topic_replication_factor": 1,
    "group_min_session_timeout_ms": 1,
    "group_max_session_timeout_ms": 1,
    "group_initial_rebalance_delay_ms": 0,
    "group_max_size": 1,
    "group_consumer_session_timeout_ms": 1,
    "group_consumer_heartbeat_interval_ms": 1,
    "group_consumer_max_size": 1,
    "offset_metadata_max_bytes": 0,
    "offsets_retention_minutes": 1,
    "offsets_retention_check_interval_ms": 1,
    "transactions_topic_partitions": 1,
    "transaction_state_topic_replication_factor": 1,
    "transaction_max_timeout_ms": 1,
    "transactional_id_expiration_ms": 1,
    "transactional_id_expiration_check_interval_ms": 1,
}


def is_secret(name: str) -> bool:
    """Whether the value of a setting is never to be shown. What is no setting of a broker's is none."""
    found = Settings.__dataclass_fields__.get(name)
    return found is not None and "is_secret" in found.metadata
