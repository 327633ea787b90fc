"""Removes old versions of a table, and deletes files that no version refers to: replaced files, and those of writers
that crashed.
"""

from dataclasses import dataclass

from respool.tables.errors import TableConflict
from respool.tables.formats.table_log import TableLog
from respool.tables.planning.expiring import FILES_KEPT_MS, KEPT_MS, VERSIONS_KEPT, expired


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryResult:
    versions: int = 0
    files: int = 0


def forget_versions(
    log: TableLog, *, now_ms: int, kept: int = VERSIONS_KEPT, kept_ms: int = KEPT_MS
) -> int:
    """Return how many versions were removed; 0 if another commit came first: the next run will remove them."""
    state = log.load()
    old = expired(log.versions(state), now_ms=now_ms, kept=kept, kept_ms=kept_ms)
    if not old:
        return 0
    try:
        log.forget(state, old)
    except TableConflict:
        return 0
    return len(old)


def expire(
    log: TableLog,
    *,
    now_ms: int,
    kept: int = VERSIONS_KEPT,
    kept_ms: int = KEPT_MS,
    files_kept_ms: int = FILES_KEPT_MS,
) -> ExpiryResult:
    versions = forget_versions(log, now_ms=now_ms, kept=kept, kept_ms=kept_ms)
    files = log.delete_unreferenced(log.load(), older_than_ms=files_kept_ms, now_ms=now_ms)
    return ExpiryResult(versions=versions, files=files)
