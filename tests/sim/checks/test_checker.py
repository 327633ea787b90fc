"""Every rule of the checker: a history that keeps it, and one that breaks it and is found out."""

from respool.model.ids import TopicPartition
from respool.records.build import NewRecord
from respool.sim.checks.checker import FinalReads, check
from respool.sim.checks.history import GroupView, History, Sent, SentTransaction

RIDES = TopicPartition("rides", 0)
FARES = TopicPartition("fares", 0)


def record(value: bytes) -> NewRecord:
    return NewRecord(key=b"k", value=value, timestamp_ms=1)


def send(
    history: History,
    value: bytes,
    *,
    at: int | None = None,
    name: TopicPartition = RIDES,
    transaction: SentTransaction | None = None,
    is_idempotent: bool = True,
) -> Sent:
    """Send a value; it is acknowledged where an offset is given."""
    sent = Sent(value, record(value), name, "p", is_idempotent, True, transaction)
    history.on_send([sent])
    if transaction is not None:
        transaction.writes.append(sent)
    if at is not None:
        history.on_sent([sent], at)
    return sent


def read(
    history: History, value: bytes, offset: int, *, name: TopicPartition = RIDES, committed: bool
) -> None:
    history.on_read(name, offset, record(value), is_committed=committed)


def commit(transaction: SentTransaction, *, is_told: bool = True) -> None:
    transaction.is_commit_invoked = True
    transaction.outcome = "ok" if is_told else "info"


def final(
    *values: bytes, name: TopicPartition = RIDES, hidden: tuple[bytes, ...] = ()
) -> FinalReads:
    """These values at the offsets from 0; those hidden are not shown to readers of committed records."""
    uncommitted = dict(enumerate(values))
    committed = {at: value for at, value in uncommitted.items() if value not in hidden}
    return FinalReads(committed={name: committed}, uncommitted={name: uncommitted})


def rules(history: History, reads: FinalReads, **groups: GroupView) -> set[str]:
    check(history, reads, groups)
    return {one.rule for one in history.violations}


def test_a_history_without_trouble_is_fine() -> None:
    history = History()
    send(history, b"a", at=0)
    read(history, b"a", 0, committed=True)
    send(history, b"b", at=1)
    assert rules(history, final(b"a", b"b")) == set()


def test_a_value_that_nobody_was_told_of_may_be_there_or_not() -> None:
    for values in ((), (b"a",)):
        history = History()
        send(history, b"a")
        assert rules(history, final(*values)) == set()


def test_two_values_at_one_offset() -> None:
    history = History()
    send(history, b"a", at=0)
    send(history, b"b")
    read(history, b"b", 0, committed=False)
    assert "A1" in {one.rule for one in history.violations}


def test_an_acknowledged_value_that_moved_or_is_gone() -> None:
    history = History()
    send(history, b"a", at=0)
    assert "A2" in rules(history, final())
    history = History()
    send(history, b"a", at=5)
    assert "A1" in rules(history, final(b"a"))


def test_what_was_read_and_is_gone() -> None:
    history = History()
    send(history, b"a")
    read(history, b"a", 0, committed=False)
    assert "A2" in rules(history, final())


def test_an_acknowledged_value_that_is_hidden() -> None:
    history = History()
    send(history, b"a", at=0)
    assert rules(history, final(b"a", hidden=(b"a",))) == {"A3"}


def test_a_retry_that_was_appended_again_counts_only_with_idempotence() -> None:
    for is_idempotent, expected in ((True, {"A4"}), (False, set())):
        history = History()
        send(history, b"a", at=0, is_idempotent=is_idempotent)
        assert rules(history, final(b"a", b"a")) == expected


def test_bytes_that_nobody_sent() -> None:
    history = History()
    read(history, b"ghost", 0, committed=False)
    send(history, b"a")
    history.on_read(RIDES, 1, NewRecord(key=b"x", value=b"a", timestamp_ms=1), is_committed=False)
    assert [one.rule for one in history.violations] == ["A5", "A5"]


def test_a_transaction_that_was_not_committed_and_is_visible() -> None:
    history = History()
    send(history, b"a", at=0, transaction=history.new_transaction("p"))
    assert rules(history, final(b"a", hidden=(b"a",))) == set()
    assert rules(history, final(b"a")) == {"A6"}


def test_a_transaction_that_is_read_before_its_commit() -> None:
    history = History()
    transaction = history.new_transaction("p")
    send(history, b"a", at=0, transaction=transaction)
    read(history, b"a", 0, committed=False)
    assert history.violations == []
    read(history, b"a", 0, committed=True)
    assert [one.rule for one in history.violations] == ["A7"]


def test_a_transaction_is_visible_as_a_whole_or_not_at_all() -> None:
    for is_told, hidden, expected in (
        (True, (), set()),
        (True, (b"b",), {"A8"}),
        (True, (b"a", b"b"), {"A8"}),
        (False, (), set()),
        (False, (b"a", b"b"), set()),
        (False, (b"a",), {"A8"}),
    ):
        history = History()
        transaction = history.new_transaction("p")
        send(history, b"a", at=0, transaction=transaction)
        send(history, b"b", at=1, transaction=transaction)
        commit(transaction, is_told=is_told)
        assert rules(history, final(b"a", b"b", hidden=hidden)) == expected


def test_the_offset_of_a_group_is_that_of_the_last_committed_transaction() -> None:
    for offset, expected in ((2, set()), (1, {"A8"}), (3, {"A8"}), (-1, {"A8"})):
        history = History()
        for number in (1, 2, 3):
            transaction = history.new_transaction("p")
            transaction.group_offset = number
            if number < 3:
                commit(transaction)
        reads = final()
        reads.group_offsets = {"p": offset}
        assert rules(history, reads) == expected


def test_a_producers_records_out_of_order() -> None:
    history = History()
    send(history, b"a")
    send(history, b"b")
    assert rules(history, final(b"b", b"a")) == {"A13"}


def test_a_send_that_lands_before_what_was_known_when_it_began() -> None:
    history = History()
    send(history, b"a", at=5)
    send(history, b"b", at=4)
    assert [one.rule for one in history.violations] == ["A14"]


def test_a_group_that_committed_beyond_what_it_was_given() -> None:
    for delivered, expected in (({0, 1}, set()), ({1}, {"B5"})):
        history = History()
        send(history, b"a", at=0)
        send(history, b"b", at=1)
        view = GroupView(committed={RIDES: 2}, delivered={RIDES: delivered})
        assert rules(history, final(b"a", b"b"), riders=view) == expected


def test_partitions_are_looked_at_one_by_one() -> None:
    history = History()
    send(history, b"a", at=0)
    send(history, b"b", at=0, name=FARES)
    reads = final(b"a")
    reads.committed[FARES] = reads.uncommitted[FARES] = {0: b"b"}
    assert rules(history, reads) == set()
