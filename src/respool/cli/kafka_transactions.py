"""Transactions, asked of the brokers themselves: the client library has no words for them.

Two sides know of a transaction: its coordinator (by the transactional id) and each partition it has written to (by the
producer id). They agree, except for a moment at its beginning and end, or when something went badly wrong.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any

from respool.cli.broker_socket import BrokerSocket, Question
from respool.cli.errors import BrokerUnreachable
from respool.cli.kafka import Cluster
from respool.client.kafka.metadata import Place
from respool.client.kafka.transactions import OpenTransaction, open_in_reply
from respool.model.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidTransactionTimeout,
    NotCoordinator,
    TransactionalIdNotFound,
)
from respool.model.operator_errors import NotFound, OperatorError
from respool.wire.api_table import Api
from respool.wire.shape import milliseconds

Address = tuple[str, int]

TRANSACTION_TOPIC = "__transaction_state"
ONGOING = "Ongoing"
PREPARED = ("PrepareCommit", "PrepareAbort")
# As Kafka spells them; Dead and PrepareEpochFence are names that nothing has for longer than a moment.
STATES = ("Empty", ONGOING, *PREPARED, "CompleteCommit", "CompleteAbort")

TRANSACTION_KEY = 1
NO_PRODUCER = {"producer_id": -1, "producer_epoch": -1}
RETRY_SECONDS = 10.0
PAUSE_SECONDS = 0.2
_TRY_AGAIN = {
    error.code
    for error in (
        ConcurrentTransactions,
        CoordinatorLoadInProgress,
        CoordinatorNotAvailable,
        NotCoordinator,
    )
}
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionInfo:
    transactional_id: str
    state: str
    producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction(TransactionInfo):
    producer_epoch: int
    timeout_ms: int
    # Of the open or the last transaction; None when the producer has begun none.
    started_ms: int | None
    # Where it has written, and not yet ended.
    partitions: tuple[Place, ...]

    @property
    def is_open(self) -> bool:
        return self.state == ONGOING or self.is_decided

    @property
    def is_decided(self) -> bool:
        """Nothing can change its outcome any more; its partitions are being told."""
        return self.state in PREPARED


class Refused(OperatorError):
    """A broker would not do it; the message has Kafka's name of the error."""

    def __init__(self, what: str, code: Any) -> None:
        super().__init__(f"{what}: {_words(code)}")
        self.code = int(code)


class Transactions:
    """All transactions of a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        connect: Callable[[str, int], BrokerSocket] = BrokerSocket,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._connect = connect
        self._clock = clock
        self._pause = pause
        # Partitions that did not say what is open in them, and why.
        self.unasked: dict[Place, str] = {}

    def find(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        open_longer_than_ms: int | None = None,
    ) -> list[TransactionInfo]:
        """Those that meet all conditions. Every broker tells of those it coordinates."""
        fields: dict[str, Any] = {
            "state_filters": sorted(states),
            "producer_id_filters": sorted(producer_ids),
        }
        version = 0
        if open_longer_than_ms is not None:
            fields["duration_filter"] = open_longer_than_ms
            version = 1
        found: dict[str, TransactionInfo] = {}
        for address in self._cluster.addresses().values():
            reply = self._ask(
                _always(address),
                Question(Api.LIST_TRANSACTIONS, version, fields),
                what="transactions cannot be listed",
                code_of=lambda reply: reply.error_code,
            )
            for one in reply.transaction_states:
                found[one.transactional_id] = TransactionInfo(
                    transactional_id=one.transactional_id,
                    state=one.transaction_state,
                    producer_id=one.producer_id,
                )
        return [found[name] for name in sorted(found)]

    def describe(self, names: Sequence[str]) -> dict[str, Transaction]:
        """Those of them that there are."""
        # Asking for a coordinator would make the topic.
        if not names or TRANSACTION_TOPIC not in self._cluster.topics():
            return {}
        found: dict[str, Transaction] = {}
        for address, keys in self._coordinators(names).items():
            fields = {"transactional_ids": keys}
            reply = self._ask(
                _always(address),
                Question(Api.DESCRIBE_TRANSACTIONS, 0, fields),
                what="transactions cannot be described",
                code_of=_worst_code,
            )
            for one in reply.transaction_states:
                if one.error_code != TransactionalIdNotFound.code:
                    found[one.transactional_id] = _transaction(one)
        return found

    def get(self, name: str) -> Transaction:
        """
        Raises:
            NotFound: nobody has this transactional id; the hint names one that is spelled alike.
        """
        found = self.describe([name]).get(name)
        if found is not None:
            return found
        alike = get_close_matches(name, [info.transactional_id for info in self.find()], n=1)
        raise NotFound(
            f"there is no transactional id {name!r} at {self._cluster.broker}",
            hint=f"did you mean {alike[0]}?" if alike else "see: respool transaction list",
        )

    def fence(self, transaction: Transaction) -> int:
        """End whatever the producer has open, by taking its place; return the epoch that its successor would have.

        Once this returns, the transaction is ended in all its partitions.
        """
        try:
            return self._init_producer(transaction.transactional_id, transaction.timeout_ms)
        except Refused as error:
            # The longest timeout that is allowed has become shorter since. The next producer brings its own.
            if error.code != InvalidTransactionTimeout.code:
                raise
            return self._init_producer(transaction.transactional_id, 1)

    def open_writes(self, places: Iterable[Place]) -> list[OpenTransaction]:
        """The open transactions in these partitions, as their leaders know them; see `unasked` for the others."""
        known = self._cluster.topics()
        addresses = self._cluster.addresses()
        by_leader: dict[int, list[Place]] = defaultdict(list)
        for topic, number in places:
            leader = known[topic].leaders.get(number) if topic in known else None
            if leader is None:
                self.unasked[topic, number] = "nobody leads it"
            else:
                by_leader[leader].append((topic, number))
        found = []
        for leader, led in by_leader.items():
            topics = [{"name": t, "partition_indexes": numbers} for t, numbers in _by_topic(led)]
            with self._connect(*addresses[leader]) as broker:
                (reply,) = broker.ask(Question(Api.DESCRIBE_PRODUCERS, 0, {"topics": topics}))
            found += self._take_open_writes(reply)
        return sorted(found, key=lambda one: (one.place, one.start_offset))

    def _take_open_writes(self, reply: Any) -> list[OpenTransaction]:
        found = []
        for topic in reply.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    self.unasked[topic.name, partition.partition_index] = _words(
                        partition.error_code
                    )
                found += open_in_reply(topic.name, partition)
        return found

    def write_abort_marker(self, write: OpenTransaction) -> None:
        """End a transaction in one partition, whatever its coordinator says."""
        topic = {"name": write.topic, "partition_indexes": [write.partition]}
        marker = {
            "producer_id": write.producer_id,
            "producer_epoch": write.producer_epoch,
            "transaction_result": False,
            "topics": [topic],
            "coordinator_epoch": write.epoch_of_end,
        }
        self._ask(
            lambda: self._leader(write),
            Question(Api.WRITE_TXN_MARKERS, 1, {"markers": [marker]}),
            what=f"the transaction in {write.topic}/{write.partition} is not ended",
            code_of=lambda reply: reply.markers[0].topics[0].partitions[0].error_code,
        )

    def _init_producer(self, name: str, timeout_ms: int) -> int:
        fields = {"transactional_id": name, "transaction_timeout": timeout_ms, **NO_PRODUCER}
        reply = self._ask(
            lambda: next(iter(self._coordinators([name]))),
            Question(Api.INIT_PRODUCER_ID, 4, fields),
            what=f"the producer of {name} is not fenced",
            code_of=lambda reply: reply.error_code,
        )
        return int(reply.producer_epoch)

    def _coordinators(self, names: Sequence[str]) -> dict[Address, list[str]]:
        """Where to ask about which of them."""
        fields = {"key_type": TRANSACTION_KEY, "coordinator_keys": names}
        reply = self._ask(
            lambda: next(iter(self._cluster.addresses().values())),
            Question(Api.FIND_COORDINATOR, 4, fields),
            what="the coordinator is not known",
            code_of=lambda reply: max(one.error_code for one in reply.coordinators),
        )
        found: dict[Address, list[str]] = defaultdict(list)
        for one in reply.coordinators:
            found[str(one.host), int(one.port)].append(one.key)
        return found

    def _leader(self, write: OpenTransaction) -> Address:
        leader = self._cluster.topic(write.topic).leaders.get(write.partition)
        if leader is None:
            raise BrokerUnreachable(f"nobody leads {write.topic}/{write.partition} now")
        return self._cluster.addresses()[leader]

    def _ask(
        self,
        whom: Callable[[], Address],
        question: Question,
        *,
        what: str,
        code_of: Callable[[Any], Any],
    ) -> Any:
        """The reply. Errors that pass are waited for, for a while.

        Raises:
            Refused: any other error, or one that did not pass.
        """
        deadline = self._clock() + RETRY_SECONDS
        while True:
            with self._connect(*whom()) as broker:
                (reply,) = broker.ask(question)
            code = code_of(reply)
            if not code:
                return reply
            if code not in _TRY_AGAIN or self._clock() >= deadline:
                raise Refused(what, code)
            self._pause(PAUSE_SECONDS)


def _always(address: Address) -> Callable[[], Address]:
    return lambda: address


def by_producer(found: Iterable[Transaction]) -> Mapping[int, Transaction]:
    return {one.producer_id: one for one in found}


def _worst_code(reply: Any) -> Any:
    codes = [one.error_code for one in reply.transaction_states]
    return next((code for code in codes if code not in (0, TransactionalIdNotFound.code)), 0)


def _transaction(one: Any) -> Transaction:
    started = one.transaction_start_time
    return Transaction(
        transactional_id=one.transactional_id,
        state=one.transaction_state,
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        timeout_ms=milliseconds(one.transaction_timeout),
        started_ms=(started - _EPOCH) // timedelta(milliseconds=1) if started else None,
        partitions=tuple(
            sorted((each.topic, number) for each in one.topics for number in each.partitions)
        ),
    )


def _words(code: Any) -> str:
    """Kafka's name of an error, as words."""
    return str(getattr(code, "name", code)).replace("_", " ")


def _by_topic(places: Iterable[Place]) -> list[tuple[str, list[int]]]:
    grouped: dict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(places):
        grouped[topic].append(number)
    return list(grouped.items())
