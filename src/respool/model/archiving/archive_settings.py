"""A broker's settings of the archive."""

from dataclasses import dataclass

from respool.model.errors import SettingsError
from respool.model.setting_fields import check_lows, setting

MIB = 1024 * 1024
HOUR_MS = 3_600_000


@dataclass(frozen=True, kw_only=True)
class ArchiveSettings:
    address: str = setting(
        "",
        "Address of the archive, for closed segments of topics with remote.storage.enable: file:///folder, "
        "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or hdfs://host:port/folder; empty: no archive.",
        name="archive",
    )
    endpoint: str = setting(
        "",
        "URL of an S3-compatible server; empty: the provider's own.",
        name="archive_endpoint",
    )
    region: str = setting("", "The bucket's region.", name="archive_region")
    credentials_file: str = setting(
        "",
        "A file of lines name=value with the store's keys and other options, as obstore or Hadoop name them; empty: "
        "from the environment.",
        name="archive_credentials_file",
    )
    check_ms: int = setting(
        30_000,
        "Interval between checks for segments to archive, to expire and to delete.",
        name="archive_check_ms",
        low=10,
    )
    uploads_max: int = setting(
        2, "Maximum number of concurrent uploads of segments.", name="archive_uploads_max", low=1
    )
    part_bytes: int = setting(
        16 * MIB,
        "Size of the parts of an upload, two of which are in memory for each.",
        name="archive_part_bytes",
        low=64 * 1024,
    )
    upload_bytes_per_s_max: int = setting(
        0, "Limit for all uploads; 0: none.", name="archive_upload_bytes_per_s_max", low=0
    )
    retry_ms_max: int = setting(
        30_000,
        "Maximum delay between retries while the store fails.",
        name="archive_retry_ms_max",
        low=1,
    )
    read_ahead_bytes: int = setting(
        16 * MIB,
        "Bytes to read ahead of sequential readers of archived segments; 0: none.",
        name="archive_read_ahead_bytes",
        low=0,
    )
    cache_bytes_max: int = setting(
        64 * MIB,
        "Memory to cache pieces of archived segments, 4 MiB each; downloads may use as much again.",
        name="archive_cache_bytes_max",
        low=4 * MIB,
    )
    fetch_wait_ms: int = setting(
        2_000,
        "How long a fetch waits for archived records before it is answered without them; their download continues.",
        name="archive_fetch_wait_ms",
        low=1,
    )
    lookup_ms: int = setting(
        30_000,
        "How long the store may fail before readers get KAFKA_STORAGE_ERROR; also the time limit of a lookup by time.",
        name="archive_lookup_ms",
        low=1,
    )
    delete_delay_ms: int = setting(
        HOUR_MS,
        "How long to keep objects that are no longer referenced: readers of the bucket may have an older manifest.",
        name="archive_delete_delay_ms",
        low=0,
    )

    def __post_init__(self) -> None:
        check_lows(self)
        if "@" in self.address.partition("://")[2].partition("/")[0]:
            raise SettingsError(
                "archive: the address must not contain credentials; name a file with archive_credentials_file"
            )
