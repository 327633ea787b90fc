"""A guard is good for one transaction, and shared by all who ask for it."""

from respool.log.producers.verification import EPOCHS_MAX, Verifications
from respool.records.batch import BatchHeader, read_header
from respool.records.build import NewRecord, build_batch


def header(producer: int = 7, *, epoch: int = 0, sequence: int = 0) -> BatchHeader:
    return read_header(
        build_batch(
            [NewRecord(value=b"v")],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
    )


def test_those_who_ask_meanwhile_share_a_guard_that_knows_the_first_sequence() -> None:
    verifications = Verifications()
    guard = verifications.begin(header(sequence=5), now_ms=0)
    assert verifications.begin(header(sequence=3), now_ms=0) is guard
    assert verifications.begin(header(sequence=9), now_ms=0) is guard
    assert guard.lowest_sequence == 3
    assert verifications.is_current(guard, header())
    assert not verifications.is_current(None, header())
    assert not verifications.is_current(guard, header(8))


def test_once_the_transaction_has_begun_or_ended_it_is_void() -> None:
    verifications = Verifications()
    guard = verifications.begin(header(), now_ms=0)
    verifications.end(7)
    assert not verifications.is_current(guard, header())
    again = verifications.begin(header(), now_ms=0)
    assert again is not guard
    assert not verifications.is_current(guard, header())
    assert verifications.is_current(again, header())


def test_each_epoch_has_its_own_and_a_marker_makes_all_of_them_void() -> None:
    verifications = Verifications()
    old = verifications.begin(header(epoch=1), now_ms=0)
    new = verifications.begin(header(epoch=2), now_ms=0)
    assert verifications.is_current(old, header(epoch=1))
    assert verifications.is_current(new, header(epoch=2))
    assert not verifications.is_current(new, header(epoch=1))
    verifications.end(7)
    assert not verifications.is_current(old, header(epoch=1))
    assert not verifications.is_current(new, header(epoch=2))


def test_whoever_asks_under_many_epochs_gets_no_more_memory_than_one_who_does_not() -> None:
    verifications = Verifications(verifications_max=2)
    for epoch in range(100):
        verifications.begin(header(1, epoch=epoch), now_ms=0)
    assert len(verifications) == EPOCHS_MAX


def test_one_that_was_refused_is_gone_with_the_last_who_asked_for_it() -> None:
    verifications = Verifications()
    guard = verifications.begin(header(), now_ms=0)
    assert verifications.begin(header(), now_ms=0) is guard
    verifications.cancel(guard)
    assert verifications.is_current(guard, header())
    verifications.cancel(guard)
    assert not verifications.is_current(guard, header())
    assert len(verifications) == 0
    # Another one has come in its place, which nobody gave back.
    again = verifications.begin(header(), now_ms=0)
    verifications.cancel(guard)
    assert verifications.is_current(again, header())


def test_there_are_never_more_than_allowed_and_the_oldest_goes_first() -> None:
    verifications = Verifications(verifications_max=2)
    first, second, third = (verifications.begin(header(n), now_ms=0) for n in (1, 2, 3))
    assert len(verifications) == 2
    assert not verifications.is_current(first, header(1))
    assert verifications.is_current(second, header(2))
    assert verifications.is_current(third, header(3))


def test_one_that_nobody_comes_back_with_is_forgotten() -> None:
    verifications = Verifications()
    old = verifications.begin(header(1), now_ms=10)
    young = verifications.begin(header(2), now_ms=20)
    verifications.expire(20)
    assert not verifications.is_current(old, header(1))
    assert verifications.is_current(young, header(2))
