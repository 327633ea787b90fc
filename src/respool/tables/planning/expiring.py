"""Decides which versions of a table expire. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

VERSIONS_KEPT = 100
KEPT_MS = 5 * 24 * 3_600_000
# Longer than any query: files must not be deleted while a query reads them.
FILES_KEPT_MS = 3 * 24 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownVersion:
    id: int
    made_ms: int


def expired(
    versions: Sequence[KnownVersion],
    *,
    now_ms: int,
    kept: int = VERSIONS_KEPT,
    kept_ms: int = KEPT_MS,
) -> list[int]:
    """Return the ids of versions, given from old to new, that are beyond the newest `kept`, or older than `kept_ms`.

    Never the newest one: it is the table.
    """
    last = len(versions) - 1
    return [
        one.id
        for number, one in enumerate(versions)
        if number < last and (number <= last - kept or one.made_ms < now_ms - kept_ms)
    ]
