import pytest

from respool.drivers.change_history import ChangeHistory
from respool.ports.metadata_store import CompactedRevision, KeyChanged


def changes(revision: int, *, count: int = 1, size: int = 1) -> list[KeyChanged]:
    return [
        KeyChanged(key=f"{number}", value=bytes(size), revision=revision) for number in range(count)
    ]


def kept(history: ChangeHistory) -> list[int]:
    found = []
    for revision in range(1, history.revision + 1):
        try:
            history.at(revision)
        except CompactedRevision:
            continue
        found.append(revision)
    return found


def test_the_oldest_revisions_are_forgotten_whole() -> None:
    history = ChangeHistory(revision=0, changes_max=5, bytes_max=1_000)
    for revision in (1, 2, 3):
        history.add(changes(revision, count=2))
    assert kept(history) == [2, 3]
    assert len(history.at(2)) == 2
    history.add(changes(4))
    assert kept(history) == [2, 3, 4]


def test_bytes_are_bounded_too() -> None:
    history = ChangeHistory(revision=0, changes_max=100, bytes_max=25)
    for revision in (1, 2, 3):
        history.add(changes(revision, size=9))
    assert kept(history) == [2, 3]


def test_the_latest_revision_is_kept_however_large() -> None:
    history = ChangeHistory(revision=0, changes_max=3, bytes_max=1_000)
    history.add(changes(1))
    history.add(changes(2, count=50))
    assert kept(history) == [2]
    history.add(changes(3))
    assert kept(history) == [3]


def test_a_history_that_starts_late_has_forgotten_what_was_before() -> None:
    history = ChangeHistory(revision=7, changes_max=3, bytes_max=1_000)
    with pytest.raises(CompactedRevision, match="up to revision 7"):
        history.at(7)
    history.add(changes(8))
    assert history.at(8) == changes(8)


def test_revisions_follow_without_gaps() -> None:
    history = ChangeHistory(revision=0, changes_max=3, bytes_max=1_000)
    with pytest.raises(AssertionError):
        history.add(changes(2))
