"""A producer's transactions, one after the other.

```
 NEW ──init──► READY ──begin──► OPEN ──commit──► READY          PREPARED ──init──► READY
                                 │ └──prepare──────────────────────▲
                                 ├──a write failed──► BROKEN ──abort──► READY
                                 └──abort──► READY               any ──another took the id──► FENCED
```
With transaction protocol version 2 (KIP-890: Respool, Kafka 4), writing to a partition adds it to the transaction, and
each transaction has its own epoch. With version 1, partitions are added before writing, and only an abort changes the
epoch.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from respool.client.arrow.errors import TransactionFenced, WrongState
from respool.client.arrow.prepared import PreparedTransaction, uncertain
from respool.client.arrow.writing.delivery import Delivery, Place
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import PRODUCER_FENCED, worst_of
from respool.client.kafka.coordinator import Coordinator
from respool.client.kafka.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ClientError,
    Untrusted,
)
from respool.client.kafka.groups import OffsetAndMetadata, offset_fields, worst_code
from respool.client.kafka.partition_queue import ProducerIdentity, QueueFailure
from respool.client.kafka.producer_ids import NO_PRODUCER, init_producer_id
from respool.client.kafka.transactions import end_transaction
from respool.client.kafka.versions import TRANSACTIONS_V1, TRANSACTIONS_V2, TransactionVersions
from respool.wire.api_table import Api

_DROPPED = QueueFailure(-1, "the transaction is aborted")


class State(Enum):
    NEW = "has not begun: init() or begin() comes first"
    READY = "has no transaction: begin() comes first"
    OPEN = "has an open transaction: commit() or abort() comes first"
    PREPARED = "has handed its transaction out: init() comes first"
    BROKEN = "has a transaction that failed: abort() comes first"
    FENCED = "was fenced: another producer has its transactional id"


class ProducerTransactions:
    def __init__(
        self, cluster: Cluster, delivery: Delivery, *, transactional_id: str, timeout_ms: int
    ) -> None:
        self._cluster = cluster
        self._delivery = delivery
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._coordinator = Coordinator(cluster, transactional_id, is_transaction=True)
        self._state = State.NEW
        self._identity = NO_PRODUCER
        self._has_epoch_each = True
        # Whether the coordinator may know the transaction.
        self._is_begun_there = False
        # Partitions added to the transaction, with protocol version 1.
        self._added: set[Place] = set()

    @property
    def is_open(self) -> bool:
        return self._state in {State.OPEN, State.BROKEN}

    @property
    def state(self) -> State:
        return self._state

    # These implement the producer's methods of the same names.

    def init(self) -> None:
        self._require(State.NEW, State.READY, State.PREPARED, to="init()")
        self._has_epoch_each = self._coordinator.has_epoch_per_transaction()
        self._delivery.settings = replace(
            self._delivery.settings,
            produce_versions=self._versions.produce,
        )
        self._resume(self._init(NO_PRODUCER))

    def begin(self) -> None:
        if self._state is State.NEW:
            self.init()
        self._require(State.READY, to="begin()")
        self._state = State.OPEN

    def check_open(self) -> None:
        self._require(State.OPEN, to="this")

    def end(self, *, is_commit: bool) -> None:
        self.check_open()
        if not self._is_begun_there:
            self._state = State.READY
            return
        try:
            identity = end_transaction(self._coordinator, self._prepared(), is_commit=is_commit)
        except TransactionFenced:
            self._state = State.FENCED
            raise
        except (BrokerUnreachable, Untrusted) as error:
            # Another process may end it; until then the next epoch is unknown.
            self._state = State.PREPARED
            raise uncertain(self._prepared(), error) from error
        except ClientError:
            self._state = State.PREPARED
            raise
        if not is_commit and not self._has_epoch_each:
            # Some sequences may be missing; only a new epoch restarts at 0.
            identity = self._init(self._identity)
        self._resume(identity)

    def abort(self) -> None:
        self._require(State.OPEN, State.BROKEN, to="abort()")
        self._delivery.fail_queued(_DROPPED)
        self._delivery.wait_until_complete()
        self._delivery.take_result()
        self._state = State.OPEN
        self.end(is_commit=False)

    def abort_if_open(self) -> None:
        """Abort when the producer closes: an open transaction would block readers until its timeout."""
        if self.is_open:
            try:
                self.abort()
            except ClientError:
                # The broker aborts it after its timeout.
                return

    def prepare(self) -> PreparedTransaction:
        self.check_open()
        if not self._is_begun_there:
            raise WrongState(
                "nothing was written in this transaction, so there is nothing to hand out"
            )
        self._state = State.PREPARED
        return self._prepared()

    def send_offsets(
        self,
        group: str,
        offsets: Mapping[Place, int],
        *,
        member_id: str,
        generation_id: int,
        group_instance_id: str | None,
    ) -> None:
        self.check_open()
        if not offsets:
            return
        self._is_begun_there = True
        try:
            if not self._has_epoch_each:
                self._coordinator.request(
                    Api.ADD_OFFSETS_TO_TXN,
                    self._who() | {"group_id": group},
                    doing=f"adding group {group} to {self._id}",
                )
            Coordinator(self._cluster, group, is_transaction=False).request(
                Api.TXN_OFFSET_COMMIT,
                self._who()
                | {
                    "group_id": group,
                    "generation_id": generation_id,
                    "member_id": member_id,
                    "group_instance_id": group_instance_id,
                    "topics": offset_fields(
                        {place: OffsetAndMetadata(offset) for place, offset in offsets.items()}
                    ),
                },
                doing=f"committing offsets of group {group} within {self._id}",
                versions=self._versions.txn_offset_commit,
                code_of=worst_code,
            )
        except BrokerRefused as error:
            self._break(error)
        except (BrokerUnreachable, Untrusted):
            # The offsets may or may not be part of the transaction, so it must not be committed.
            self._state = State.BROKEN
            raise

    @property
    def _versions(self) -> TransactionVersions:
        return TRANSACTIONS_V2 if self._has_epoch_each else TRANSACTIONS_V1

    # Called by the producer.

    def on_writing(self, topic: str, partitions: NDArray[np.int32]) -> None:
        """Prepare to send rows for these partitions: adds the partitions first, with protocol version 1."""
        self._is_begun_there = True
        if self._has_epoch_each:
            return
        new = {(topic, int(number)) for number in np.unique(partitions)} - self._added
        if not new:
            return
        fields = {f"v3_and_below_{name}": value for name, value in self._who().items()}
        fields["v3_and_below_topics"] = [
            {"name": topic, "partitions": sorted(number for _, number in new)}
        ]
        try:
            self._coordinator.request(
                Api.ADD_PARTITIONS_TO_TXN,
                fields,
                doing=f"adding {len(new)} partitions of {topic} to {self._id}",
                code_of=_first_added_code,
            )
        except BrokerRefused as error:
            self._break(error)
        self._added |= new

    def on_flushed(self, *, is_whole: bool) -> None:
        if not is_whole and self._state is State.OPEN:
            self._state = State.BROKEN

    # Inside.

    def _init(self, identity: ProducerIdentity) -> ProducerIdentity:
        try:
            return init_producer_id(
                self._cluster, self._id, timeout_ms=self._timeout_ms, before=identity
            )
        except BrokerRefused as error:
            if error.code in PRODUCER_FENCED:
                self._state = State.FENCED
                raise TransactionFenced(str(error)) from error
            raise

    def _resume(self, identity: ProducerIdentity) -> None:
        if identity != self._identity:
            self._delivery.resume_as(identity)
        self._identity = identity
        self._is_begun_there = False
        self._added.clear()
        self._state = State.READY

    def _prepared(self) -> PreparedTransaction:
        return PreparedTransaction(
            transactional_id=self._id,
            producer_id=self._identity.producer_id,
            epoch=self._identity.epoch,
        )

    def _who(self) -> dict[str, Any]:
        return {
            "transactional_id": self._id,
            "producer_id": self._identity.producer_id,
            "producer_epoch": self._identity.epoch,
        }

    def _break(self, error: BrokerRefused) -> NoReturn:
        if error.code in PRODUCER_FENCED:
            self._state = State.FENCED
            raise TransactionFenced(str(error)) from error
        self._state = State.BROKEN
        raise error

    def _require(self, *states: State, to: str) -> None:
        if self._state is State.FENCED:
            raise TransactionFenced(f"{to} cannot be: {self._id} {self._state.value}")
        if self._state not in states:
            raise WrongState(f"{to} cannot be now: {self._id} {self._state.value}")


def _first_added_code(reply: Any) -> Any:
    return worst_of(
        one.partition_error_code
        for topic in reply.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    )
