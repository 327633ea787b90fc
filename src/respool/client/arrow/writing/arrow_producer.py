"""`ArrowProducer`: writes tables to topics, without a Python object per row.

```
write()   columns ─► sizes ─► routes ─► batches ─► encoded batches ─► queues ─► senders, one per broker
          the caller's thread; the kernels release the GIL            delivery.py   sender.py
```
The buffer is bounded (`buffer_bytes`): `write` waits when brokers are slower than the caller.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from respool.client.arrow.errors import WriteFailed
from respool.client.arrow.prepared import PreparedTransaction
from respool.client.arrow.write_result import WriteResult
from respool.client.arrow.writing.accumulator import Accumulator, ProcessLock, Routed
from respool.client.arrow.writing.batch_encoder import BatchEncoder
from respool.client.arrow.writing.delivery import ACKS_ALL, Delivery, DeliverySettings
from respool.client.arrow.writing.destinations import Destination, Destinations
from respool.client.arrow.writing.maintenance import MaintenanceThread
from respool.client.arrow.writing.producer_settings import (
    Acks,
    Compression,
    acks_of,
    check_settings,
    check_timeouts,
    codec_of,
    level_of,
)
from respool.client.arrow.writing.producer_transactions import ProducerTransactions
from respool.client.arrow.writing.routing import Partitioner
from respool.client.arrow.writing.sender import BrokerSender
from respool.client.arrow.writing.table_columns import Columns, Named, batches_of
from respool.client.kafka.bootstrap import FIRST_CONTACT_MS
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import BadArgument, ClientClosed
from respool.client.kafka.partition_queue import IN_FLIGHT_MAX
from respool.client.kafka.producer_ids import new_producer_id
from respool.client.kafka.security import IN_THE_CLEAR, Security

# With its header, a batch of this size still fits the usual topic limit of 1 MiB and 12 bytes.
BATCH_BYTES = 1024 * 1024
BUFFER_BYTES = 64 * 1024 * 1024
# Tables are processed in pieces of this size; memory in addition to the encoded batches is proportional to it.
PIECE_BYTES = 16 * 1024 * 1024


class ArrowProducer:
    """Writes tables. Use it as a context manager: on exit everything is written, or `WriteFailed` says what is.

    Any thread may call it; writes are serialized.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        acks: Acks = "all",
        idempotent: bool | None = None,
        compression: Compression | None = None,
        compression_level: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        linger_ms: int = 5,
        partitioner: Partitioner = "murmur2",
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        buffer_bytes: int = BUFFER_BYTES,
        in_flight_max: int = IN_FLIGHT_MAX,
        connect_timeout_ms: int | None = None,
        request_timeout_ms: int = 30_000,
        delivery_timeout_ms: int = 120_000,
        first_contact_ms: int = FIRST_CONTACT_MS,
        client_id: str = "respool-arrow",
        security: Security = IN_THE_CLEAR,
    ) -> None:
        """Does not connect yet.

        Args:
            acks: "all" waits until every in-sync replica has a batch (on disk, with Respool's default flush); 1 waits
                until the leader has it; 0 does not wait, so the outcome is unknown.
            idempotent: Whether brokers recognise retried batches, so that none is duplicated or out of order. Requires
                acks="all", and is the default then.
            compression_level: On the codec's own scale: gzip 0 to 9, lz4 0 to 12, zstd 1 to 22. The default is 6 for
                gzip, and 1 for lz4 and zstd: the fastest level is best for tables.
            batch_bytes: The maximum size of a record batch before compression; less if the topic's limit is lower.
            linger_ms: How long rows of a small `write` wait for others to share a batch with.
            partitioner: See `routing.py`.
            transactional_id: The id for transactions; a later producer with the same id fences this one.
            buffer_bytes: The maximum memory for unacknowledged batches; beyond it `write` waits.
            in_flight_max: The maximum number of batches in flight per partition.
            delivery_timeout_ms: How long a batch is retried before it fails.
            first_contact_ms: The same until a broker has answered for the first time.
            security: TLS and a login, for brokers that require them.

        Raises:
            BadArgument: a setting is invalid, or contradicts another.
        """
        self._acks = acks_of(acks)
        is_idempotent = self._acks == ACKS_ALL if idempotent is None else idempotent
        check_settings(
            acks=self._acks,
            is_idempotent=is_idempotent,
            in_flight_max=in_flight_max,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            linger_ms=linger_ms,
            transactional_id=transactional_id,
        )
        check_timeouts(
            connect_timeout_ms=connect_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            transaction_timeout_ms=transaction_timeout_ms,
        )
        self._is_idempotent = is_idempotent
        self._cluster = Cluster(
            bootstrap,
            client_id=client_id,
            connect_timeout_ms=connect_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            retry_ms=delivery_timeout_ms,
            first_contact_ms=first_contact_ms,
            security=security,
        )
        self._delivery = Delivery(
            self._cluster,
            DeliverySettings(
                acks=self._acks,
                in_flight_max=in_flight_max,
                request_timeout_ms=request_timeout_ms,
                delivery_timeout_ms=delivery_timeout_ms,
                buffer_bytes=buffer_bytes,
                transactional_id=transactional_id,
            ),
            new_sender=BrokerSender,
            new_maintenance=MaintenanceThread,
        )
        codec = codec_of(compression)
        level = level_of(codec, compression_level)
        self._encoder = BatchEncoder(self._delivery, codec=codec, level=level)
        self._destinations = Destinations(
            self._cluster,
            partitioner=partitioner,
            batch_bytes=batch_bytes,
            is_compressing=self._encoder.is_compressing,
        )
        self._transactions = (
            None
            if transactional_id is None
            else ProducerTransactions(
                self._cluster,
                self._delivery,
                transactional_id=transactional_id,
                timeout_ms=transaction_timeout_ms,
            )
        )
        # Serializes writes, including those of the linger thread.
        self._writing = ProcessLock()
        self._accumulator = Accumulator(linger_ms, self._writing, self._pack)
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(wait=error is None)

    @property
    def buffered_bytes(self) -> int:
        """Encoded bytes without acknowledgement; at most `buffer_bytes`, unless a single batch is larger."""
        return self._delivery.buffered_bytes

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(
        self,
        data: Any,
        topic: str,
        *,
        key: Named = None,
        value: Named = None,
        timestamp: Named = None,
        headers: Named = None,
        partition: str | None = None,
    ) -> int:
        """Queue a table, or anything convertible to one; return its row count. `flush` waits for acknowledgement.

        Columns are named as described in `table_columns.py`: `key="ride_id"`, `value="payload"`.

        Raises:
            WrongColumn: a column is missing or cannot be written. Nothing was queued.
            RecordTooLarge: a row is larger than the topic allows. Nothing was queued, unless `data` is a stream.
            UnknownTopic, UnknownPartition: it does not exist.
            WriteFailed: earlier rows, or some of these, cannot be written.
            BufferFull: no buffer space became free within the delivery timeout.
        """
        schema, batches, rows = batches_of(data)
        columns = Columns.of(
            schema,
            key=key,
            value=value,
            timestamp=timestamp,
            headers=headers,
            partition=partition,
        )
        with self._writing:
            self._check_open()
            destination = self._prepare(topic)
            if self._delivery.has_failed:
                self.flush()
            if rows is not None:
                # Check all rows before the first one is queued.
                whole = list(batches)
                _check_all(destination, whole, columns)
                batches = iter(whole)
            taken = 0
            for piece in (piece for batch in batches for piece in _pieces(batch)):
                routed = destination.route(piece, columns, first_row=taken)
                if rows is None or not taken:
                    # Count a table's rows at once: if it fails half-way, the others count as not written.
                    self._delivery.tally.handed_over += piece.num_rows if rows is None else rows
                taken += piece.num_rows
                # Data that fills a batch for each partition gains nothing from lingering.
                filling = destination.batch_bytes * destination.partitions
                self._accumulator.add(routed, alone_from=min(filling, PIECE_BYTES))
            return taken

    def flush(self) -> WriteResult:
        """Wait until everything written is acknowledged, and return where.

        Raises:
            WriteFailed: some rows were not written. Writing may continue; a transaction must be aborted first.
        """
        with self._writing:
            self._check_open()
            self._accumulator.drain()
            self._delivery.wait_until_complete()
            result, failures = self._delivery.take_result()
            is_whole = not (failures or result.rows_not_in or result.rows_uncertain)
            if self._transactions is not None:
                self._transactions.on_flushed(is_whole=is_whole)
        if not is_whole:
            raise WriteFailed(result.shortfall(), result)
        return result

    def close(self, *, wait: bool = True) -> None:
        """Close the producer. With `wait`, flush first; an open transaction is aborted, a prepared one is kept.

        Raises:
            WriteFailed: some rows were not written. The producer is closed nevertheless.
        """
        if not self._writing.is_owner:
            # In a fork: only the process that created it may close it.
            return
        with self._writing:
            if self._is_closed:
                return
            try:
                if self._transactions is not None:
                    self._accumulator.forget()
                    self._transactions.abort_if_open()
                elif wait:
                    self.flush()
            finally:
                self._is_closed = True
                self._accumulator.stop()
                self._cluster.interrupt()
                self._delivery.stop()
                self._cluster.close()

    # -- transactions --------------------------------------------------------------------------------------------------

    def init(self) -> None:
        """Take over the transactional id: fences its previous producer and aborts its open transaction.

        `begin` calls this if it has not been called yet.

        Raises:
            TransactionFenced, BrokerUnreachable, BrokerRefused
        """
        with self._writing:
            self._check_open()
            self._transactional.init()

    def begin(self) -> None:
        """Begin a transaction; all writes up to `commit` or `abort` are part of it."""
        with self._writing:
            self._check_open()
            self._transactional.begin()

    def commit(self) -> WriteResult:
        """Flush, and make the whole transaction visible atomically.

        Raises:
            WriteFailed: some rows were not written; the transaction must be aborted.
            TransactionFenced: it was aborted, and another producer uses the transactional id.
            TransactionUncertain: no answer came; repeat the commit with the error's `transaction`.
        """
        with self._writing:
            transactions = self._transactional
            transactions.check_open()
            result = self.flush()
            transactions.end(is_commit=True)
        return result

    def abort(self) -> None:
        """Abort the transaction."""
        with self._writing:
            self._check_open()
            self._accumulator.forget()
            self._transactional.abort()

    def prepare(self) -> tuple[PreparedTransaction, WriteResult]:
        """Flush, and return the prepared transaction: any process may commit or abort it.

        This producer writes nothing more until `init`. The transaction's timeout continues to run.
        """
        with self._writing:
            self._transactional.check_open()
            result = self.flush()
            return self._transactional.prepare(), result

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun that `commit`, `abort` or `prepare` has not ended."""
        return self._transactions is not None and self._transactions.is_open

    def transaction(self) -> AbstractContextManager["ArrowProducer"]:
        """Use it as `with producer.transaction():`; commits at the end, and aborts on an exception."""
        return _OneTransaction(self)

    def send_offsets(
        self,
        group: str,
        offsets: Mapping[tuple[str, int], int],
        *,
        member_id: str = "",
        generation_id: int = -1,
        group_instance_id: str | None = None,
    ) -> None:
        """Commit a consumer group's offsets with the transaction: `{(topic, partition): next offset to read}`.

        With the member's id and generation, a commit is refused if the member has been replaced meanwhile.
        """
        with self._writing:
            self._check_open()
            self._transactional.send_offsets(
                group,
                offsets,
                member_id=member_id,
                generation_id=generation_id,
                group_instance_id=group_instance_id,
            )

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _transactional(self) -> ProducerTransactions:
        if self._transactions is None:
            raise BadArgument("transactions need a name: ArrowProducer(transactional_id='...')")
        return self._transactions

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the producer is closed")

    def _prepare(self, topic: str) -> Destination:
        """Fetch what is needed before the first row is written."""
        if self._transactions is not None:
            self._transactions.check_open()
        elif self._is_idempotent and self._delivery.identity is None:
            self._delivery.identity = self._cluster.retrying(lambda: new_producer_id(self._cluster))
        return self._destinations.look_up(topic)

    def _pack(self, routed: Routed) -> None:
        """Split into batches, encode and queue; called by the accumulator with the lock held."""
        batch_bytes = self._destinations[routed.topic].batch_bytes
        if self._transactions is not None:
            self._transactions.on_writing(routed.topic, routed.partitions)
        if not self._encoder.encode_all(routed, batch_bytes=batch_bytes):
            self.flush()


class _OneTransaction(AbstractContextManager["ArrowProducer"]):
    def __init__(self, producer: ArrowProducer) -> None:
        self._producer = producer

    def __enter__(self) -> ArrowProducer:
        self._producer.begin()
        return self._producer

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            if self._producer.in_transaction:
                self._producer.abort()
            return
        try:
            self._producer.commit()
        except BaseException:
            # If left open, it would block read_committed consumers.
            if self._producer.in_transaction:
                self._producer.abort()
            raise


def _check_all(
    destination: Destination, batches: Sequence[pa.RecordBatch], columns: Columns
) -> None:
    pieces = [piece for batch in batches for piece in _pieces(batch)]
    if len(pieces) <= 1:
        # A single piece is checked when it is routed.
        return
    first_row = 0
    for piece in pieces:
        destination.check(piece, columns, first_row=first_row)
        first_row += piece.num_rows


def _pieces(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Slices of about `PIECE_BYTES`, without copying."""
    if batch.nbytes <= PIECE_BYTES or batch.num_rows <= 1:
        return [batch] if batch.num_rows else []
    rows = max(1, batch.num_rows * PIECE_BYTES // batch.nbytes)
    return [batch.slice(at, rows) for at in range(0, batch.num_rows, rows)]
