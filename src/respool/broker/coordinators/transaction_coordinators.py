"""The transaction coordinators of this broker, on `__transaction_state`.

They decide which partitions are part of a transaction and how it ends; `MarkerWriter` writes the markers. Partition
leaders verify here before they append the first records of a transaction (KIP-890). Otherwise a late write of an ended
transaction would hang forever or become part of the next one.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from respool.broker.coordinators.coordinator_log import CoordinatorState
from respool.broker.coordinators.marker_writer import MarkerWriter
from respool.broker.coordinators.producer_id_blocks import ProducerIds
from respool.broker.coordinators.remote_coordinators import (
    RemoteCoordinators,
    TransactionalProducer,
)
from respool.broker.coordinators.runtime import CoordinatorRuntime
from respool.broker.coordinators.runtimes import CoordinatorRuntimes, CoordinatorRuntimesOwner
from respool.coordination.transactions.transaction_requests import (
    AddPartitions,
    AddPartitionsReply,
    MarkersWritten,
    ProducerIdNeeded,
    TransactionVersion,
    VerifyPartitions,
    VerifyPartitionsReply,
    WriteMarkers,
)
from respool.model.errors import RequestError
from respool.model.ids import BrokerId, TopicPartition
from respool.records.markers import EndTransactionMarker


class TransactionCoordinators:
    def __init__(
        self,
        *,
        new_runtimes: Callable[[CoordinatorRuntimesOwner], CoordinatorRuntimes],
        markers: MarkerWriter,
        producer_ids: ProducerIds,
        new_transaction_machine: Callable[[], CoordinatorState],
        me: BrokerId,
        remote: RemoteCoordinators | None = None,
    ) -> None:
        """`remote` is None for a single broker."""
        self.runtimes = new_runtimes(self)
        self._markers = markers
        self._producer_ids = producer_ids
        self._new_transaction_machine = new_transaction_machine
        self._me = me
        self._remote = remote

    def stop(self) -> None:
        self._markers.stop()
        self.runtimes.stop()

    async def ask(self, transactional_id: str, request: Any) -> Any:
        """Send a request to the coordinator of this id, with a new producer id if it needs one.

        Raises:
            RequestError: the request cannot be answered; its outcome is unknown.
        """
        reply = await self.runtimes.ask(transactional_id, request)
        if isinstance(reply, ProducerIdNeeded):
            reply = await self.ask_with_new_id(transactional_id, request)
        return reply

    async def ask_with_new_id(self, transactional_id: str, request: Any) -> Any:
        new_producer_id = await self._producer_ids.next()
        retried = dataclasses.replace(request, new_producer_id=new_producer_id)
        return await self.runtimes.ask(transactional_id, retried)

    async def admit_writes(
        self,
        producer: TransactionalProducer,
        partitions: Iterable[TopicPartition],
        *,
        version: TransactionVersion,
    ) -> dict[TopicPartition, RequestError | None]:
        """Verify that the producer may write to these partitions in its transaction; return an error for each refusal.

        In version 2 this adds the partitions to the transaction; before, the producer must have added them.
        """
        names = tuple(partitions)
        is_adding = version >= TransactionVersion.V2
        try:
            coordinator = self._coordinator_elsewhere(producer.transactional_id)
            if coordinator is not None and self._remote is not None:
                ask = self._remote.add if is_adding else self._remote.verify
                return await ask(coordinator, producer, names)
            if is_adding:
                return dict.fromkeys(names, await self._add(producer, names, version))
            return await self._verify(producer, names)
        except RequestError as error:
            return dict.fromkeys(names, error)

    def _coordinator_elsewhere(self, transactional_id: str) -> BrokerId | None:
        """Return the other broker that coordinates the id; None if it is this broker or there is no topic yet.

        Raises:
            CoordinatorNotAvailable: there is no coordinator now.
        """
        if self._remote is None or not self.runtimes.has_topic:
            return None
        leader = self.runtimes.leader_of(transactional_id).id
        return None if leader == self._me else leader

    async def _add(
        self,
        producer: TransactionalProducer,
        names: tuple[TopicPartition, ...],
        version: TransactionVersion,
    ) -> RequestError | None:
        reply: AddPartitionsReply = await self.runtimes.ask(
            producer.transactional_id,
            AddPartitions(
                transactional_id=producer.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                partitions=names,
                version=version,
            ),
        )
        return reply.error

    async def _verify(
        self, producer: TransactionalProducer, names: tuple[TopicPartition, ...]
    ) -> dict[TopicPartition, RequestError | None]:
        reply: VerifyPartitionsReply = await self.runtimes.ask(
            producer.transactional_id,
            VerifyPartitions(
                transactional_id=producer.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                partitions=names,
            ),
        )
        return dict(reply.errors)

    # -- for the coordinators ------------------------------------------------------------------------------------------

    def new_machine(self, number: int) -> CoordinatorState:
        del number
        return self._new_transaction_machine()

    def on_loaded(self, number: int, runtime: CoordinatorRuntime) -> None:
        """Do nothing: the machine itself reports which markers are missing."""

    def on_effect(self, runtime: CoordinatorRuntime, effect: Any) -> None:
        assert isinstance(effect, WriteMarkers), effect
        marker = EndTransactionMarker(
            producer_id=effect.producer_id,
            producer_epoch=effect.producer_epoch,
            coordinator_epoch=runtime.leader_epoch,
            is_commit=effect.is_commit,
        )
        written = MarkersWritten(
            transactional_id=effect.transactional_id,
            producer_id=effect.producer_id,
            producer_epoch=effect.producer_epoch,
            partitions=effect.partitions,
        )
        self._markers.write(
            marker,
            effect.partitions,
            on_written=lambda: runtime.report(written),
            is_wanted=lambda: runtime.is_active,
            needs_newer_epoch=effect.version.bumps_epoch,
        )
