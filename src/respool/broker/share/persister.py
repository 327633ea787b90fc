"""What the leader of a partition needs of the share coordinator, which may be with another broker."""

from typing import Protocol

from respool.coordination.share.share_state import ShareKey, ShareState, ShareStateUpdate
from respool.model.ids import LeaderEpoch


class SharePersister(Protocol):
    """Reads and writes the stored state of share partitions.

    Both retry transient errors (coordinator unknown, loading, moved, unreachable) on their own, for at most
    `share.coordinator.write.timeout.ms`, and then raise the last of them: whether a write took place is unknown then.
    """

    async def read(self, key: ShareKey, leader_epoch: LeaderEpoch) -> ShareState:
        """The stored state; writes of leaders with a lower epoch are refused from now on.

        Raises:
            GroupIdNotFound: the group never was initialized for this partition: no member subscribes to the topic.
            FencedLeaderEpoch: a leader with a higher epoch has read it.
            RequestError: any other error of the coordinator; `retriable` says whether asking again may help.
        """
        ...

    async def write(self, key: ShareKey, update: ShareStateUpdate) -> None:
        """Apply the update; returns when it is committed. The caller has one write under way for each key.

        Raises:
            FencedStateEpoch: the state was initialized again since this leader has read it.
            FencedLeaderEpoch: a leader with a higher epoch has read it.
            GroupIdNotFound: the state was deleted.
            RequestError: any other error of the coordinator.
        """
        ...
