"""What applies to one share group: its own settings within the broker's limits, else the broker's settings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOffsetReset:
    """Where a share group begins in a partition that it has no state of: `share.auto.offset.reset`."""

    # Kafka's words: "latest", "earliest", "by_duration".
    kind: str = "latest"
    # Of by_duration: begin with the first record that is at most this old.
    duration_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupSettings:
    """The defaults are those of a group without settings of its own."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    # An acquired record belongs to its member for this long.
    lock_duration_ms: int = 30_000
    # A record that comes back after as many deliveries is archived, or becomes a dead letter.
    delivery_count_limit: int = 5
    # Maximum number of unfinished records in flight, for each partition.
    record_locks_max: int = 2_000
    offset_reset: ShareOffsetReset = ShareOffsetReset()
    read_committed: bool = False
    renew_enabled: bool = True
    # The pause before the n-th redelivery; the last one repeats. Empty: none.
    retry_delays_ms: tuple[int, ...] = ()
    # None: records that cannot be handled are archived without a letter.
    dead_letter_topic: str | None = None
    # False: a letter has the headers that name the record, and neither its key nor its value.
    dead_letter_copies_record: bool = True
    order_by_key: bool = False
    # With order_by_key: how many unfinished records of one key a member may hold.
    key_inflight_max: int = 1
