"""Settings of one broker: its network, memory, disk, metrics and log output."""

from dataclasses import dataclass
from functools import cached_property

from respool.model.addresses import parse_address
from respool.model.errors import SettingsError
from respool.model.setting_fields import check_choice, check_lows, setting
from respool.model.topic_config import DAY_MS, MIB, MINUTE_MS

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    listen: str = setting(
        "127.0.0.1:9092", "HOST:PORT to accept client connections on; port 0 picks a free port."
    )
    advertised: str = setting(
        "",
        "HOST:PORT advertised to clients, if it differs from listen; port 0 is the port of listen. Required if listen "
        "is 0.0.0.0 or [::].",
    )
    insecure: bool = setting(
        False,
        "Allow listening beyond this machine although clients are not authenticated or not encrypted.",
    )
    connections_max: int = setting(5_000, "Maximum number of client connections.", low=1)
    connections_per_address_max: int = setting(
        2_000, "Maximum number of client connections from one IP address.", low=1
    )
    connection_idle_ms: int = setting(
        10 * MINUTE_MS, "Close a connection after this long without a request.", low=1_000
    )
    frame_bytes_max: int = setting(100 * MIB, "Maximum size of a client's request.", low=1_024)
    frame_arrival_ms: int = setting(
        MINUTE_MS, "Maximum time for a request to arrive completely.", low=1_000
    )
    reply_stall_ms: int = setting(
        MINUTE_MS,
        "Close a connection if the client reads nothing of a pending reply for this long.",
        low=1_000,
    )
    memory_bytes_max: int = setting(
        256 * MIB, "Memory for requests and replies in progress, over all connections.", low=1_024
    )
    requests_pipelined_max: int = setting(
        64, "Maximum number of requests of one connection that wait for their reply.", low=1
    )

    def __post_init__(self) -> None:
        check_lows(self)
        if self.frame_bytes_max > self.memory_bytes_max:
            raise SettingsError(
                f"frame_bytes_max = {self.frame_bytes_max} exceeds memory_bytes_max = {self.memory_bytes_max}: "
                "such a request could never be read"
            )

    @cached_property
    def listen_address(self) -> tuple[str, int]:
        return parse_address("listen", self.listen)


@dataclass(frozen=True, kw_only=True)
class BrokerFetchSettings:
    fetch_bytes_max: int = setting(
        16 * MIB, "Maximum number of record bytes in one fetch reply.", low=1_024
    )
    tail_bytes_max: int = setting(
        32 * MIB,
        "Memory for the newest batches, from which consumers at the log end are served; 0: none.",
        low=0,
    )
    local_reads: bool = setting(
        True,
        "Let readers on this machine that may open the log's files read large ranges from the files directly.",
    )
    fetch_sessions_max: int = setting(
        1_000, "Maximum number of incremental fetch sessions (KIP-227).", low=0
    )
    view_cache_bytes_max: int = setting(
        32 * MIB,
        "Memory for what views show of the batches read last; 0: none.",
        low=0,
    )
    view_scan_bytes_max: int = setting(
        64 * MIB,
        "Maximum number of bytes of the log that one fetch scans for records that a view shows.",
        low=1_024,
    )

    def __post_init__(self) -> None:
        check_lows(self)


@dataclass(frozen=True, kw_only=True)
class DelaySettings:
    delay_memory_bytes_max: int = setting(
        64 * MIB,
        "Memory for delayed records that are due soon, over all partitions; what waits longer is on disk.",
        low=MIB,
    )
    delay_deliveries_per_s_max: int = setting(
        0,
        "Maximum number of delayed records delivered per second, for example after downtime; 0: no limit.",
        low=0,
    )

    def __post_init__(self) -> None:
        check_lows(self)


@dataclass(frozen=True, kw_only=True)
class StorageSettings:
    retention_check_ms: int = setting(
        MINUTE_MS, "Interval between checks for segments to delete.", low=10
    )
    checkpoint_ms: int = setting(
        MINUTE_MS,
        "Interval between writes of the recovery-point and high-watermark checkpoints.",
        low=10,
    )
    compaction_check_ms: int = setting(
        15_000, "Interval between checks for logs to compact.", low=10
    )
    compaction_memory_bytes_max: int = setting(
        128 * MIB,
        "Memory for the keys of one compaction, 24 bytes each; more keys need more rounds.",
        low=1_024,
    )
    tag_index_check_ms: int = setting(
        5_000, "Interval between checks for logs whose tag index is not complete.", low=10
    )
    producer_id_expiration_ms: int = setting(
        DAY_MS, "Forget an idempotent producer after this long without a batch.", low=1
    )
    io_threads: int = setting(4, "Threads for syncs, reads from disk and deletions.", low=1)

    def __post_init__(self) -> None:
        check_lows(self)


@dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    listen: str = setting(
        "", "HOST:PORT for Prometheus to scrape; empty: none.", name="metrics_listen"
    )
    token_file: str = setting(
        "",
        "File with the token that scrapes show (Authorization: Bearer); a replaced file counts at once. "
        "Empty: everybody who reaches metrics_listen sees all metrics.",
        name="metrics_token_file",
    )
    certificate_file: str = setting(
        "",
        "Certificate with its chain and key (PEM), with which metrics_listen serves TLS; replaced files are noticed.",
        name="metrics_certificate_file",
    )
    series_max: int = setting(
        50_000,
        "Maximum number of time series that name a topic, a partition or a group.",
        name="metrics_series_max",
        low=0,
    )
    topics_allow: str = setting(
        "*",
        "Topics with time series of their own: glob patterns, separated by commas.",
        name="metrics_topics_allow",
    )
    topics_deny: str = setting(
        "", "Topics excluded from metrics_topics_allow: glob patterns.", name="metrics_topics_deny"
    )
    groups_allow: str = setting(
        "*",
        "Groups whose lag is exported: glob patterns, separated by commas.",
        name="metrics_groups_allow",
    )
    groups_deny: str = setting(
        "", "Groups excluded from metrics_groups_allow: glob patterns.", name="metrics_groups_deny"
    )
    lag_interval_ms: int = setting(
        5_000,
        "Interval between measurements of group lag and record age.",
        name="metrics_lag_interval_ms",
        low=100,
    )

    def __post_init__(self) -> None:
        check_lows(self)

    @cached_property
    def address(self) -> tuple[str, int] | None:
        return parse_address("metrics_listen", self.listen) if self.listen else None


@dataclass(frozen=True, kw_only=True)
class LogOutputSettings:
    level: str = setting(
        "info", "debug, info, warning or error; written to standard error.", name="log_level"
    )
    format: str = setting("text", "text, or json: one JSON object per line.", name="log_format")

    def __post_init__(self) -> None:
        check_choice("log_level", self.level, LOG_LEVELS)
        check_choice("log_format", self.format, LOG_FORMATS)
