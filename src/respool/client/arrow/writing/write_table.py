"""`write_table`: one table into one topic, and back when it is in."""

from typing import Any

from respool.client.arrow.errors import WriteFailed
from respool.client.arrow.writing.arrow_producer import ArrowProducer
from respool.client.arrow.writing.table_columns import Named
from respool.client.arrow.writing.write_result import WriteResult


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
        key: The column with the keys. Without it `key`, if there is one; `key=False` for none. The same goes for
            `value`, `timestamp` and `headers`; a value there must be, or `value=False`.
        partition: A column with partition numbers, where rows should not be routed by their keys.
        settings: Those of `ArrowProducer`: acks, compression, partitioner, batch_bytes and so on.

    Raises:
        WrongColumn, RecordTooLarge, UnknownTopic, UnknownPartition: nothing was written.
        WriteFailed: not all is in; it says for each partition what is. Its cause is what else went wrong half-way.
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
            _tell_what_is_in(producer, error)
            raise
        return producer.flush()


def _tell_what_is_in(producer: ArrowProducer, error: Exception) -> None:
    """It ended half-way, by a row or by whoever makes the rows: those before it are on their way.

    Raises:
        WriteFailed: there are some; it says what became of them.
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
