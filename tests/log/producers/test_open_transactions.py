"""Which transactions hold readers of committed records back."""

from respool.log.producers.open_transactions import OpenTransactions
from respool.model.ids import Offset

ADA, BOB, EVE = 7, 8, 9


def opened(*firsts: tuple[int, int]) -> OpenTransactions:
    transactions = OpenTransactions()
    for producer, first in firsts:
        transactions.begin(producer, Offset(first))
    return transactions


def test_without_any_nothing_is_unstable() -> None:
    transactions = opened()
    assert transactions.first_unstable is None
    transactions.on_high_watermark(Offset(5))
    assert transactions.first_unstable is None


def test_the_first_to_begin_is_the_first_unstable() -> None:
    assert opened((ADA, 3), (BOB, 5)).first_unstable == 3


def test_one_that_has_ended_counts_until_its_marker_is_below_the_high_watermark() -> None:
    transactions = opened((ADA, 3), (BOB, 5))
    transactions.end(ADA, Offset(6))
    assert transactions.first_unstable == 3
    transactions.on_high_watermark(Offset(6))
    assert transactions.first_unstable == 3
    transactions.on_high_watermark(Offset(7))
    assert transactions.first_unstable == 5
    transactions.end(BOB, Offset(7))
    transactions.on_high_watermark(Offset(8))
    assert transactions.first_unstable is None


def test_one_that_began_first_and_ended_last_holds_the_others_ends_back() -> None:
    transactions = opened((ADA, 1), (BOB, 2))
    transactions.end(BOB, Offset(4))
    transactions.end(ADA, Offset(6))
    transactions.on_high_watermark(Offset(5))
    assert transactions.first_unstable == 1
    transactions.on_high_watermark(Offset(7))
    assert transactions.first_unstable is None


def test_what_is_stable_once_one_has_ended_is_up_to_the_next_that_is_open() -> None:
    transactions = opened((ADA, 1), (BOB, 2), (EVE, 3))
    assert transactions.last_stable_without(ADA, marker_offset=Offset(9)) == 2
    assert transactions.last_stable_without(BOB, marker_offset=Offset(9)) == 1
    assert opened((ADA, 1)).last_stable_without(ADA, marker_offset=Offset(9)) == 10


def test_ends_that_are_not_committed_are_carried_over_a_cut() -> None:
    transactions = opened((ADA, 1), (BOB, 2), (EVE, 3))
    transactions.end(EVE, Offset(5))
    transactions.end(ADA, Offset(7))
    kept = transactions.markers_before(Offset(7))
    assert kept == [(3, 5)]
    after = opened((BOB, 2), (ADA, 6))
    after.restore_ended(kept)
    assert after.first_unstable == 2
    after.end(BOB, Offset(7))
    after.on_high_watermark(Offset(8))
    assert after.first_unstable == 6
