"""A sum over rows that tells whether two sets of rows are the same, in whatever order and batches they come."""

import numpy as np
import pyarrow as pa

from respool.columnar.byte_column import byte_column
from respool.columnar.compiled import Bytes, Numbers, kernel
from respool.columnar.murmur import murmur2

_MIX = np.uint64(0x9E3779B97F4A7C15)


def row_sum(keys: pa.Array, values: pa.Array) -> tuple[int, int]:
    """The sum of the rows' hashes, 64 bits of it, and the bytes of all keys and values.

    Raises:
        ColumnTypeMismatch: a column holds neither bytes nor text.
    """
    key, value = byte_column(keys, "key"), byte_column(values, "value")
    size = int(key.lengths.clip(min=0).sum() + value.lengths.clip(min=0).sum())
    summed = sum_rows(key.data, key.begins, key.lengths, value.data, value.begins, value.lengths)
    return int(summed), size


@kernel
def sum_rows(
    key_data: Bytes,
    key_begins: Numbers,
    key_lengths: Numbers,
    value_data: Bytes,
    value_begins: Numbers,
    value_lengths: Numbers,
) -> np.uint64:
    total = np.uint64(0)
    for row in range(value_lengths.shape[0]):
        mixed = np.uint64(key_lengths[row] + 2)
        if key_lengths[row] > 0:
            mixed ^= np.uint64(murmur2(key_data, key_begins[row], key_lengths[row])) << np.uint64(
                20
            )
        mixed = (mixed * _MIX) ^ np.uint64(value_lengths[row] + 2)
        if value_lengths[row] > 0:
            mixed ^= np.uint64(murmur2(value_data, value_begins[row], value_lengths[row]))
        # Squares of odd numbers, so that the parts of two rows cannot be swapped unnoticed.
        mixed = mixed * _MIX
        total += mixed ^ (mixed >> np.uint64(29))
    return total
