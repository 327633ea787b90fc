"""Kafka's error codes on the client side: their names, whether they are retriable, and their meaning for a producer.

Names are those of Kafka's protocol, in lower case. The broker's own errors (`model/errors.py`) say whether a code is
retriable; for codes without such an error, Kafka's table does.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from respool.client.kafka.errors import BrokerRefused
from respool.model.error_codes import ERRORS_BY_CODE
from respool.wire.error_code import ErrorCode as Code

__all__ = [
    "COORDINATOR_MOVED",
    "COORDINATOR_RETRIED",
    "PRODUCER_FENCED",
    "UNKNOWN_TO_CLIENT",
    "Code",
    "ProduceOutcome",
    "code_name",
    "is_retriable",
    "produce_outcome",
    "refused",
    "worst_of",
]

# The coordinator must be looked up again.
COORDINATOR_MOVED = frozenset({Code.coordinator_not_available, Code.not_coordinator})
# The same coordinator, or the one that the next lookup returns, will answer soon.
COORDINATOR_RETRIED = COORDINATOR_MOVED | {
    Code.coordinator_load_in_progress,
    Code.concurrent_transactions,
}
# Another producer uses the transactional id, or the producer id has expired: this producer cannot continue.
PRODUCER_FENCED = frozenset(
    {Code.invalid_producer_epoch, Code.invalid_producer_id_mapping, Code.producer_fenced}
)
UNKNOWN_TO_CLIENT = "an error newer than this client"


class ProduceOutcome(Enum):
    """The meaning of a Produce error code for the batch, as in Kafka's Java client."""

    # The batch was already appended, and the first reply was lost.
    DUPLICATE = 1
    # A transient error: the same broker may accept the batch soon.
    RETRY = 2
    # A transient error, but the batch may have been appended.
    RETRY_MAY_BE_IN = 3
    # The broker does not lead the partition: refresh the metadata.
    LEADER_MOVED = 4
    # A batch with an earlier sequence is missing.
    SEQUENCE_GAP = 5
    # The broker has no state for the producer.
    PRODUCER_UNKNOWN = 6
    # A retry would fail as well.
    FAIL = 7
    FAIL_MAY_BE_IN = 8


_PRODUCE_OUTCOMES: Mapping[int, ProduceOutcome] = {
    Code.unknown_server_error: ProduceOutcome.FAIL_MAY_BE_IN,
    # The batch was corrupted in transit.
    Code.corrupt_message: ProduceOutcome.RETRY,
    Code.unknown_topic_or_partition: ProduceOutcome.LEADER_MOVED,
    Code.leader_not_available: ProduceOutcome.LEADER_MOVED,
    Code.not_leader_or_follower: ProduceOutcome.LEADER_MOVED,
    # Appended, but not replicated in time.
    Code.request_timed_out: ProduceOutcome.RETRY_MAY_BE_IN,
    Code.broker_not_available: ProduceOutcome.LEADER_MOVED,
    Code.replica_not_available: ProduceOutcome.LEADER_MOVED,
    Code.network_exception: ProduceOutcome.LEADER_MOVED,
    # These three come from the transaction coordinator, which the partition leader asks.
    Code.coordinator_load_in_progress: ProduceOutcome.RETRY,
    Code.coordinator_not_available: ProduceOutcome.RETRY,
    Code.not_coordinator: ProduceOutcome.RETRY,
    Code.not_enough_replicas: ProduceOutcome.RETRY,
    Code.not_enough_replicas_after_append: ProduceOutcome.RETRY_MAY_BE_IN,
    Code.out_of_order_sequence_number: ProduceOutcome.SEQUENCE_GAP,
    Code.duplicate_sequence_number: ProduceOutcome.DUPLICATE,
    # The previous transaction is still being completed.
    Code.concurrent_transactions: ProduceOutcome.RETRY,
    # The leader's disk failed; another replica takes over.
    Code.kafka_storage_error: ProduceOutcome.LEADER_MOVED,
    Code.unknown_producer_id: ProduceOutcome.PRODUCER_UNKNOWN,
    Code.fenced_leader_epoch: ProduceOutcome.LEADER_MOVED,
    Code.unknown_leader_epoch: ProduceOutcome.LEADER_MOVED,
    Code.throttling_quota_exceeded: ProduceOutcome.RETRY,
    Code.unknown_topic_id: ProduceOutcome.LEADER_MOVED,
}


def produce_outcome(code: int) -> ProduceOutcome:
    # Codes are plain integers, so an unknown code falls back to FAIL.
    return _PRODUCE_OUTCOMES.get(code, ProduceOutcome.FAIL)


def is_retriable(code: int) -> bool:
    ours = ERRORS_BY_CODE.get(int(code))
    if ours is not None:
        return ours.retriable
    return _is_known(code) and bool(Code(code).retriable)


def code_name(code: int) -> str:
    """The name as Kafka spells it: NOT_LEADER_OR_FOLLOWER."""
    return str(Code(code).name).upper() if _is_known(code) else UNKNOWN_TO_CLIENT


def refused(doing: str, code: int, message: str | None = None) -> BrokerRefused:
    """Turn an error code of a reply into an exception; `message` is the broker's own error message."""
    return BrokerRefused(
        doing, int(code), code_name(code), retriable=is_retriable(code), message=message or ""
    )


def worst_of(codes: Iterable[Any]) -> int:
    """The first code that is not retriable, else any error code, else 0."""
    found = [int(code) for code in codes if code]
    return min(found, key=is_retriable, default=0)


def _is_known(code: int) -> bool:
    try:
        Code(code)
    except ValueError:
        return False
    return True
