"""A transaction that is handed out: what is known of it later."""

import pickle

import pytest

from respool.client.arrow.prepared import PreparedTransaction
from respool.client.kafka.errors import BadArgument

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
