"""Errors by their codes, as another broker's reply tells them."""

import pytest

from respool.model.coordinator_errors import ConcurrentTransactions, TransactionCoordinatorFenced
from respool.model.error_codes import UnknownError, error_for
from respool.model.errors import InvalidProducerEpoch, NotLeader, RequestError
from respool.model.ids import BrokerId

TWO = BrokerId(2)


def test_zero_is_success() -> None:
    assert error_for(0, by=TWO) is None


@pytest.mark.parametrize(
    "kind",
    [NotLeader, InvalidProducerEpoch, TransactionCoordinatorFenced, ConcurrentTransactions],
)
def test_a_code_becomes_the_error_that_has_it(kind: type[RequestError]) -> None:
    error = error_for(kind.code, by=TWO)
    assert type(error) is kind
    assert "broker 2" in error.message


def test_a_code_that_is_unknown_here_is_an_error_still() -> None:
    assert isinstance(error_for(9_999, by=TWO), UnknownError)
