"""Where batches for one partition of a topic that was shrunk are appended, and what is known of their producers.

A producer's last batches for the partition may lie in any log of its lineage: its own, and those of every heir that it
has had. Their leader is one broker (`cluster/families.py`), which looks into all of them:

1. A retry of one of the last batches is found wherever that was appended.
2. The producer continues where the newest state says that it is, in whichever log.
"""

import asyncio
from collections import OrderedDict
from typing import NamedTuple

from respool.broker.partitions.partition import Partition
from respool.broker.partitions.refused_batches import RefusedBatches
from respool.log.partition_log import ProducerState
from respool.model.errors import NotLeader
from respool.model.ids import Offset, TopicId, TopicPartition
from respool.ports.metrics import Counter
from respool.records.batch import BatchHeader, RecordBatch
from respool.records.producer_alias import producer_alias, with_producer_id

# Aliases remembered, each about 100 bytes.
ALIASES_MAX = 1_000


class AwaitsHandover(NotLeader):
    """The records will be taken by this broker, once the change of the layout is complete."""

    def __init__(self, message: str, *, ready: "asyncio.Future[None]") -> None:
        super().__init__(message)
        self.ready = ready


class AppendedBefore(NamedTuple):
    """The first copy of a retried batch."""

    partition: Partition
    base_offset: Offset
    next_offset: Offset
    timestamp: int


class Succession:
    """It is replaced when the layout, or a role of one of the partitions, changes."""

    def __init__(
        self,
        *,
        name: TopicPartition,
        topic_id: TopicId,
        destination: Partition,
        others: tuple[Partition, ...],
        redirected: Counter,
    ) -> None:
        """`others` are the other partitions of the lineage that exist; all of them are led here."""
        self.name = name
        self.destination = destination
        self.is_current = True
        self._topic_id = topic_id
        self._others = others
        self._redirected = redirected
        self._aliases: OrderedDict[int, int] = OrderedDict()
        named = [one for one in (destination, *others) if one.name == name]
        # Batches that were refused, by the ids that producers sent.
        self.refused = named[0].refused if named else RefusedBatches()

    @property
    def is_redirect(self) -> bool:
        """True if the records go to another partition than the one that is named."""
        return self.destination.name != self.name

    @property
    def logs(self) -> tuple[Partition, ...]:
        """Every partition that may have batches for this one."""
        return (self.destination, *self._others)

    def count(self) -> None:
        """A batch was appended."""
        if self.is_redirect:
            self._redirected.inc()

    def batch_for(self, batch: RecordBatch) -> RecordBatch:
        """The batch as it is appended to the destination."""
        producer_id = batch.header.producer_id
        if producer_id < 0 or not self.is_redirect:
            return batch
        return with_producer_id(batch, self.id_in(self.destination, producer_id))

    def id_in(self, partition: Partition, producer_id: int) -> int:
        """The producer's id in the log of that partition."""
        if partition.name == self.name:
            return producer_id
        alias = self._aliases.get(producer_id)
        if alias is None:
            alias = producer_alias(self._topic_id, self.name.partition, producer_id)
            while len(self._aliases) >= ALIASES_MAX:
                self._aliases.popitem(last=False)
            self._aliases[producer_id] = alias
        return alias

    def knows_producer(self, producer_id: int) -> bool:
        return any(self.id_in(one, producer_id) in one.log.producers for one in self.logs)

    def find_duplicate(self, sent: BatchHeader) -> AppendedBefore | None:
        """The first copy of the batch, if it is among the producer's last ones in any of the logs.

        `sent` is the header as the producer sent it.
        """
        if sent.producer_id < 0 or sent.base_sequence < 0:
            return None
        for one in self.logs:
            state = self._state_in(one, sent.producer_id)
            if state is None or state.epoch != sent.producer_epoch:
                continue
            batch = state.find(base_sequence=sent.base_sequence, last_sequence=sent.last_sequence)
            if batch is not None:
                next_offset = Offset(batch.last_offset + 1)
                return AppendedBefore(one, batch.base_offset, next_offset, batch.timestamp)
        return None

    def earlier_state(self, producer_id: int) -> ProducerState | None:
        """The newest state of the producer in the other logs."""
        newest: ProducerState | None = None
        for one in self._others if producer_id >= 0 else ():
            state = self._state_in(one, producer_id)
            if state is not None and (newest is None or state.is_later_than(newest)):
                newest = state
        return newest

    def with_open_transaction(self, producer_id: int) -> list[Partition]:
        """The partitions in whose logs a transaction of the producer, for this partition, is open."""
        return [
            one for one in self.logs if one.log.has_open_transaction(self.id_in(one, producer_id))
        ]

    def _state_in(self, partition: Partition, producer_id: int) -> ProducerState | None:
        return partition.log.producers.get(self.id_in(partition, producer_id))
