"""Share sessions (KIP-932): which partitions a member fetches here, and that its requests come in order.

```
 epoch      meaning                                   afterwards
 0          open a session, replace an older one      1
 n          the next request                          n + 1; 2^31-1 is followed by 1
 -1         close it                                  what the member held is available again
```
A session belongs to a member and to the connection that opened it: when the connection is lost, the session is closed.
The member may have opened another one on a new connection by then, which stays.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from respool.model.ids import TopicId
from respool.model.share.share_errors import (
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)

OPENING_EPOCH = 0
CLOSING_EPOCH = -1
EPOCH_MAX = 2**31 - 1


class ShareTarget(NamedTuple):
    topic_id: TopicId
    partition: int


class SessionKey(NamedTuple):
    group: str
    member: str


@dataclass(slots=True, kw_only=True, eq=False)
class ShareSession:
    key: SessionKey
    # Whatever the server gives each connection of its own.
    connection: object
    # The epoch that the next request must carry.
    epoch: int = 1
    targets: dict[ShareTarget, None] = field(default_factory=dict)
    is_open: bool = True


class ShareSessions:
    def __init__(
        self,
        *,
        sessions_max: int,
        on_closed: Callable[[ShareSession, bool], None],
        on_target: Callable[[SessionKey, ShareTarget, int], None],
    ) -> None:
        """`on_closed` gets the session and whether the member closed it itself.

        `on_target` is called when a session begins (1) and ceases (-1) to have a partition.
        """
        self._sessions_max = sessions_max
        self._on_closed = on_closed
        self._on_target = on_target
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[object, dict[SessionKey, ShareSession]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def of_member(self, key: SessionKey) -> ShareSession | None:
        return self._sessions.get(key)

    def count(self, group: str, target: ShareTarget) -> int:
        """How many sessions of the group have the partition."""
        return sum(
            1 for key, one in self._sessions.items() if key.group == group and target in one.targets
        )

    def open(self, key: SessionKey, connection: object) -> ShareSession:
        """Open a session; an older one of the member is replaced, and what the member holds stays held.

        Raises:
            ShareSessionLimitReached: there are too many.
        """
        old = self._sessions.get(key)
        if old is not None:
            self._forget(old)
        elif len(self._sessions) >= self._sessions_max:
            raise ShareSessionLimitReached(
                f"there are {self._sessions_max} share sessions: see group.share.max.share.sessions"
            )
        session = ShareSession(key=key, connection=connection)
        self._sessions[key] = session
        self._by_connection.setdefault(connection, {})[key] = session
        return session

    def find(self, key: SessionKey, connection: object, epoch: int) -> ShareSession:
        """The session that a request belongs to; `advance` it if the request is otherwise valid.

        Raises:
            ShareSessionNotFound, InvalidShareSessionEpoch: the client must open a new one.
        """
        session = self._sessions.get(key)
        if session is None or session.connection is not connection:
            raise ShareSessionNotFound(
                f"member {key.member} of group {key.group} has no share session on this connection"
            )
        if epoch not in {session.epoch, CLOSING_EPOCH}:
            raise InvalidShareSessionEpoch(
                f"share session of member {key.member} of group {key.group}: epoch {epoch}, expected {session.epoch}"
            )
        return session

    @staticmethod
    def advance(session: ShareSession) -> None:
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1

    def change(
        self,
        session: ShareSession,
        *,
        added: Iterable[ShareTarget],
        forgotten: Iterable[ShareTarget] = (),
    ) -> list[ShareTarget]:
        """Add and remove partitions; return those that are new."""
        new = [one for one in dict.fromkeys(added) if one not in session.targets]
        for one in new:
            session.targets[one] = None
            self._on_target(session.key, one, 1)
        for one in forgotten:
            if one in session.targets:
                del session.targets[one]
                self._on_target(session.key, one, -1)
        return new

    def close(self, session: ShareSession, *, is_orderly: bool = True) -> None:
        if not session.is_open:
            return
        targets = tuple(session.targets)
        session.is_open = False
        self._on_closed(session, is_orderly)
        self._forget(session, targets)

    def on_disconnected(self, connection: object) -> None:
        """A connection was lost: close the sessions that were opened on it and not replaced since."""
        for session in list(self._by_connection.get(connection, {}).values()):
            self.close(session, is_orderly=False)

    def _forget(
        self, session: ShareSession, targets: tuple[ShareTarget, ...] | None = None
    ) -> None:
        session.is_open = False
        for one in tuple(session.targets) if targets is None else targets:
            self._on_target(session.key, one, -1)
        session.targets.clear()
        del self._sessions[session.key]
        of_connection = self._by_connection[session.connection]
        del of_connection[session.key]
        if not of_connection:
            del self._by_connection[session.connection]
