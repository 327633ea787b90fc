"""One partition's batch of a Produce request, on its way into the log.

Each stage has only the fields that are valid in it:

```
             admit                        append
  received --------> Admitted ----------------------> Written
      |                 | opened, verified                |
      |                 v                                 v
      +------------> Refused <----------------------------+
                                          not durable as `acks` requires
```
A batch that is refused because this broker is about to lead the partition in a new epoch is admitted again afterwards.
"""

import asyncio
from typing import TypeAlias
from uuid import UUID

from respool.broker.broker import Broker
from respool.broker.handlers.support.batch_append import ACKS_ALL, append_admitted, without_trace
from respool.broker.handlers.support.batch_stages import (
    Admitted,
    AdmittedMirrored,
    Refused,
    Written,
)
from respool.broker.handlers.support.rights import ALTER_TOPIC, WRITE_TOPIC
from respool.broker.layouts.succession import AwaitsHandover, Succession
from respool.broker.partitions.batch_validation import (
    admit,
    check_keys,
    check_keys_quickly,
    check_size,
    name_late_and_early,
    recompression_for,
)
from respool.broker.partitions.delay_validation import check_delays, check_delays_quickly
from respool.broker.partitions.mirror_validation import admit_mirrored
from respool.broker.partitions.partition import Partition
from respool.model.coordinator_errors import (
    TransactionalIdAuthorizationFailed,
)
from respool.model.errors import (
    InvalidRequiredAcks,
    InvalidTopic,
    NotLeader,
    RequestError,
    TimestampOutOfRange,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from respool.model.ids import TopicId
from respool.model.internal_topics import is_internal
from respool.ports.record_scan import RecordScanner
from respool.records.validate import recompress
from respool.wire.codec import Request

IMPLICIT_ADD_VERSION = 12
# Replies of older versions have no place for the records at fault.
RECORD_ERRORS_FROM_VERSION = 8
# The decompressed size limit of a batch whose topic requires it to be decompressed.
# In a batch: its attributes, and the bit that says that it belongs to a transaction.
_ATTRIBUTES_AT = 21
_TRANSACTIONAL_BIT = 0x10
UNPACKED_BYTES_MAX = 100 * 1024 * 1024


# A topic's name, or its id from version 13 on.
TopicRef: TypeAlias = str | UUID
Stage: TypeAlias = Admitted | AdmittedMirrored | Written | Refused


class ProducedBatch:
    __slots__ = ("_records", "index", "ref", "stage", "topic")

    def __init__(
        self,
        ref: TopicRef,
        index: int,
        records: bytes | None,
        *,
        request: Request,
        broker: Broker,
        now_ms: int,
        refusal: RequestError | None = None,
    ) -> None:
        """`refusal`: why nothing of the request is written."""
        # As in the request, and so in its reply.
        self.ref = ref
        self.topic = ref if isinstance(ref, str) else _name_of(ref, broker)
        self.index = index
        # None once the batch was appended or finally refused: the number of requests that wait for a sync, and with it
        # the memory, is up to the clients.
        self._records = records
        self.stage: Stage = (
            self._admitted(request, broker, now_ms) if refusal is None else Refused(refusal)
        )

    @property
    def error(self) -> RequestError | None:
        return self.stage.error if isinstance(self.stage, Refused) else None

    @property
    def awaited_transition(self) -> "asyncio.Future[None] | None":
        """The epoch transition after which the batch may be admitted again."""
        return self.stage.transition if isinstance(self.stage, Refused) else None

    @property
    def epoch_transition(self) -> "asyncio.Future[None] | None":
        """The partition's epoch transition in progress, if the batch could otherwise be appended."""
        if isinstance(self.stage, Admitted | AdmittedMirrored):
            return self.stage.partition.role.epoch_transition
        return None

    @property
    def needs_preparation(self) -> bool:
        """True if the batch must be opened or verified before it is appended."""
        return self.needs_opening or self.unverified is not None

    @property
    def needs_opening(self) -> bool:
        stage = self.stage
        if isinstance(stage, Admitted):
            return stage.needs_opening
        return isinstance(stage, Refused) and stage.out_of_range is not None

    @property
    def unverified(self) -> Admitted | None:
        """The admitted batch, if it begins a transaction in its partition."""
        stage = self.stage
        return stage if isinstance(stage, Admitted) and stage.guard is not None else None

    @property
    def is_durable_here(self) -> bool:
        """True if an acks=1 reply need not wait: the batch is durable on this broker, or it was refused."""
        stage = self.stage
        return not isinstance(stage, Written) or stage.partition.waiters.is_durable_here(
            stage.next_offset
        )

    def refuse(self, error: RequestError) -> None:
        self.stage = Refused(error)

    def admit_again(self, request: Request, broker: Broker, now_ms: int) -> None:
        """Admit the batch after the transition that it waited for."""
        assert isinstance(self.stage, Refused)
        self.stage = self._admitted(request, broker, now_ms)

    def authorize_again(
        self, request: Request, broker: Broker, refusal: RequestError | None
    ) -> None:
        """Refuse the admitted batch if its client may not write it any more; `refusal`: nothing of the request."""
        stage = self.stage
        if not isinstance(stage, Admitted | AdmittedMirrored):
            return
        try:
            if refusal is not None:
                raise refusal
            self._authorize(request, broker)
        except RequestError as error:
            if isinstance(stage, Admitted) and stage.guard is not None:
                stage.partition.cancel_verification(stage.guard)
            self.stage = Refused(without_trace(error))

    def _authorize(self, request: Request, broker: Broker) -> None:
        """
        Raises:
            TopicAuthorizationFailed: the client may not write to the topic, which may not even exist.
        """
        access, name = broker.access, self.topic
        if not access.is_on or (not name and not isinstance(self.ref, str)):
            # There is no topic with this id.
            return
        access.check(request, WRITE_TOPIC, name)
        topic = broker.image.topics.get(name)
        if topic is not None and topic.config.respool_mirror:
            access.check(request, ALTER_TOPIC, name)

    def _admitted(
        self, request: Request, broker: Broker, now_ms: int
    ) -> Admitted | AdmittedMirrored | Refused:
        try:
            if request.body.acks not in (0, 1, ACKS_ALL):
                raise InvalidRequiredAcks(f"acks={request.body.acks} is not 0, 1 or -1")
            if broker.access.is_on:
                self._authorize(request, broker)
            if is_internal(self.topic):
                raise InvalidTopic(
                    f"{self.topic!r} belongs to the broker; clients do not write to it"
                )
            partition, succession = self._find_destination(broker)
            config = partition.config
            if config.respool_mirror:
                return AdmittedMirrored(partition, admit_mirrored(self._records, partition.name))
            batch = admit(self._records, config, now_ms=now_ms, version=request.version)
            admitted = Admitted(partition, batch)
            if succession is not None:
                admitted.succession, admitted.sent = succession, batch.header
                admitted.batch = batch = succession.batch_for(batch)
            admitted.needs_key_check = not check_keys_quickly(batch, config, broker.world.scanner)
            if config.respool_delay:
                pending = broker.deliveries.pending_count(partition)
                admitted.delay_room = config.respool_delay_pending_max - pending
                admitted.needs_delay_check = not check_delays_quickly(
                    batch, config, room=admitted.delay_room
                )
            admitted.needs_opening = (
                admitted.needs_key_check
                or admitted.needs_delay_check
                or recompression_for(batch, config) is not None
            )
            if batch.header.is_transactional:
                _check_transactional_id(request)
                admitted.is_implicit = request.version >= IMPLICIT_ADD_VERSION
                admitted.guard = partition.log.begin_verification(batch.header)
        except NotLeader as error:
            replica = broker.partitions.held(self.topic, self.index)
            transition = None if replica is None else replica.role.epoch_transition
            if isinstance(error, AwaitsHandover):
                transition = error.ready
            return Refused(without_trace(error), replica, transition)
        except TimestampOutOfRange as error:
            is_named = request.body.acks != 0 and request.version >= RECORD_ERRORS_FROM_VERSION
            return Refused(without_trace(error), out_of_range=error if is_named else None)
        except UnknownTopicOrPartition as error:
            return Refused(without_trace(_view_refusal(self.topic, broker) or error))
        except RequestError as error:
            return Refused(without_trace(error))
        return admitted

    def _find_destination(self, broker: Broker) -> tuple[Partition, Succession | None]:
        """The partition that takes the batch, and in a topic that was shrunk, where its producer's batches were."""
        try:
            partition = self._find_leader(broker)
        except UnknownTopicOrPartition:
            if not broker.layouts.has_succession(self.topic, self.index):
                raise
        else:
            if not partition.has_succession:
                return partition, None
        succession = broker.layouts.succession(self.topic, self.index)
        return succession.destination, succession

    def _find_leader(self, broker: Broker) -> Partition:
        if isinstance(self.ref, str):
            return broker.partitions.find_leader(self.topic, self.index)
        if self.topic:
            partition = broker.partitions.find_leader(self.topic, self.index)
            # A recreated topic has the name of the old one, but not its id.
            if partition.topic_id == self.ref:
                return partition
        raise UnknownTopicId(f"there is no topic with id {self.ref}")

    def open(self, scanner: RecordScanner) -> None:
        """Decompress the batch where its topic's settings require that. Runs in a thread."""
        stage = self.stage
        if isinstance(stage, Refused) and stage.out_of_range is not None:
            assert self._records is not None
            name_late_and_early(stage.out_of_range, self._records)
        if not isinstance(stage, Admitted):
            return
        try:
            # The topic may have been deleted since the batch was admitted.
            config = stage.partition.config
            if stage.needs_key_check:
                check_keys(stage.batch, scanner, limit=UNPACKED_BYTES_MAX)
            if stage.needs_delay_check:
                check_delays(stage.batch, config, room=stage.delay_room, limit=UNPACKED_BYTES_MAX)
            wanted = recompression_for(stage.batch, config)
            if wanted is None:
                return
            # Decompressed, a batch must not be larger than an uncompressed request could be.
            stage.batch = recompress(
                stage.batch, wanted.codec, level=wanted.level, limit=UNPACKED_BYTES_MAX
            )
            check_size(stage.batch, config)
        except RequestError as error:
            self.refuse(without_trace(error))

    def append(self, acks: int, now_ms: int) -> None:
        """Append the batch if it was admitted. Afterwards it is appended or refused."""
        records, self._records = self._records, None
        stage = self.stage
        if isinstance(stage, Admitted | AdmittedMirrored):
            self.stage = append_admitted(stage, acks, now_ms)
        elif isinstance(stage, Refused) and stage.replica is not None:
            stage.replica.refused.note_bytes(records, stage.error, now_ms=now_ms)


def is_transactional(records: bytes | None) -> bool:
    """True if the first batch is. Others are refused, or belong to a mirror, which runs no transactions."""
    return (
        records is not None
        and len(records) >= _ATTRIBUTES_AT + 2
        and bool(records[_ATTRIBUTES_AT + 1] & _TRANSACTIONAL_BIT)
    )


def _name_of(topic_id: UUID, broker: Broker) -> str:
    """The name of the topic or view; empty if there is none with this id."""
    topic = broker.image.readable_by_id(TopicId(topic_id))
    return "" if topic is None else topic.name


def _view_refusal(topic: str, broker: Broker) -> RequestError | None:
    """Why nobody writes to it, if it is a view."""
    try:
        broker.image.check_is_no_view(topic, instead="write to")
    except RequestError as error:
        return error
    return None


def _check_transactional_id(request: Request) -> None:
    """Raises:
    TransactionalIdAuthorizationFailed: the request names no transactional id, though its batches are transactional.
    """
    if not request.body.transactional_id:
        raise TransactionalIdAuthorizationFailed(
            "a transactional batch, and the request names no transactional id"
        )
