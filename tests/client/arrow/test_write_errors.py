"""What is said when a write fails, and that it can be said across processes."""

import pickle

import pytest

from respool.client.arrow.errors import (
    RecordTooLarge,
    TransactionUncertain,
    WriteFailed,
    WrongColumn,
)
from respool.client.arrow.prepared import PreparedTransaction
from respool.client.arrow.write_result import PartitionWrite, Tally, WriteResult
from respool.client.kafka.errors import ClientError, UnknownPartition
from respool.client.kafka.partition_queue import BatchFate, ProducerBatch, QueueFailure

RESULT = WriteResult(
    rows=5,
    rows_in=3,
    rows_uncertain=1,
    partitions={("rides", 0): PartitionWrite(rows=3, uncertain_rows=1)},
)
TRANSACTION = PreparedTransaction(transactional_id="job", producer_id=1, epoch=2)


@pytest.mark.parametrize(
    "error",
    [
        WriteFailed("of 5 rows 3 are in", RESULT),
        RecordTooLarge("rides", row=7, size=2_000, limit=1_000),
        WrongColumn("key", "no such column"),
        TransactionUncertain("no answer", TRANSACTION),
        UnknownPartition("rides", 7, 3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_whole_out_of_another_process(error: ClientError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def batch(rows: int, verdict: BatchFate, base_offset: int = -1) -> ProducerBatch:
    return ProducerBatch(rows=rows, size=0, deadline_ms=0, fate=verdict, base_offset=base_offset)


def test_a_tally_says_for_each_partition_what_is_in_and_where() -> None:
    tally = Tally(handed_over=20)
    tally.add(("rides", 0), batch(3, BatchFate.IN, 10))
    tally.add(("rides", 0), batch(2, BatchFate.IN, 40))
    tally.add(("rides", 0), batch(4, BatchFate.UNCERTAIN))
    tally.add(("rides", 0), batch(5, BatchFate.NOT_IN))
    tally.add(("rides", 1), batch(1, BatchFate.IN))
    result = tally.result({("rides", 0): QueueFailure(10, "too large")})
    assert result.partitions["rides", 0] == PartitionWrite(
        rows=5,
        first_offset=10,
        last_offset=41,
        uncertain_rows=4,
        not_in_rows=5,
        error="too large",
    )
    assert result.partitions["rides", 1].first_offset is None
    # Five rows were never shared out.
    assert (result.rows_in, result.rows_uncertain, result.rows_not_in) == (6, 4, 10)
    assert str(result.partitions["rides", 0]) == (
        "5 in (offsets 10 to 41), 4 uncertain, 5 not in, too large"
    )


def test_a_tally_s_offsets_are_right_where_a_repeat_is_answered_after_those_behind_it() -> None:
    # Answers were lost, and the repeats refused for a while: they were in all the time.
    tally = Tally(handed_over=6)
    for base_offset in (4, 2, 0):
        tally.add(("rides", 0), batch(2, BatchFate.IN, base_offset))
    line = tally.result({}).partitions["rides", 0]
    assert (line.first_offset, line.last_offset) == (0, 5)
