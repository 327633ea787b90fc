"""Fetch sessions (KIP-227): requests and replies of a consumer of many partitions contain only what changed.

```
 request             meaning                                      reply
 id 0, epoch -1      no session                                   everything, id 0
 id 0, epoch 0       all wanted partitions; start a session       everything, a new id (or 0: no slot free)
 id n, epoch 0       close session n; start another               everything, a new id
 id n, epoch -1      close session n                              everything, id 0
 id n, epoch k > 0   changes since k - 1                          partitions with news
```
A client that is out of step gets an error and starts over with epoch 0. Nothing is lost: a session holds no data,
only the partitions to fetch.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from respool.model.errors import (
    FetchSessionNotFound,
    FetchSessionTopicIdMismatch,
    InvalidFetchSessionEpoch,
)
from respool.ports.random_source import RandomSource

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
# A session used more recently than this is not evicted for a new one (Kafka's two minutes).
EVICTABLE_AFTER_MS = 120_000

# Topics are named by id from Fetch v13 on, and by name before; a session uses one of the two throughout.
TopicRef: TypeAlias = str | UUID


@dataclass(slots=True, kw_only=True)
class FetchTarget:
    """One partition to fetch, and the state last reported to the reader."""

    topic: TopicRef
    partition: int
    fetch_offset: int
    bytes_max: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    # A follower's log start, and the end of what is durable there, if it sends them.
    log_start: int = -1
    durable_end: int = -1
    sent_high_watermark: int = -1
    sent_log_start: int = -1

    @property
    def key(self) -> tuple[TopicRef, int]:
        return self.topic, self.partition


@dataclass(slots=True, kw_only=True)
class FetchSession:
    id: int
    # The epoch the next request must carry.
    epoch: int
    uses_topic_ids: bool
    used_at_ms: int
    # Who started it. Its number alone gives nobody access to it.
    owner: Hashable = None
    # In the order in which they are served: a partition that returned data moves to the end.
    targets: dict[tuple[TopicRef, int], FetchTarget] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class FetchScope:
    """The partitions that one fetch request covers."""

    targets: list[FetchTarget]
    # The session id for the reply; 0 for no session.
    session_id: int
    # Only partitions with news are in the reply.
    is_incremental: bool
    session: FetchSession | None = None

    def on_served(self, target: FetchTarget) -> None:
        """Move the target to the end, since it returned data: the others come first next time."""
        if self.session is not None:
            moved = self.session.targets.pop(target.key, None)
            if moved is not None:
                self.session.targets[target.key] = moved


class FetchSessions:
    def __init__(self, *, sessions_max: int, rng: RandomSource) -> None:
        self._sessions_max = sessions_max
        self._rng = rng
        # In order of last use, least recent first.
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def scope(
        self,
        *,
        session_id: int,
        epoch: int,
        targets: list[FetchTarget],
        forgotten: Iterable[tuple[TopicRef, int]],
        uses_topic_ids: bool,
        now_ms: int,
        owner: Hashable = None,
    ) -> FetchScope:
        """Return what a request of this owner covers, and advance its session's epoch.

        Raises:
            FetchSessionNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdMismatch: the client must start over.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if self._is_of(session_id, owner):
                del self._sessions[session_id]
            if epoch == FINAL_EPOCH or not targets:
                return FetchScope(targets=targets, session_id=NO_SESSION, is_incremental=False)
            return self._start(targets, uses_topic_ids, now_ms, owner)
        session = self._resume(session_id, epoch, uses_topic_ids, owner)
        for key in forgotten:
            session.targets.pop(key, None)
        for target in targets:
            known = session.targets.get(target.key)
            if known is not None:
                target.sent_high_watermark = known.sent_high_watermark
                target.sent_log_start = known.sent_log_start
            session.targets[target.key] = target
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.used_at_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        return FetchScope(
            targets=list(session.targets.values()),
            session_id=session.id,
            is_incremental=True,
            session=session,
        )

    def _is_of(self, session_id: int, owner: Hashable) -> bool:
        session = self._sessions.get(session_id)
        return session is not None and session.owner == owner

    def _start(
        self, targets: list[FetchTarget], uses_topic_ids: bool, now_ms: int, owner: Hashable
    ) -> FetchScope:
        if not self._make_room(now_ms):
            return FetchScope(targets=targets, session_id=NO_SESSION, is_incremental=False)
        session = FetchSession(
            id=self._new_id(),
            epoch=1,
            uses_topic_ids=uses_topic_ids,
            used_at_ms=now_ms,
            owner=owner,
        )
        session.targets = {target.key: target for target in targets}
        self._sessions[session.id] = session
        return FetchScope(
            targets=targets, session_id=session.id, is_incremental=False, session=session
        )

    def _resume(
        self, session_id: int, epoch: int, uses_topic_ids: bool, owner: Hashable
    ) -> FetchSession:
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            raise FetchSessionNotFound(f"there is no fetch session {session_id}")
        if epoch != session.epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session_id}: epoch {epoch}, expected {session.epoch}"
            )
        if uses_topic_ids != session.uses_topic_ids:
            raise FetchSessionTopicIdMismatch(
                f"fetch session {session_id} was started with topic "
                f"{'ids' if session.uses_topic_ids else 'names'}"
            )
        return session

    def _make_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self._sessions_max:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.used_at_ms < EVICTABLE_AFTER_MS:
            return False
        del self._sessions[oldest.id]
        return True

    def _new_id(self) -> int:
        # Ids are random, so that a client that is out of step does not hit another client's session.
        while True:
            session_id = self._rng.below(EPOCH_MAX) + 1
            if session_id not in self._sessions:
                return session_id
