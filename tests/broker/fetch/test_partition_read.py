"""Which aborted transactions a fetch's answer names."""

from log.transaction_world import TransactionWorld
from respool.broker.fetch.partition_read import aborted_among, end_of
from respool.log.partition_log import ReadSpec
from respool.model.ids import Offset

ADA, BOB = 7, 8


def test_only_transactions_among_the_records_of_the_answer_are_named() -> None:
    world = TransactionWorld.new()
    for producer in (ADA, BOB):
        world.write(producer, "a", "b")
        world.end(producer, is_commit=False)
    world.sync()
    log = world.log
    all_of_it = log.read(ReadSpec(Offset(0), max_offset=Offset(6), bytes_max=10**6))
    first = log.read(ReadSpec(Offset(0), max_offset=Offset(2), bytes_max=10**6))
    assert aborted_among(log, Offset(0), all_of_it, cached_only=False) == [(ADA, 0), (BOB, 3)]
    assert aborted_among(log, Offset(0), first, cached_only=False) == [(ADA, 0)]
    # Within the first transaction, and behind it.
    assert aborted_among(log, Offset(1), first, cached_only=False) == [(ADA, 0)]
    assert aborted_among(log, Offset(3), all_of_it, cached_only=False) == [(BOB, 3)]


def test_of_records_from_memory_the_same_are_named() -> None:
    world = TransactionWorld.new()
    for producer in (ADA, BOB):
        world.write(producer, "a", "b")
        world.end(producer, is_commit=False)
    world.sync()
    log = world.log
    for offset, end, named in (
        (0, 6, [(ADA, 0), (BOB, 3)]),
        (0, 3, [(ADA, 0)]),
        (3, 6, [(BOB, 3)]),
    ):
        tail = log.read_tail(ReadSpec(Offset(offset), max_offset=Offset(end), bytes_max=10**6))
        assert tail is not None
        assert tail.end == end
        assert aborted_among(log, Offset(offset), tail, cached_only=True) == named


def test_the_end_is_that_of_the_last_batch_that_is_whole() -> None:
    world = TransactionWorld.new()
    world.write(-1, "a", "b")
    world.write(-1, "c")
    data = world.log.read(ReadSpec(Offset(0), max_offset=Offset(3), bytes_max=10**6))
    assert end_of(data) == 3
    assert end_of(data[:-1]) == 2
    first = world.log.read(ReadSpec(Offset(0), max_offset=Offset(2), bytes_max=10**6))
    for cut in range(1, len(data) - len(first)):
        assert end_of(data[:-cut]) == 2
