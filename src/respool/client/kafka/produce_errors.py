"""What each error code of a Produce reply means for the batch it is about, as Kafka's own client reads it."""

from enum import Enum


class Meaning(Enum):
    # A repeat of what is in already: the first try's answer was lost.
    TAKEN_BEFORE = 1
    # Not now; the same broker may take it soon.
    RETRY = 2
    # The same, but the batch may have been appended all the same.
    RETRY_MAY_BE_IN = 3
    # Not this broker; ask who leads.
    MOVED = 4
    # An older sequence is missing.
    SEQUENCE_GAP = 5
    # The broker knows nothing of the producer.
    PRODUCER_FORGOTTEN = 6
    # No other try would end better.
    FAIL = 7
    FAIL_MAY_BE_IN = 8


_MEANINGS = {
    -1: Meaning.FAIL_MAY_BE_IN,  # UNKNOWN_SERVER_ERROR
    2: Meaning.RETRY,  # CORRUPT_MESSAGE: damaged on its way
    3: Meaning.MOVED,  # UNKNOWN_TOPIC_OR_PARTITION
    5: Meaning.MOVED,  # LEADER_NOT_AVAILABLE
    6: Meaning.MOVED,  # NOT_LEADER_OR_FOLLOWER
    7: Meaning.RETRY_MAY_BE_IN,  # REQUEST_TIMED_OUT: appended, not replicated in time
    8: Meaning.MOVED,  # BROKER_NOT_AVAILABLE
    9: Meaning.MOVED,  # REPLICA_NOT_AVAILABLE
    13: Meaning.MOVED,  # NETWORK_EXCEPTION
    14: Meaning.RETRY,  # COORDINATOR_LOAD_IN_PROGRESS: of the transaction
    15: Meaning.RETRY,  # COORDINATOR_NOT_AVAILABLE
    16: Meaning.RETRY,  # NOT_COORDINATOR
    19: Meaning.RETRY,  # NOT_ENOUGH_REPLICAS
    20: Meaning.RETRY_MAY_BE_IN,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    45: Meaning.SEQUENCE_GAP,  # OUT_OF_ORDER_SEQUENCE_NUMBER
    46: Meaning.TAKEN_BEFORE,  # DUPLICATE_SEQUENCE_NUMBER
    51: Meaning.RETRY,  # CONCURRENT_TRANSACTIONS: the one before is still being ended
    56: Meaning.MOVED,  # KAFKA_STORAGE_ERROR: its disk; another replica takes over
    59: Meaning.PRODUCER_FORGOTTEN,  # UNKNOWN_PRODUCER_ID
    74: Meaning.MOVED,  # FENCED_LEADER_EPOCH
    75: Meaning.MOVED,  # UNKNOWN_LEADER_EPOCH
    89: Meaning.RETRY,  # THROTTLING_QUOTA_EXCEEDED
    100: Meaning.MOVED,  # UNKNOWN_TOPIC_ID
}

# By these the producer itself is over: another has its transactional id.
FENCED_CODES = frozenset({47, 49, 90})


def meaning_of(code: int) -> Meaning:
    return _MEANINGS.get(code, Meaning.FAIL)
