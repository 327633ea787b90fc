"""Administration of transactions from outside their producers: describe, list, end them, and abort hanging ones.

A transaction is known to its coordinator, by transactional id, and to each partition that it has written to, by
producer id. The two agree except briefly at its beginning and end, or after a serious error.

`outcome_by` derives a transaction's outcome from the coordinator's state of its transactional id:

| epoch there          | state there               | the transaction is                                    |
|----------------------|---------------------------|-------------------------------------------------------|
| the same             | ongoing, or empty         | open                                                  |
| the same             | prepare or complete commit | committed (clusters without an epoch per transaction) |
| one more             | prepare or complete commit | committed                                             |
| the same or one more | prepare or complete abort | aborted                                               |
| any other, or another producer id |              | unknown: the id was used again since                  |
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Protocol

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import PRODUCER_FENCED, Code, code_name, refused
from respool.client.kafka.coordinator import Coordinator
from respool.client.kafka.errors import (
    BrokerRefused,
    BrokerUnreachable,
    TransactionFenced,
    TransactionLost,
    UnknownTopic,
)
from respool.client.kafka.list_offsets import (
    answers_by_place,
    by_topic,
    leaders_of,
)
from respool.client.kafka.metadata import Place
from respool.client.kafka.partition_queue import ProducerIdentity
from respool.client.kafka.producer_ids import identity_in
from respool.client.kafka.versions import (
    LIST_TRANSACTIONS_BY_DURATION,
    TRANSACTIONS_V1,
    TRANSACTIONS_V2,
)
from respool.model.internal_topics import TRANSACTION_STATE
from respool.wire.api_table import Api

ONGOING = "Ongoing"
# The outcome is decided, and the markers are being written.
PREPARED = ("PrepareCommit", "PrepareAbort")
# As Kafka spells them. Dead and PrepareEpochFence are short-lived.
STATES = ("Empty", ONGOING, *PREPARED, "CompleteCommit", "CompleteAbort")

_EPOCH = datetime.fromtimestamp(0, UTC)


class TransactionId(Protocol):
    """One transaction of a transactional id."""

    @property
    def transactional_id(self) -> str: ...

    @property
    def producer_id(self) -> int: ...

    @property
    def epoch(self) -> int: ...


class TransactionOutcome(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    transactional_id: str
    state: str
    producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription(TransactionListing):
    producer_epoch: int
    timeout_ms: int
    # Start of the open or latest transaction; None if the producer has begun none.
    started_ms: int | None
    # The partitions that it has written to and that have no marker yet.
    partitions: tuple[Place, ...]

    @property
    def is_open(self) -> bool:
        return self.state == ONGOING or self.is_decided

    @property
    def is_decided(self) -> bool:
        """The outcome can no longer change; the markers are being written."""
        return self.state in PREPARED


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction as one partition sees it: it has records but no marker there yet."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    # When the producer last wrote here.
    last_ms: int
    coordinator_epoch: int

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def epoch_of_end(self) -> int:
        """The coordinator epoch for a marker that an administrator writes; the partition may not know one yet."""
        return max(0, self.coordinator_epoch)


# -- describe ----------------------------------------------------------------------------------------------------------


def list_transactions(
    cluster: Cluster,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    open_longer_than_ms: int | None = None,
) -> list[TransactionListing]:
    """The transactions that meet all conditions, sorted by transactional id. Asks every broker, as coordinator.

    Raises:
        BrokerUnreachable, BrokerRefused: for any one broker.
    """
    found: dict[str, TransactionListing] = {}
    for broker in sorted(cluster.retrying(cluster.refresh_brokers)):

        def request(broker: int = broker) -> list[TransactionListing]:
            return transactions_at(
                cluster,
                broker,
                states=states,
                producer_ids=producer_ids,
                open_longer_than_ms=open_longer_than_ms,
            )

        found |= {one.transactional_id: one for one in cluster.retrying(request)}
    return [found[name] for name in sorted(found)]


def transactions_at(
    cluster: Cluster,
    broker: int,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    open_longer_than_ms: int | None = None,
) -> list[TransactionListing]:
    """The transactions that one broker coordinates. One attempt.

    Raises:
        BrokerUnreachable, BrokerRefused
    """
    fields: dict[str, Any] = {
        "state_filters": sorted(states),
        "producer_id_filters": sorted(producer_ids),
    }
    versions = None
    if open_longer_than_ms is not None:
        fields["duration_filter"] = open_longer_than_ms
        versions = LIST_TRANSACTIONS_BY_DURATION
    reply = cluster.request(broker, Api.LIST_TRANSACTIONS, fields, versions=versions)
    if reply.error_code:
        raise refused("listing transactions", reply.error_code)
    return [
        TransactionListing(
            transactional_id=str(one.transactional_id),
            state=str(one.transaction_state),
            producer_id=int(one.producer_id),
        )
        for one in reply.transaction_states
    ]


def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription]:
    """Describe those of these transactional ids that exist.

    Raises:
        BrokerUnreachable, BrokerRefused
    """
    names = sorted(set(transactional_ids))
    if not names or not _has_transactions(cluster):
        return {}
    found = {}
    for name in names:
        try:
            found[name] = describe_transaction(_coordinator(cluster, name), name)
        except BrokerRefused as error:
            if error.code != Code.transactional_id_not_found:
                raise
    return found


def describe_transaction(coordinator: Coordinator, transactional_id: str) -> TransactionDescription:
    """
    Raises:
        BrokerRefused: with `Code.transactional_id_not_found` if no producer ever used the id.
        BrokerUnreachable
    """
    reply = coordinator.request(
        Api.DESCRIBE_TRANSACTIONS,
        {"transactional_ids": [transactional_id]},
        doing=f"describing transactional id {transactional_id}",
        code_of=lambda reply: reply.transaction_states[0].error_code,
    )
    (one,) = reply.transaction_states
    started = one.transaction_start_time
    return TransactionDescription(
        transactional_id=str(one.transactional_id),
        state=str(one.transaction_state),
        producer_id=int(one.producer_id),
        producer_epoch=int(one.producer_epoch),
        timeout_ms=one.transaction_timeout // timedelta(milliseconds=1),
        started_ms=(started - _EPOCH) // timedelta(milliseconds=1) if started else None,
        partitions=tuple(
            sorted(
                (str(each.topic), int(number)) for each in one.topics for number in each.partitions
            )
        ),
    )


# -- end ---------------------------------------------------------------------------------------------------------------


def outcome_of(
    coordinator: Coordinator, transaction: TransactionId
) -> tuple[TransactionOutcome, TransactionDescription | None]:
    """The outcome, and the coordinator's description of the transactional id; None if the id is unknown there.

    Raises:
        BrokerUnreachable, BrokerRefused
    """
    try:
        seen = describe_transaction(coordinator, transaction.transactional_id)
    except BrokerRefused as error:
        if error.code == Code.transactional_id_not_found:
            return TransactionOutcome.UNKNOWN, None
        raise
    there = ProducerIdentity(seen.producer_id, seen.producer_epoch)
    return outcome_by(transaction, there, seen.state), seen


def outcome_by(
    transaction: TransactionId, there: ProducerIdentity, state: str
) -> TransactionOutcome:
    """The outcome according to the table above."""
    is_same = there == (transaction.producer_id, transaction.epoch)
    is_next = there == (transaction.producer_id, transaction.epoch + 1)
    if is_same and state in {ONGOING, "Empty"}:
        return TransactionOutcome.OPEN
    if is_same or is_next:
        if state in {"PrepareCommit", "CompleteCommit"}:
            return TransactionOutcome.COMMITTED
        if state in {"PrepareAbort", "CompleteAbort"}:
            return TransactionOutcome.ABORTED
    return TransactionOutcome.UNKNOWN


def end_transaction(
    coordinator: Coordinator, transaction: TransactionId, *, is_commit: bool
) -> ProducerIdentity:
    """Commit or abort an open transaction; return the producer identity for the next one of its transactional id.

    Raises:
        TransactionFenced: another producer uses the id.
        TransactionLost: the transaction has already ended with another outcome.
        BrokerUnreachable, Untrusted: no answer came, or TLS or the login failed.
    """
    has_epoch = coordinator.has_epoch_per_transaction()
    fields = {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.epoch,
        "committed": is_commit,
    }
    doing = f"{'committing' if is_commit else 'aborting'} {transaction.transactional_id}"
    versions = (TRANSACTIONS_V2 if has_epoch else TRANSACTIONS_V1).end_txn
    try:
        reply = coordinator.request(Api.END_TXN, fields, doing=doing, versions=versions)
    except BrokerRefused as error:
        if error.code in PRODUCER_FENCED:
            raise TransactionFenced(
                f"{error}: another producer has the id, or the transaction took longer than its timeout"
            ) from error
        if error.code == Code.invalid_txn_state:
            raise TransactionLost(f"{error}: it has ended already, or was never begun") from error
        if error.retriable:
            # The retries have used up the time limit.
            raise BrokerUnreachable(str(error)) from error
        raise
    if has_epoch:
        return identity_in(reply)
    return ProducerIdentity(transaction.producer_id, transaction.epoch)


# -- open transactions in partitions -----------------------------------------------------------------------------------


def open_transactions(
    cluster: Cluster, places: Iterable[Place]
) -> tuple[list[OpenTransaction], dict[Place, str]]:
    """The open transactions in these partitions according to their leaders; and why a partition could not be queried.

    Raises:
        BrokerUnreachable
    """
    wanted = set(places)
    # A topic may have been deleted since the caller listed it.
    seen = cluster.retrying(cluster.refresh_all)
    existing = {
        (topic, number)
        for topic, number in wanted
        if topic in seen and number in seen[topic].leaders
    }
    led = leaders_of(cluster, existing)
    unasked = dict.fromkeys(wanted - existing, "it does not exist")
    unasked |= dict.fromkeys(
        existing - {place for ones in led.values() for place in ones}, "it has no leader"
    )
    found: list[OpenTransaction] = []
    for leader, ones in led.items():
        topics = [
            {"name": t, "partition_indexes": numbers} for t, numbers in by_topic(ones).items()
        ]
        reply = cluster.request(leader, Api.DESCRIBE_PRODUCERS, {"topics": topics})
        for place, partition in answers_by_place(reply.topics):
            if partition.error_code:
                unasked[place] = code_name(partition.error_code)
            found += open_in_reply(place[0], partition)
    return sorted(found, key=lambda one: (one.place, one.start_offset)), unasked


def open_in_reply(topic: str, partition: Any) -> list[OpenTransaction]:
    """The open transactions in one partition of a DescribeProducers reply."""
    return [
        OpenTransaction(
            topic=topic,
            partition=int(partition.partition_index),
            producer_id=int(one.producer_id),
            producer_epoch=int(one.producer_epoch),
            start_offset=int(one.current_txn_start_offset),
            last_ms=int(one.last_timestamp),
            coordinator_epoch=int(one.coordinator_epoch),
        )
        for one in partition.active_producers
        if one.current_txn_start_offset >= 0
    ]


def write_abort_marker(cluster: Cluster, transaction: OpenTransaction) -> None:
    """Abort a transaction in one partition, regardless of its coordinator.

    Raises:
        BrokerRefused, BrokerUnreachable: the transaction may still be open in the partition. A partition without a
            leader is not retried.
    """
    fields = {"markers": [marker_fields(transaction)]}

    def attempt() -> bool:
        leader = cluster.refresh(transaction.topic).leader_of(transaction.partition)
        if leader is None:
            return False
        reply = cluster.request(leader.broker, Api.WRITE_TXN_MARKERS, fields)
        code = reply.markers[0].topics[0].partitions[0].error_code
        if code:
            raise refused(
                f"aborting the transaction in {transaction.topic}/{transaction.partition}", code
            )
        return True

    if not cluster.retrying(attempt):
        raise BrokerUnreachable(f"{transaction.topic}/{transaction.partition} has no leader")


def marker_fields(transaction: OpenTransaction) -> Mapping[str, Any]:
    return {
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "transaction_result": False,
        "topics": [{"name": transaction.topic, "partition_indexes": [transaction.partition]}],
        "coordinator_epoch": transaction.epoch_of_end,
    }


# -- inside ------------------------------------------------------------------------------------------------------------


def _has_transactions(cluster: Cluster) -> bool:
    """False if no producer has used a transactional id yet. A coordinator lookup would create the internal topic."""
    try:
        cluster.retrying(lambda: cluster.refresh(TRANSACTION_STATE))
    except UnknownTopic:
        return False
    return True


def _coordinator(cluster: Cluster, transactional_id: str) -> Coordinator:
    return Coordinator(cluster, transactional_id, is_transaction=True)
