"""What the machines of a partition want done. They change nothing outside themselves; `broker/` does it."""

from dataclasses import dataclass
from typing import TypeAlias

from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId, LeaderEpoch, Offset

# -- of a leader


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWatermarkMoved:
    """All below is committed; of a follower: all below is known to be."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class LowWatermarkMoved:
    """Everyone who runs or may be elected has deleted what is before it: DeleteRecords up to here is done."""

    low_watermark: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginEpoch:
    """Enter the epoch in the log, durably, before anything is appended in it."""

    leader_epoch: LeaderEpoch
    first_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeIsr:
    """Write the partition's key, if its revision is still `image.revision` and every joiner is registered as here.

    The write succeeded: `on_image` with the new revision. It was refused: read the key, then `on_isr_refused`, then
    `on_image`. No answer came: read the key, then `on_isr_unknown`, then `on_image`.
    """

    # As it is to be, with the revision it was read with; 0 writes whatever is there, which only tests do.
    image: PartitionImage
    # Broker and the epoch its registration must have.
    joiners: tuple[tuple[BrokerId, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChanged:
    """The store has another ISR than before. Who waits for acks=all may want to know."""

    isr: tuple[BrokerId, ...]
    is_min_isr_met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SteppedDown:
    """This broker leads no more in this epoch: fail all who wait with NotLeader, and act by the image."""

    image: PartitionImage


# -- of a follower


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Append the reply's records, then `on_appended`; and `on_durable` when they are synced or need not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateTo:
    """Cut the log off there, and forget epochs that begin there or later, also if no record goes; then `on_truncated`.

    Durably: the follower's next fetch says that all that is left is here for good. Where it cannot be done for now, and
    nothing of it was, `on_not_truncated`, and wait a little.
    """

    offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAnewAt:
    """Drop all records and epochs and go on at that offset. Then `on_truncated`, or as with `TruncateTo`."""

    offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseLogStart:
    """The leader has deleted what is before it. Then `on_log_start`."""

    log_start: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class AskLeaderRange:
    """Ask the leader where its log starts and ends (ListOffsets), then `on_leader_range`."""

    leader: BrokerId
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFor:
    """Do not ask again before that."""

    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpLeader:
    """The broker asked is not the leader, or knows another epoch: see what the store says now."""


LeaderEffect: TypeAlias = (
    HighWatermarkMoved | LowWatermarkMoved | BeginEpoch | ProposeIsr | IsrChanged | SteppedDown
)
FollowerEffect: TypeAlias = (
    Append
    | TruncateTo
    | StartAnewAt
    | RaiseLogStart
    | HighWatermarkMoved
    | AskLeaderRange
    | WaitFor
    | LookUpLeader
)
