"""Chooses the partition of each row.

- A `partition` column names it; where that is null, the partitioner decides.
- "murmur2", the default, is the Java client's: a key always goes to the same partition, and rows without a key fill a
  batch for one partition, then one for the next ("sticky"), so that batches are large.
- "round-robin" moves to the next partition with every row, regardless of its key.
- A function receives keys and values (Arrow arrays) and the number of partitions, and returns a number for each row.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from respool.client.kafka.errors import BadArgument, UnknownPartition
from respool.columnar.murmur import murmur2_partitions
from respool.records.batch import HEADER_BYTES

PartitionerFunction: TypeAlias = Callable[[pa.Array, pa.Array, int], Any]
Partitioner: TypeAlias = Literal["murmur2", "round-robin"] | PartitionerFunction

NO_PARTITION = -1


class Router:
    """The router of one topic. It keeps the partition for the next row without a key."""

    def __init__(
        self, topic: str, partitioner: Partitioner = "murmur2", *, batch_bytes: int, first: int = 0
    ) -> None:
        if not callable(partitioner) and partitioner not in {"murmur2", "round-robin"}:
            raise BadArgument(
                f"partitioner {partitioner!r} is not 'murmur2', 'round-robin' or a function"
            )
        self._topic = topic
        self._partitioner = partitioner
        self._batch_room = batch_bytes - HEADER_BYTES
        # Producers start at different partitions, so that they do not all fill the first one.
        self._turn = first
        # Bytes routed to the current partition in this batch.
        self._filled = 0

    def route(
        self,
        keys: pa.Array | None,
        values: pa.Array | None,
        chosen: pa.Array | None,
        sizes: NDArray[np.int64],
        *,
        partitions: int,
    ) -> NDArray[np.int32]:
        """Return a partition for each row; `sizes` are the rows' bytes.

        Raises:
            UnknownPartition: the column or the function names one that the topic does not have.
            BadArgument: the function did not return one number for each row.
        """
        assert partitions > 0
        count = len(sizes)
        if chosen is None:
            return self._by_partitioner(keys, values, sizes, count, partitions)
        named: NDArray[np.int64] = chosen.cast(pa.int64()).fill_null(NO_PARTITION).to_numpy()
        is_free = np.asarray(chosen.is_null().to_numpy(zero_copy_only=False))
        self._check(named[~is_free], partitions)
        if not is_free.any():
            return named.astype(np.int32)
        rows = pa.array(np.flatnonzero(is_free))
        found: NDArray[np.int32] = named.astype(np.int32)
        found[is_free] = self._by_partitioner(
            None if keys is None else keys.take(rows),
            None if values is None else values.take(rows),
            sizes[is_free],
            len(rows),
            partitions,
        )
        return found

    def check_chosen(self, chosen: pa.Array, partitions: int) -> None:
        """
        Raises:
            UnknownPartition: the column names one that the topic does not have.
        """
        self._check(chosen.drop_null().cast(pa.int64()).to_numpy(), partitions)

    def _by_partitioner(
        self,
        keys: pa.Array | None,
        values: pa.Array | None,
        sizes: NDArray[np.int64],
        count: int,
        partitions: int,
    ) -> NDArray[np.int32]:
        if callable(self._partitioner):
            nothing = pa.nulls(count, pa.binary())
            given = self._partitioner(
                nothing if keys is None else keys, nothing if values is None else values, partitions
            )
            return self._checked(given, count, partitions)
        if self._partitioner == "round-robin":
            found = (np.arange(count, dtype=np.int64) + self._turn) % partitions
            self._turn = (self._turn + count) % partitions
            return found.astype(np.int32)
        if partitions == 1:
            return np.zeros(count, dtype=np.int32)
        if keys is None or keys.null_count == count:
            return self._sticky(sizes, partitions)
        by_key = murmur2_partitions(keys, partitions)
        if keys.null_count:
            without = by_key < 0
            by_key[without] = self._sticky(sizes[without], partitions)
        return by_key

    def _sticky(self, sizes: NDArray[np.int64], partitions: int) -> NDArray[np.int32]:
        """Fill one batch for a partition, then one for the next; one iteration per batch."""
        found: NDArray[np.int32] = np.empty(len(sizes), dtype=np.int32)
        ends = np.cumsum(sizes)
        begin, before = 0, 0
        while begin < len(sizes):
            room = self._batch_room - self._filled
            end = int(np.searchsorted(ends, before + room, side="right"))
            if end == begin and not self._filled:
                # Larger than a batch: it is routed nevertheless.
                end = begin + 1
            found[begin:end] = self._turn
            if end < len(sizes):
                self._turn = (self._turn + 1) % partitions
                self._filled = 0
            elif end > begin:
                self._filled = min(self._filled + int(ends[-1]) - before, self._batch_room)
            if end > begin:
                begin, before = end, int(ends[end - 1])
        return found

    def _checked(self, given: Any, count: int, partitions: int) -> NDArray[np.int32]:
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        if isinstance(given, pa.Array):
            if given.null_count:
                raise BadArgument(
                    f"the partitioner returned no partition for {given.null_count} of {count} rows"
                )
            given = given.to_numpy(zero_copy_only=False)
        numbers = np.asarray(given)
        if numbers.shape != (count,) or (count and numbers.dtype.kind not in "iu"):
            raise BadArgument(
                f"the partitioner returned {numbers.dtype} of shape {numbers.shape}, "
                f"expected one whole number for each of {count} rows"
            )
        self._check(numbers, partitions)
        return numbers.astype(np.int32)

    def _check(self, named: NDArray[Any], partitions: int) -> None:
        wrong = np.flatnonzero((named < 0) | (named >= partitions))
        if len(wrong):
            raise UnknownPartition(self._topic, int(named[wrong[0]]), partitions)
