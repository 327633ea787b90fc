"""Settings of a broker in a cluster: etcd, membership, replication and the controller's decisions."""

import re
from dataclasses import dataclass
from functools import cached_property

from respool.model.errors import SettingsError
from respool.model.etcd_endpoints import parse_endpoints
from respool.model.setting_fields import check_lows, setting


@dataclass(frozen=True, kw_only=True)
class EtcdSettings:
    addresses: str = setting(
        "",
        "Addresses of etcd, HOST:PORT or https://HOST:PORT, separated by commas; empty: a single broker.",
        name="etcd",
    )
    cluster: str = setting(
        "respool",
        "Name of the cluster in etcd; the same for all of its brokers.",
        needs_etcd=True,
    )
    user: str = setting("", "User name for etcd.", name="etcd_user", needs_etcd=True)
    password: str = setting(
        "",
        "Password of that user. Never shown.",
        name="etcd_password",
        needs_etcd=True,
        is_secret=True,
    )
    password_file: str = setting(
        "",
        "File with that password, instead of etcd_password.",
        name="etcd_password_file",
        needs_etcd=True,
    )
    ca_file: str = setting(
        "",
        "CA bundle (PEM) for etcd; empty: the system trust store.",
        name="etcd_ca_file",
        needs_etcd=True,
    )
    cert_file: str = setting(
        "",
        "Client certificate (PEM) of this broker for etcd.",
        name="etcd_cert_file",
        needs_etcd=True,
    )
    key_file: str = setting(
        "",
        "Key (PEM) of that certificate, if it is not in the same file.",
        name="etcd_key_file",
        needs_etcd=True,
    )
    allow_old_versions: bool = setting(
        False,
        "Warn about versions of etcd with known faults instead of refusing them; for development.",
        name="etcd_allow_old_versions",
        needs_etcd=True,
    )
    wait_ms: int = setting(
        30_000,
        "How long a starting broker waits for etcd to answer.",
        name="etcd_wait_ms",
        low=0,
        needs_etcd=True,
    )

    def __post_init__(self) -> None:
        check_lows(self)
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", self.cluster):
            raise SettingsError(
                f"cluster = {self.cluster!r} is not a name of up to 249 letters, digits, dots, dashes and underscores"
            )

    def check_login(self) -> None:
        """
        Raises:
            SettingsError: the login or TLS settings contradict each other.
        """
        if self.password and self.password_file:
            raise SettingsError(
                "etcd_password and etcd_password_file are both given; one is enough"
            )
        if bool(self.user) != bool(self.password or self.password_file):
            raise SettingsError(
                "etcd_user needs etcd_password or etcd_password_file, and they need etcd_user"
            )
        if self.key_file and not self.cert_file:
            raise SettingsError("etcd_key_file needs etcd_cert_file")

    @cached_property
    def endpoints(self) -> tuple[str, ...]:
        """Complete URLs; empty for a single broker."""
        return parse_endpoints(self.addresses, is_tls=bool(self.ca_file or self.cert_file))


@dataclass(frozen=True, kw_only=True)
class MembershipSettings:
    # etcd does not grant shorter leases.
    session_ttl_ms: int = setting(
        9_000,
        "A broker that has not renewed its lease in etcd for this long is dead.",
        low=2_000,
        needs_etcd=True,
    )
    dead_after_refused_ms: int = setting(
        1_000,
        "A broker whose address refuses connections for this long is dead before its lease expires; 0: never.",
        low=0,
        needs_etcd=True,
    )
    handover_max_ms: int = setting(
        10_000,
        "How long a stopping broker waits for other brokers to take over its leaderships.",
        low=0,
        needs_etcd=True,
    )

    def __post_init__(self) -> None:
        check_lows(self)


@dataclass(frozen=True, kw_only=True)
class ReplicationSettings:
    replica_lag_max_ms: int = setting(
        10_000,
        "A follower that has not caught up for this long leaves the ISR.",
        low=500,
        needs_etcd=True,
    )
    replica_fetch_ahead_bytes: int = setting(
        256 * 1024,
        "A follower that receives this much in one reply sends its next fetch before the sync is done.",
        low=1,
        needs_etcd=True,
    )
    copy_bytes_per_s_max: int = setting(
        0,
        "Bytes per second for copies of partitions that are moved to this broker; 0: no limit.",
        low=0,
        needs_etcd=True,
    )

    def __post_init__(self) -> None:
        check_lows(self)


@dataclass(frozen=True, kw_only=True)
class ControllerSettings:
    dead_after_ms: int = setting(
        600_000,
        "Replicas of a broker that is missing for this long are moved to other brokers.",
        low=1_000,
        needs_etcd=True,
    )
    unclean_wait_ms: int = setting(
        30_000,
        "If unclean election is enabled: how long to wait for a replica with all committed records to return.",
        low=0,
        needs_etcd=True,
    )
    copies_per_broker_max: int = setting(
        8,
        "Maximum number of partitions copied to, and from, one broker at a time by reassignments.",
        low=1,
        needs_etcd=True,
    )
    offsets_topic_replication_factor: int = setting(
        3, "Replication factor of __consumer_offsets, at most the number of brokers.", low=1
    )
    transaction_state_topic_replication_factor: int = setting(
        3, "Replication factor of __transaction_state, at most the number of brokers.", low=1
    )
    share_coordinator_state_topic_replication_factor: int = setting(
        3, "Replication factor of __share_group_state, at most the number of brokers.", low=1
    )
    # If more than this share of the partitions whose preferred leader is a broker have another leader, leadership
    # returns to that broker.
    leader_imbalance_max: float = 0.10
    # Partitions that belong to no topic for this long are left over from an interrupted creation.
    stray_after_ms: int = 60_000

    def __post_init__(self) -> None:
        check_lows(self)
