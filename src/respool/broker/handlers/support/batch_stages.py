"""The stages of a partition's batch of a Produce request: see `produced_batch.py`."""

import asyncio
from dataclasses import dataclass

from respool.broker.layouts.succession import Succession
from respool.broker.partitions.partition import Partition
from respool.log.partition_log import VerificationGuard
from respool.model.errors import RequestError, TimestampOutOfRange
from respool.model.ids import Offset, TopicPartition
from respool.records.batch import BatchHeader, RecordBatch
from respool.records.mirrored_batches import MirroredBatches


@dataclass(slots=True)
class Admitted:
    """The batch has passed the checks of its header and may be appended, once opened and verified.

    Attributes:
        needs_key_check: the records must be scanned for keys.
        needs_delay_check: the records must be read, for their delay headers.
        delay_room: how many more records may wait in the partition.
        needs_opening: the batch must be decompressed first, which is too slow for the event loop.
        guard: set if the batch begins its transaction in the partition, which the coordinator has to verify.
        is_implicit: version 2: writing to the partition adds it to the transaction, the only one of its epoch.
        succession: set in a topic that was shrunk, where the partition may be another one than the client named.
        sent: with it: the batch's header as the producer sent it.
    """

    partition: Partition
    batch: RecordBatch
    needs_key_check: bool = False
    needs_delay_check: bool = False
    delay_room: int = 0
    needs_opening: bool = False
    guard: VerificationGuard | None = None
    is_implicit: bool = False
    succession: Succession | None = None
    sent: BatchHeader | None = None

    @property
    def name(self) -> TopicPartition:
        """The partition that the client named; its transaction's coordinator knows that one."""
        return self.partition.name if self.succession is None else self.succession.name

    @property
    def producer_id(self) -> int:
        """The id that the producer knows itself by."""
        return (self.batch.header if self.sent is None else self.sent).producer_id


@dataclass(slots=True)
class AdmittedMirrored:
    """The batches have the offsets of the mirror's source and may be appended."""

    partition: Partition
    batches: MirroredBatches


@dataclass(slots=True)
class Written:
    """The batch is in this broker's log. For a retry, the offset and time are those of the first attempt."""

    partition: Partition
    base_offset: int
    next_offset: Offset
    log_append_time_ms: int = -1


@dataclass(slots=True)
class Refused:
    """The batch is not acknowledged.

    Attributes:
        replica: the local replica that refused the batch because it is not the leader.
        transition: done when the leader of the partition's next epoch is known; most probably it is this broker.
        out_of_range: set if the records at fault are still to be named: the error, which is to have them.
    """

    error: RequestError
    replica: Partition | None = None
    transition: "asyncio.Future[None] | None" = None
    out_of_range: TimestampOutOfRange | None = None
