"""Our errors of groups and transactions, against the numbers of Kafka's own definitions."""

import re

import pytest
from kio.schema.errors import ErrorCode

from respool.model import coordinator_errors, errors
from respool.model.errors import RequestError

OF_GROUPS = (
    "OffsetMetadataTooLarge",
    "CoordinatorLoadInProgress",
    "CoordinatorNotAvailable",
    "NotCoordinator",
    "IllegalGeneration",
    "InconsistentGroupProtocol",
    "InvalidGroupId",
    "UnknownMemberId",
    "InvalidSessionTimeout",
    "RebalanceInProgress",
    "NonEmptyGroup",
    "GroupIdNotFound",
    "MemberIdRequired",
    "GroupMaxSizeReached",
    "FencedInstanceId",
    "GroupSubscribedToTopic",
    "UnstableOffsetCommit",
    "FencedMemberEpoch",
    "UnreleasedInstanceId",
    "UnsupportedAssignor",
    "StaleMemberEpoch",
)
OF_TRANSACTIONS = (
    "InvalidProducerEpoch",
    "InvalidProducerIdMapping",
    "InvalidTransactionTimeout",
    "ConcurrentTransactions",
    "TransactionCoordinatorFenced",
    "TransactionalIdAuthorizationFailed",
    "ProducerFenced",
    "TransactionalIdNotFound",
    "TransactionAbortable",
)


@pytest.mark.parametrize("name", OF_GROUPS + OF_TRANSACTIONS)
def test_an_error_has_kafkas_number_and_says_rightly_whether_to_try_again(name: str) -> None:
    error: type[RequestError] = vars(errors).get(name) or vars(coordinator_errors)[name]
    theirs = ErrorCode[re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()]
    assert (error.code, error.retriable) == (theirs.value, theirs.retriable)
