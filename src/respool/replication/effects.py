"""Effects of a partition's state machines, which only change their own state. `broker/` carries the effects out."""

from dataclasses import dataclass
from typing import TypeAlias

from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId, LeaderEpoch, Offset

# -- of a leader


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWatermarkMoved:
    """Records below this offset are committed; on a follower: known to be committed."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class LowWatermarkMoved:
    """All live or electable replicas have deleted the records below: DeleteRecords up to here is complete."""

    low_watermark: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginEpoch:
    """Write the epoch to the log, durably, before anything is appended in it."""

    leader_epoch: LeaderEpoch
    first_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeIsr:
    """Write the partition's key, guarded by `image.revision` and by the registrations of the joiners.

    On success: `on_image` with the new revision. On a failed guard: read the key, then `on_isr_refused`, then
    `on_image`. Without a reply: read the key, then `on_isr_unknown`, then `on_image`.
    """

    # The new state, with the revision that was read; 0 writes without a guard, which only tests do.
    image: PartitionImage
    # Broker ids, and the broker epochs that their registrations must have.
    joiners: tuple[tuple[BrokerId, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChanged:
    """The ISR in the store has changed; requests that wait for acks=all may be affected."""

    isr: tuple[BrokerId, ...]
    is_min_isr_met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SteppedDown:
    """This broker was deposed: fail all waiting requests with NotLeader, and act by the image."""

    image: PartitionImage


# -- of a follower


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Append the reply's records, then call `on_appended`; and `on_durable` when they are synced or need no sync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateTo:
    """Truncate the log, and remove epochs that begin at the offset or later, even without records; then `on_truncated`.

    The truncation must be durable: the follower's next fetch reports everything that is left as durable. If it fails
    without having changed anything, call `on_not_truncated` and wait a moment.
    """

    offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetLogTo:
    """Delete all records and epochs and continue at the offset. Then call `on_truncated`, or as with `TruncateTo`."""

    offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseLogStart:
    """The leader has deleted the records below this offset. Then call `on_log_start`."""

    log_start: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class AskLeaderRange:
    """Ask the leader for the start and end of its log (ListOffsets), then call `on_leader_range`."""

    leader: BrokerId
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFor:
    """Send no fetch before this delay has passed."""

    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpLeader:
    """The broker asked is not the leader, or has another leader epoch: read the partition from the store."""


LeaderEffect: TypeAlias = (
    HighWatermarkMoved | LowWatermarkMoved | BeginEpoch | ProposeIsr | IsrChanged | SteppedDown
)
FollowerEffect: TypeAlias = (
    Append
    | TruncateTo
    | ResetLogTo
    | RaiseLogStart
    | HighWatermarkMoved
    | AskLeaderRange
    | WaitFor
    | LookUpLeader
)
