"""Which messages of transactions a reader sees."""

from enum import StrEnum


class Isolation(StrEnum):
    """By Kafka's names for its consumers' `isolation.level`."""

    # Only what counts: nothing of a transaction that was aborted, and nothing beyond the first that is still open.
    READ_COMMITTED = "read_committed"
    # All there is in the log.
    READ_UNCOMMITTED = "read_uncommitted"
