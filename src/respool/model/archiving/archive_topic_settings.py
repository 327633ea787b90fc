"""The settings of a topic whose closed segments are archived: Kafka's, for tiered storage, and one of ours."""

from dataclasses import dataclass, field
from typing import Protocol

from respool.model.config_rules import LONG_MAX, long_between, yes_or_no
from respool.model.errors import InvalidConfig

# Kafka's value for "same as the topic's limit".
AS_RETENTION = -2
HOUR_MS = 3_600_000


@dataclass(frozen=True, kw_only=True)
class ArchiveTopicSettings:
    local_retention_bytes: int = field(
        default=AS_RETENTION,
        metadata=long_between(
            -2,
            LONG_MAX,
            "With remote.storage.enable: how large the part of a partition on the brokers' disks may grow before "
            "archived segments are removed there; -1 for no limit, -2 as retention.bytes.",
        ),
    )
    local_retention_ms: int = field(
        default=AS_RETENTION,
        metadata=long_between(
            -2,
            LONG_MAX,
            "With remote.storage.enable: how long archived segments stay on the brokers' disks; -1 for ever, -2 as "
            "retention.ms, so that the archive frees nothing.",
        ),
    )
    remote_log_copy_disable: bool = field(
        default=False,
        metadata=yes_or_no(
            "With remote.storage.enable: stop archiving; archived segments stay readable until they "
            "expire."
        ),
    )
    remote_log_delete_on_disable: bool = field(
        default=False,
        metadata=yes_or_no(
            "Whether the archived part of the log is deleted when remote.storage.enable is set to false; required "
            "for that."
        ),
    )
    remote_storage_enable: bool = field(
        default=False,
        metadata=yes_or_no(
            "Whether closed segments are archived, in the broker's archive, and readable there; see docs/archive.md."
        ),
    )
    respool_archive_max_age_ms: int = field(
        default=HOUR_MS,
        metadata=long_between(
            -1,
            LONG_MAX,
            "With remote.storage.enable: a segment that is older is closed, so that it is archived; -1 to wait until "
            "it is closed for another reason.",
        ),
    )


# A broker's defaults do not have them, as in Kafka, and a copy of a topic elsewhere does not take them over.
ARCHIVE_SETTINGS = frozenset(
    {
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)


class _WithRetention(Protocol):
    @property
    def remote_storage_enable(self) -> bool: ...
    @property
    def remote_log_copy_disable(self) -> bool: ...
    @property
    def local_retention_ms(self) -> int: ...
    @property
    def local_retention_bytes(self) -> int: ...
    @property
    def retention_ms(self) -> int: ...
    @property
    def retention_bytes(self) -> int: ...
    @property
    def is_compacted(self) -> bool: ...


def check_archive_settings(config: _WithRetention) -> None:
    """
    Raises:
        InvalidConfig: settings contradict each other, as Kafka refuses them.
    """
    if not config.remote_storage_enable:
        return
    if config.is_compacted:
        raise InvalidConfig(
            "remote.storage.enable = true cannot be combined with cleanup.policy = compact: compaction rewrites "
            "archived segments"
        )
    _check_local("ms", config.local_retention_ms, config.retention_ms)
    _check_local("bytes", config.local_retention_bytes, config.retention_bytes)
    if config.remote_log_copy_disable:
        for unit, local, whole in (
            ("ms", config.local_retention_ms, config.retention_ms),
            ("bytes", config.local_retention_bytes, config.retention_bytes),
        ):
            if local not in (AS_RETENTION, whole):
                raise InvalidConfig(
                    f"remote.log.copy.disable = true needs local.retention.{unit} = -2 or as retention.{unit} = "
                    f"{whole}, it is {local}: without copies nothing could be removed locally"
                )


def _check_local(unit: str, local: int, whole: int) -> None:
    is_too_much = local == -1 if whole != -1 else False
    if is_too_much or (local >= 0 and 0 <= whole < local):
        raise InvalidConfig(f"local.retention.{unit} = {local} is above retention.{unit} = {whole}")
