"""The follower's side of a fetch session (KIP-227): requests name only what changed, replies only partitions with news.

The session covers exactly the partitions that are fetched now; others are removed with the next request. For each
partition in the session the leader takes every fetch as confirmation of the follower's last fetch offset.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from respool.broker.partitions.partition import Partition
from respool.model.ids import Offset
from respool.replication.follower import Fetched, FetchFrom

NO_SESSION = 0
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """The session's part of a fetch request."""

    session_id: int
    epoch: int
    changed: Mapping[Partition, FetchFrom]
    forgotten: tuple[Partition, ...]


class ReplicaSession:
    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        # The fetches that the leader has in the session; None for one that must be sent again in any case.
        self._sent: dict[Partition, FetchFrom | None] = {}
        # The high watermark and log start that the leader last reported.
        self._told: dict[Partition, tuple[Offset, Offset]] = {}

    def next_request(self, asked: Mapping[Partition, FetchFrom]) -> SessionRequest:
        forgotten = tuple(one for one in self._sent if one not in asked)
        for partition in forgotten:
            del self._sent[partition]
            self._told.pop(partition, None)
        changed = {one: fetch for one, fetch in asked.items() if self._sent.get(one) != fetch}
        self._sent.update(changed)
        return SessionRequest(
            session_id=self._id, epoch=self._epoch, changed=changed, forgotten=forgotten
        )

    def on_reply(
        self, session_id: int, told: Mapping[Partition, Fetched]
    ) -> dict[Partition, Fetched]:
        """Return the results for all requested partitions: those that are not in the reply are unchanged."""
        answers = dict(told)
        if session_id == NO_SESSION or self._id not in (NO_SESSION, session_id):
            # The leader has no session for us.
            self.reset()
            return answers
        self._id = session_id
        self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1
        for partition in self._sent:
            fetched = told.get(partition)
            if fetched is None:
                if partition in self._told:
                    high_watermark, log_start = self._told[partition]
                    answers[partition] = Fetched(high_watermark=high_watermark, log_start=log_start)
            elif fetched.error:
                self._sent[partition] = None
                self._told.pop(partition, None)
            else:
                self._told[partition] = (fetched.high_watermark, fetched.log_start)
        return answers

    def reset(self) -> None:
        """The leader's session state is unknown: begin a new session."""
        self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        self._sent.clear()
        self._told.clear()
