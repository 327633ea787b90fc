"""`write_table`: one table into one topic, and back when it is in."""

from typing import Any

from respool.client.arrow.cluster import DEFAULT_BOOTSTRAP
from respool.client.arrow.producer import ArrowProducer
from respool.client.arrow.write_columns import Named
from respool.client.arrow.write_result import WriteResult


def write_table(
    table: Any,
    topic: str,
    *,
    key: Named = None,
    value: Named = None,
    timestamp: Named = None,
    headers: Named = None,
    partition: str | None = None,
    bootstrap: str = DEFAULT_BOOTSTRAP,
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
        WriteFailed: not all is in; it says for each partition what is.
        BrokerUnreachable: no broker answered; nothing was written.
    """
    with ArrowProducer(bootstrap, **settings) as producer:
        producer.write(
            table,
            topic,
            key=key,
            value=value,
            timestamp=timestamp,
            headers=headers,
            partition=partition,
        )
        return producer.flush()
