"""`write_table`: writes one table to one topic, and waits for the acknowledgement."""

from typing import Any

from respool.client.arrow.errors import WriteFailed
from respool.client.arrow.write_result import WriteResult
from respool.client.arrow.writing.arrow_producer import ArrowProducer
from respool.client.arrow.writing.table_columns import Named


def write_table(
    table: Any,
    topic: str,
    *,
    key: Named = None,
    value: Named = None,
    timestamp: Named = None,
    headers: Named = None,
    partition: str | None = None,
    bootstrap: str | None = None,
    **settings: Any,
) -> WriteResult:
    """Write a table, and return when all of it is acknowledged: by default on the disks of all in-sync replicas.

    Args:
        table: An Arrow table, record batch or reader; a Polars or pandas frame; a DuckDB result.
        key: The column with the keys; the default is `key`, if that column exists; `key=False` for none. The same
            applies to `value`, `timestamp` and `headers`; but without a `value` column, `value=False` is required.
        partition: A column with partition numbers, for rows that are not to be routed by key.
        settings: Settings of `ArrowProducer`: acks, compression, partitioner, batch_bytes and so on.

    Raises:
        WrongColumn, RecordTooLarge, UnknownTopic, UnknownPartition: nothing was written.
        WriteFailed: some rows were not written; it has the counts per partition. Its cause is any other error.
        BrokerUnreachable: no broker answered; nothing was written.
    """
    with ArrowProducer(bootstrap, **settings) as producer:
        try:
            producer.write(
                table,
                topic,
                key=key,
                value=value,
                timestamp=timestamp,
                headers=headers,
                partition=partition,
            )
        except WriteFailed:
            raise
        except Exception as error:
            _raise_partial_failure(producer, error)
            raise
        return producer.flush()


def _raise_partial_failure(producer: ArrowProducer, error: Exception) -> None:
    """Report the outcome after an error half-way, in a row or in the source of the rows: earlier rows may be sent.

    Raises:
        WriteFailed: some rows were sent; it has their outcome.
    """
    try:
        result = producer.flush()
    except WriteFailed as failure:
        result = failure.result
    if result.rows:
        raise WriteFailed(
            f"{type(error).__name__}: {error}. Of {result.rows} rows that were taken {result.rows_in} are in, "
            f"{result.rows_uncertain} are uncertain, {result.rows_not_in} are not in",
            result,
        ) from error
