"""Which transactions hang, told from those that begin or end while we look."""

from collections.abc import Collection, Iterable, Sequence

from respool.cli.transaction_abort import command_for
from respool.client.kafka.metadata import Place
from respool.client.kafka.transactions import (
    ONGOING,
    OpenTransaction,
    TransactionDescription,
    TransactionListing,
)
from respool.operate.transaction_operations import (
    GRACE_MS,
    HangingReason,
    HangingTransaction,
    find_hanging,
    judge,
)

NOW_MS = 1_763_107_200_000
TIMEOUT_MS = 60_000


def write(*, producer_id: int = 7, start_offset: int = 40, partition: int = 0) -> OpenTransaction:
    return OpenTransaction(
        topic="rides",
        partition=partition,
        producer_id=producer_id,
        producer_epoch=3,
        start_offset=start_offset,
        last_ms=NOW_MS,
        coordinator_epoch=0,
    )


def transaction(
    *partitions: int, state: str = ONGOING, started_ms: int = NOW_MS
) -> TransactionDescription:
    return TransactionDescription(
        transactional_id="bank",
        state=state,
        producer_id=7,
        producer_epoch=3,
        timeout_ms=TIMEOUT_MS,
        started_ms=started_ms,
        partitions=tuple(("rides", number) for number in partitions),
    )


class Both:
    """What the partitions say each time they are asked, and what the coordinators say."""

    def __init__(
        self, *looks: list[OpenTransaction], known: Iterable[TransactionDescription] = ()
    ) -> None:
        self._looks = list(looks)
        self._known = list(known)
        self.asked: list[set[Place]] = []

    def open_in(self, places: Iterable[Place]) -> list[OpenTransaction]:
        self.asked.append(set(places))
        return [one for one in self._looks.pop(0) if one.place in self.asked[-1]]

    def find(self, *, producer_ids: Collection[int]) -> list[TransactionListing]:
        return [one for one in self._known if one.producer_id in producer_ids]

    def describe(self, names: Sequence[str]) -> dict[str, TransactionDescription]:
        return {one.transactional_id: one for one in self._known if one.transactional_id in names}

    def look(self) -> list[tuple[OpenTransaction, HangingReason]]:
        places = [("rides", 0), ("rides", 1)]
        found = find_hanging(self, places, now_ms=NOW_MS)
        assert not self._looks
        return [(one.write, one.why) for one in found]


def test_one_that_no_coordinator_knows_hangs() -> None:
    hanging = write()
    both = Both([hanging], [hanging])
    assert both.look() == [(hanging, HangingReason.UNKNOWN)]
    # The second look is only at what is suspected.
    assert both.asked == [{("rides", 0), ("rides", 1)}, {("rides", 0)}]


def test_one_whose_coordinator_does_not_have_the_partition_hangs() -> None:
    hanging = write(partition=0)
    at_work = write(partition=1)
    both = Both([hanging, at_work], [hanging], known=[transaction(1)])
    assert both.look() == [(hanging, HangingReason.NOT_LISTED)]


def test_one_that_is_at_work_does_not() -> None:
    assert Both([write()], [], known=[transaction(0)]).look() == []


def test_one_that_ended_while_we_looked_does_not() -> None:
    # Its coordinator has done with it, and by the second look the marker is there.
    assert Both([write()], [], known=[transaction(state="CompleteCommit")]).look() == []


def test_the_next_transaction_of_the_same_producer_is_not_taken_for_the_last() -> None:
    last, following = write(start_offset=40), write(start_offset=44)
    both = Both([last], [following], known=[transaction(state="CompleteCommit")])
    assert both.look() == []


def test_without_an_open_transaction_nobody_else_is_asked() -> None:
    assert Both([]).look() == []


def test_one_that_is_open_long_after_its_timeout_is_overdue() -> None:
    due_ms = NOW_MS - TIMEOUT_MS - GRACE_MS
    for started_ms, why in ((due_ms - 1, HangingReason.OVERDUE), (due_ms, None)):
        found = judge(write(), {7: transaction(0, started_ms=started_ms)}, now_ms=NOW_MS)
        assert (found.why if found else None) == why


def test_the_command_that_ends_it_is_for_the_partition_only_where_no_coordinator_can_help() -> None:
    for why in (HangingReason.UNKNOWN, HangingReason.NOT_LISTED):
        command = command_for(HangingTransaction(write=write(), why=why))
        assert command == "respool transaction abort --topic rides --partition 0 --start-offset 40"
    overdue = HangingTransaction(
        write=write(), why=HangingReason.OVERDUE, transaction=transaction(0)
    )
    assert command_for(overdue) == "respool transaction abort bank"
