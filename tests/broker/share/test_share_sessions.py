"""Sessions of share groups' members, and what ends them."""

from uuid import UUID

import pytest

from respool.broker.share.share_sessions import (
    CLOSING_EPOCH,
    EPOCH_MAX,
    SessionKey,
    ShareSession,
    ShareSessions,
    ShareTarget,
)
from respool.model.ids import TopicId
from respool.model.share.share_errors import (
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)

KEY = SessionKey("billing", "member")
TARGET = ShareTarget(TopicId(UUID(int=1)), 0)


class Sessions(ShareSessions):
    def __init__(self, sessions_max: int = 10) -> None:
        self.closed: list[tuple[str, bool]] = []
        self.counts: dict[ShareTarget, int] = {}
        super().__init__(
            sessions_max=sessions_max, on_closed=self._note_closed, on_target=self._note_target
        )

    def _note_closed(self, session: ShareSession, is_orderly: bool) -> None:
        self.closed.append((session.key.member, is_orderly))

    def _note_target(self, key: SessionKey, target: ShareTarget, by: int) -> None:
        assert key.group == "billing"
        self.counts[target] = self.counts.get(target, 0) + by


def test_requests_come_in_the_order_of_their_epochs() -> None:
    sessions = Sessions()
    session = sessions.open(KEY, "connection")
    for epoch in (1, 2, 3):
        assert sessions.find(KEY, "connection", epoch) is session
        sessions.advance(session)
    with pytest.raises(InvalidShareSessionEpoch):
        sessions.find(KEY, "connection", 3)
    assert sessions.find(KEY, "connection", CLOSING_EPOCH) is session
    session.epoch = EPOCH_MAX
    sessions.advance(session)
    assert session.epoch == 1


def test_the_end_of_an_old_connection_leaves_the_members_new_session() -> None:
    sessions = Sessions()
    sessions.change(sessions.open(KEY, "old"), added=[TARGET])
    new = sessions.open(KEY, "new")
    assert sessions.closed == []
    assert sessions.counts[TARGET] == 0
    sessions.change(new, added=[TARGET])
    sessions.on_disconnected("old")
    assert sessions.find(KEY, "new", 1) is new
    with pytest.raises(ShareSessionNotFound):
        sessions.find(KEY, "old", 1)
    sessions.on_disconnected("new")
    assert sessions.closed == [("member", False)]
    assert sessions.counts[TARGET] == 0
    assert len(sessions) == 0


def test_a_partition_is_new_once() -> None:
    sessions = Sessions()
    session = sessions.open(KEY, "connection")
    assert sessions.change(session, added=[TARGET, TARGET]) == [TARGET]
    assert sessions.change(session, added=[TARGET]) == []
    assert sessions.change(session, added=[], forgotten=[TARGET, TARGET]) == []
    assert sessions.counts[TARGET] == 0
    sessions.close(session)
    sessions.close(session)
    assert sessions.closed == [("member", True)]


def test_there_are_only_so_many() -> None:
    sessions = Sessions(sessions_max=1)
    sessions.open(KEY, "connection")
    with pytest.raises(ShareSessionLimitReached):
        sessions.open(SessionKey("billing", "other"), "connection")
    sessions.open(KEY, "another")
    assert len(sessions) == 1
