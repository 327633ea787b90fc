"""A transaction that is handed out: what is known of it later."""

import pickle

import pytest

from respool.client.arrow.writing.prepared import Found, PreparedTransaction, judge
from respool.client.kafka.errors import BadArgument
from respool.client.kafka.partition_queue import Identity

OURS = PreparedTransaction(transactional_id="job-7", producer_id=40, epoch=3)


def test_it_comes_back_from_json_and_from_pickle() -> None:
    assert PreparedTransaction.from_json(OURS.to_json()) == OURS
    assert pickle.loads(pickle.dumps(OURS)) == OURS


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"transactional_id": "a", "producer_id": "x", "epoch": 1}']
)
def test_what_is_no_transaction_is_refused(text: str) -> None:
    with pytest.raises(BadArgument, match="no prepared transaction"):
        PreparedTransaction.from_json(text)


@pytest.mark.parametrize(
    ("epoch", "state", "found"),
    [
        (3, "Ongoing", Found.OPEN),
        (3, "Empty", Found.OPEN),
        (3, "CompleteCommit", Found.COMMITTED),
        (4, "PrepareCommit", Found.COMMITTED),
        (4, "CompleteCommit", Found.COMMITTED),
        (4, "PrepareAbort", Found.ABORTED),
        (4, "CompleteAbort", Found.ABORTED),
        # The next one has begun, and says nothing of ours.
        (4, "Ongoing", Found.UNKNOWN),
        (5, "CompleteCommit", Found.UNKNOWN),
        (2, "CompleteCommit", Found.UNKNOWN),
        (5, "Empty", Found.UNKNOWN),
    ],
)
def test_its_coordinator_s_state_tells_what_became_of_it(
    epoch: int, state: str, found: Found
) -> None:
    assert judge(OURS, Identity(40, epoch), state) is found


def test_of_another_producer_nothing_is_told() -> None:
    assert judge(OURS, Identity(41, 4), "CompleteCommit") is Found.UNKNOWN
