"""KIP-227, told as the conversations clients have."""

from collections.abc import Iterable
from uuid import UUID

import pytest

from respool.broker.fetch.sessions import (
    EPOCH_MAX,
    EVICTABLE_AFTER_MS,
    FetchScope,
    FetchSessions,
    FetchTarget,
    TopicRef,
)
from respool.model.errors import (
    FetchSessionNotFound,
    FetchSessionTopicIdMismatch,
    InvalidFetchSessionEpoch,
)


class CountingRandomSource:
    """Session ids 1, 2, 3, …"""

    def __init__(self) -> None:
        self._next = 0

    def below(self, limit: int) -> int:
        self._next += 1
        return (self._next - 1) % limit

    def uuid(self) -> UUID:
        return UUID(int=self.below(1000))


def target(partition: int, offset: int = 0, topic: TopicRef = "rides") -> FetchTarget:
    return FetchTarget(topic=topic, partition=partition, fetch_offset=offset, bytes_max=1000)


def ask(
    sessions: FetchSessions,
    *targets: FetchTarget,
    session_id: int = 0,
    epoch: int = 0,
    forgotten: Iterable[tuple[TopicRef, int]] = (),
    by_id: bool = False,
    now_ms: int = 0,
) -> FetchScope:
    return sessions.scope(
        session_id=session_id,
        epoch=epoch,
        targets=list(targets),
        forgotten=forgotten,
        uses_topic_ids=by_id,
        now_ms=now_ms,
    )


def numbers(scope: FetchScope) -> list[int]:
    return [one.partition for one in scope.targets]


@pytest.fixture
def sessions() -> FetchSessions:
    return FetchSessions(sessions_max=2, rng=CountingRandomSource())


def test_a_first_request_starts_a_session_and_covers_what_it_names(
    sessions: FetchSessions,
) -> None:
    scope = ask(sessions, target(0), target(1))
    assert scope.session_id == 1
    assert not scope.is_incremental
    assert numbers(scope) == [0, 1]


def test_later_requests_name_only_what_changed(sessions: FetchSessions) -> None:
    ask(sessions, target(0), target(1))
    scope = ask(sessions, target(1, offset=50), target(2), session_id=1, epoch=1)
    assert scope.is_incremental
    assert scope.session_id == 1
    assert {one.partition: one.fetch_offset for one in scope.targets} == {0: 0, 1: 50, 2: 0}


def test_a_changed_partition_keeps_what_its_reader_was_told(sessions: FetchSessions) -> None:
    first = ask(sessions, target(0))
    first.targets[0].sent_high_watermark = 7
    scope = ask(sessions, target(0, offset=7), session_id=1, epoch=1)
    assert scope.targets[0].sent_high_watermark == 7


def test_forgotten_partitions_are_gone(sessions: FetchSessions) -> None:
    ask(sessions, target(0), target(1))
    scope = ask(sessions, session_id=1, epoch=1, forgotten=[("rides", 0)])
    assert numbers(scope) == [1]


def test_a_partition_that_returned_data_goes_to_the_end(sessions: FetchSessions) -> None:
    first = ask(sessions, target(0), target(1), target(2))
    first.on_served(first.targets[0])
    assert numbers(ask(sessions, session_id=1, epoch=1)) == [1, 2, 0]


def test_an_epoch_out_of_step_is_refused_and_changes_nothing(sessions: FetchSessions) -> None:
    ask(sessions, target(0))
    with pytest.raises(InvalidFetchSessionEpoch):
        ask(sessions, target(5), session_id=1, epoch=2)
    assert numbers(ask(sessions, session_id=1, epoch=1)) == [0]


def test_an_unknown_session_is_refused(sessions: FetchSessions) -> None:
    with pytest.raises(FetchSessionNotFound):
        ask(sessions, target(0), session_id=99, epoch=1)


def test_names_and_ids_do_not_mix_in_one_session(sessions: FetchSessions) -> None:
    ask(sessions, target(0))
    with pytest.raises(FetchSessionTopicIdMismatch):
        ask(sessions, target(0, topic=UUID(int=4)), session_id=1, epoch=1, by_id=True)


def test_the_final_epoch_ends_the_session_and_is_answered_in_full(sessions: FetchSessions) -> None:
    ask(sessions, target(0))
    scope = ask(sessions, target(0), session_id=1, epoch=-1)
    assert scope.session_id == 0
    assert numbers(scope) == [0]
    assert len(sessions) == 0


def test_epoch_zero_with_an_id_replaces_that_session(sessions: FetchSessions) -> None:
    ask(sessions, target(0))
    assert ask(sessions, target(3), session_id=1, epoch=0).session_id == 2
    assert len(sessions) == 1


def test_no_session_is_made_for_nothing(sessions: FetchSessions) -> None:
    assert ask(sessions).session_id == 0
    assert len(sessions) == 0


def test_with_no_slot_free_a_reader_is_served_without_a_session(sessions: FetchSessions) -> None:
    ask(sessions, target(0), now_ms=0)
    ask(sessions, target(0), now_ms=0)
    scope = ask(sessions, target(0), now_ms=EVICTABLE_AFTER_MS - 1)
    assert scope.session_id == 0
    assert numbers(scope) == [0]


def test_the_longest_unused_session_makes_room(sessions: FetchSessions) -> None:
    ask(sessions, target(0), now_ms=0)
    ask(sessions, target(0), now_ms=1)
    ask(sessions, session_id=1, epoch=1, now_ms=EVICTABLE_AFTER_MS)
    assert ask(sessions, target(0), now_ms=EVICTABLE_AFTER_MS + 1).session_id == 3
    with pytest.raises(FetchSessionNotFound):
        ask(sessions, session_id=2, epoch=1)
    assert ask(sessions, session_id=1, epoch=2).is_incremental


def test_epochs_wrap_to_one_since_zero_means_a_new_session(sessions: FetchSessions) -> None:
    first = ask(sessions, target(0))
    assert first.session is not None
    first.session.epoch = EPOCH_MAX
    ask(sessions, session_id=1, epoch=EPOCH_MAX)
    assert ask(sessions, session_id=1, epoch=1).is_incremental
