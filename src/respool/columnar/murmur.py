"""The partition of a key, as in the Java client: murmur2 (Appleby) of its bytes, made positive, modulo partitions.

Every client must choose the same partition for a key, or its messages lose their order.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from respool.columnar.byte_column import NULL, byte_column
from respool.columnar.compiled import Bytes, Numbers, Word, kernel

# For a row without a key: any partition will do.
NO_PARTITION = -1

_SEED = np.uint32(0x9747B28C)
_FACTOR = np.uint32(0x5BD1E995)
_POSITIVE = np.uint32(0x7FFFFFFF)


def murmur2_partitions(keys: pa.Array | pa.ChunkedArray, partitions: int) -> NDArray[np.int32]:
    """The partition of each key; NO_PARTITION for null.

    Raises:
        ColumnTypeMismatch: the keys are neither bytes nor text.
    """
    assert partitions > 0, partitions
    if isinstance(keys, pa.ChunkedArray):
        parts = [murmur2_partitions(chunk, partitions) for chunk in keys.chunks]
        return np.concatenate([np.empty(0, dtype=np.int32), *parts])
    column = byte_column(keys, "key")
    chosen: NDArray[np.int32] = np.empty(len(column.lengths), dtype=np.int32)
    choose_partitions(column.data, column.begins, column.lengths, partitions, chosen)
    return chosen


@kernel
def choose_partitions(
    data: Bytes, begins: Numbers, lengths: Numbers, partitions: int, chosen: NDArray[np.int32]
) -> None:
    for row in range(lengths.shape[0]):
        if lengths[row] == NULL:
            chosen[row] = NO_PARTITION
        else:
            positive = murmur2(data, begins[row], lengths[row]) & _POSITIVE
            chosen[row] = np.int64(positive) % partitions


@kernel
def murmur2(data: Bytes, begin: int, length: int) -> Word:
    """The 32-bit hash of data[begin : begin + length]."""
    mixed = _SEED ^ np.uint32(length)
    at = begin
    for _ in range(length // 4):
        word = np.uint32(data[at])
        word |= np.uint32(data[at + 1]) << np.uint32(8)
        word |= np.uint32(data[at + 2]) << np.uint32(16)
        word |= np.uint32(data[at + 3]) << np.uint32(24)
        word = np.uint32(word * _FACTOR)
        word ^= word >> np.uint32(24)
        word = np.uint32(word * _FACTOR)
        mixed = np.uint32(mixed * _FACTOR) ^ word
        at += 4
    rest = length % 4
    if rest:
        for place in range(rest):
            mixed ^= np.uint32(data[at + place]) << np.uint32(8 * place)
        mixed = np.uint32(mixed * _FACTOR)
    mixed ^= mixed >> np.uint32(13)
    mixed = np.uint32(mixed * _FACTOR)
    return mixed ^ (mixed >> np.uint32(15))
