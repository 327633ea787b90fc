"""Decodes record batches of a Fetch response into Arrow columns, without an object per record."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from respool.columnar.arrow_columns import ALL_COLUMNS, schema_of
from respool.columnar.batch_headers import BEGIN, END, SECTION_COLUMNS
from respool.columnar.clause_tables import ClauseTables, clause_tables
from respool.columnar.column_builder import ColumnBuilder
from respool.columnar.compiled import Bytes, Numbers, readable
from respool.columnar.fetched_batches import AbortedTransactions, FetchedBatches, OpenBatch
from respool.ports.record_scan import Buffer

DECOMPRESSED_MAX = 256 * 1024 * 1024
# A column of bytes is limited to 2 GiB, and a batch's records may take nearly that.
GROUP_BYTES_MAX = 2**31 - 1
NO_CLAUSES = clause_tables(None)

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    # None without records; one batch, unless it would reach 2 GiB.
    batches: Sequence[pa.RecordBatch]
    # The number of rows, also if no column was requested.
    rows: int
    # The next fetch offset: after every whole batch, whether its records are returned or not.
    next_offset: int
    # The number of whole batches. If there is data but no whole batch, the first one is larger than the fetch.
    whole_batches: int
    # The size of an incomplete batch at the end, if known: the next fetch must be that large.
    partial_batch_bytes: int | None


def decode(
    data: Buffer,
    *,
    begin: int,
    end: int | None = None,
    columns: Sequence[str] = ALL_COLUMNS,
    since_ms: int | None = None,
    until_ms: int | None = None,
    clauses: ClauseTables = NO_CLAUSES,
    aborted: Sequence[tuple[int, int]] = (),
    decompressed_max: int = DECOMPRESSED_MAX,
    check_crc: bool = True,
) -> Decoded:
    """Return the records with begin <= offset < end and since <= timestamp < until, in offset order.

    Args:
        data: The records field of one partition in a Fetch response.
        clauses: Only records for which they hold are returned.
        aborted: Producer id and first offset of each aborted transaction in that response. Their records are left out.
        decompressed_max: Maximum decompressed size of a batch. Once this many bytes were decompressed, the rest of the
        data is left for the next fetch, at `next_offset`.

    Raises:
        CorruptBatch: the data is inconsistent. Nothing is returned.
        BatchTooLarge: a batch has more than `decompressed_max` bytes.
        BatchFormatUnknown: a batch is older than Kafka 0.11, or its codec is unknown.
        UnknownColumn: there is no such column.
    """
    builder = ColumnBuilder(
        schema_of(columns),
        offset_first=begin,
        offset_last=_INT64_MAX if end is None else end - 1,
        time_first=_INT64_MIN if since_ms is None else max(since_ms, _INT64_MIN),
        time_last=_INT64_MAX if until_ms is None else min(until_ms - 1, _INT64_MAX),
        clauses=clauses,
    )
    view = memoryview(data).cast("B")
    fetched = FetchedBatches(
        data=view,
        begin=begin,
        end=end,
        aborted=AbortedTransactions(aborted),
        decompressed_max=decompressed_max,
        check_crc=check_crc,
    )
    batches: list[pa.RecordBatch] = []
    rows = 0
    for group in _groups(fetched):
        built, built_rows = builder.build(*_joined(fetched, group))
        rows += built_rows
        if built_rows:
            batches.append(built)
    return Decoded(
        batches=batches,
        rows=rows,
        next_offset=fetched.next_offset,
        whole_batches=fetched.whole_batches,
        partial_batch_bytes=fetched.partial_batch_bytes,
    )


def _groups(fetched: FetchedBatches) -> Iterator[list[OpenBatch]]:
    """Group as many batches as fit one Arrow batch."""
    group: list[OpenBatch] = []
    group_bytes = 0
    for batch in fetched.opened():
        if group and group_bytes + batch.size > GROUP_BYTES_MAX:
            yield group
            group, group_bytes = [], 0
        group.append(batch)
        group_bytes += batch.size
    if group:
        yield group


def _joined(fetched: FetchedBatches, group: Sequence[OpenBatch]) -> tuple[Bytes, Numbers]:
    """The records of these batches in one buffer, and their sections: the fetched data itself if nothing was
    compressed.
    """
    sections = fetched.headers[[batch.row for batch in group], :SECTION_COLUMNS]
    if all(batch.opened is None for batch in group):
        return readable(fetched.data), sections
    if len(group) == 1 and group[0].opened is not None:
        data = group[0].opened
    else:
        bounds = sections[:, [BEGIN, END]].tolist()
        data = b"".join(
            fetched.data[begin:end] if batch.opened is None else batch.opened
            for batch, (begin, end) in zip(group, bounds, strict=True)
        )
    sizes = np.array([batch.size for batch in group], dtype=np.int64)
    sections[:, END] = np.cumsum(sizes)
    sections[:, BEGIN] = sections[:, END] - sizes
    return readable(data), sections
