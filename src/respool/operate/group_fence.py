"""A forced reset: remove the members and set the offsets, with requests that every Kafka broker supports.

Members commit their own offsets, so a reset is rejected while the group has members, or they would overwrite it. A
removed member learns of it from its next heartbeat; it rejoins and starts from the committed offsets.

```
  ours       LeaveGroup(all members)  OffsetCommit(no member)  OffsetFetch        pipelined
  broker     the group is Empty       ... so this is allowed   and this shows it
  members    Heartbeat: UNKNOWN_MEMBER_ID -> JoinGroup -> OffsetFetch: the new offsets
```
A commit by a removed member is rejected, so it cannot undo the reset. If a member joins between the description of
the group and our requests, the commit is rejected and retried until the deadline.
"""

import time
from collections.abc import Callable, Mapping

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import COORDINATOR_RETRIED, Code, code_name
from respool.client.kafka.groups import (
    GroupDescription,
    OffsetAndMetadata,
    commit_fields,
    committed_in,
    describe_group,
    fetch_fields,
    leave_requests,
)
from respool.client.kafka.metadata import Place
from respool.model.operator_errors import OperatorError
from respool.operate.errors import client_errors_translated
from respool.wire.api_table import Api

PAUSE_SECONDS = 0.1
# The group was not empty, or its coordinator moved: describe it again, and retry.
_RETRIED = COORDINATOR_RETRIED | {
    Code.unknown_member_id,
    Code.illegal_generation,
    Code.rebalance_in_progress,
    Code.stale_member_epoch,
}
# In these states members wait for each other. Removed members would rejoin at once, so let the rebalance finish first.
_REBALANCING = {"PreparingRebalance", "CompletingRebalance"}


class NotFenced(OperatorError):
    """The group did not stay empty long enough to set its offsets, or the broker refused them."""


class GroupFence:
    """Sets the offsets of a group that has members."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        *,
        reason: str,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`reason` appears in the logs of the members' clients."""
        self._cluster = cluster
        self._group = group
        self._reason = reason
        self._clock = clock
        self._pause = pause

    def set_offsets(self, places: Mapping[Place, OffsetAndMetadata], *, seconds: float) -> int:
        """Remove the members and set the offsets; return how many members were removed.

        Raises:
            NotFenced: the time ran out; members may have been removed, the offsets are unchanged.
            Unreachable: the coordinator does not answer.
        """
        deadline = self._clock() + seconds
        while True:
            with client_errors_translated():
                group = describe_group(self._cluster, self._group)
            # In the second half of the time, do not wait for a rebalance to finish.
            may_wait = self._clock() < deadline - seconds / 2
            code = 0
            if group.state not in _REBALANCING or not may_wait:
                code = self._try(group, places)
                if code == 0:
                    return len(group.members)
            if self._clock() >= deadline:
                raise NotFenced(
                    f"the members of {self._group} rejoined each time before its offsets were set "
                    f"(tried for {seconds:.0f} seconds, last error: {code_name(code) if code else 'none'})",
                    hint="stop its consumers, then reset it without --force",
                )
            self._pause(PAUSE_SECONDS)

    def _try(self, group: GroupDescription, places: Mapping[Place, OffsetAndMetadata]) -> int:
        """Send all requests in one write. Returns 0, or the error code after which to describe the group again."""
        leaving = leave_requests(
            self._group, group.members, protocol=group.type, reason=self._reason
        )
        with client_errors_translated():
            connection = self._cluster.connect(
                self._cluster.coordinator(self._group, is_transaction=False)
            )
            try:
                replies = connection.request_all(
                    *leaving,
                    (Api.OFFSET_COMMIT, commit_fields(self._group, places)),
                    (Api.OFFSET_FETCH, fetch_fields(self._group, places)),
                )
            finally:
                self._cluster.release(connection)
        committed, fetched = replies[-2:]
        codes = {
            int(partition.error_code)
            for topic in committed.topics
            for partition in topic.partitions
            if partition.error_code
        }
        if codes <= _RETRIED:
            if codes:
                return max(codes)
            self._verify(committed_in(fetched), places)
            return 0
        refused = min(codes - _RETRIED)
        raise NotFenced(
            f"the broker refused the new offsets of {self._group}: {code_name(refused)} ({refused})"
        )

    def _verify(
        self, have: Mapping[Place, OffsetAndMetadata], places: Mapping[Place, OffsetAndMetadata]
    ) -> None:
        """Compare with the committed offsets, fetched right after the commit, before any member can change them."""
        for place, wanted in places.items():
            got = have.get(place)
            if got is None or got.offset != wanted.offset:
                topic, number = place
                raise NotFenced(
                    f"{topic}/{number} was set to {wanted.offset}, but the group has "
                    f"{'nothing' if got is None else got.offset} there"
                )
