"""An order-independent checksum over rows: tells whether two sets of rows are equal, in any order and batches."""

import numpy as np
import pyarrow as pa

from respool.columnar.byte_column import byte_column
from respool.columnar.compiled import Bytes, Numbers, Word, kernel
from respool.columnar.raw_memory import read_word

_WORD_BYTES = 8
_MIX = np.uint64(0x9E3779B97F4A7C15)


def row_sum(keys: pa.Array, values: pa.Array) -> tuple[int, int]:
    """The sum of the rows' hashes, modulo 2^64, and the total size of all keys and values.

    Raises:
        ColumnTypeMismatch: a column has neither bytes nor text.
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
        mixed = mix_bytes(_MIX, key_data, key_begins[row], key_lengths[row])
        mixed = mix_bytes(mixed, value_data, value_begins[row], value_lengths[row])
        total += mixed ^ (mixed >> np.uint64(29))
    return total


@kernel
def mix_bytes(mixed: Word, data: Bytes, begin: int, length: int) -> Word:
    """Mix the length, and then these bytes, eight at a time, into the hash; for null, only that it is null."""
    mixed = stir(mixed, np.uint64(length + 2))
    at = begin
    for _ in range(length // _WORD_BYTES):
        mixed = stir(mixed, read_word(data, at))
        at += _WORD_BYTES
    rest = np.uint64(0)
    for place in range(begin + length - at):
        rest |= np.uint64(data[at + place]) << np.uint64(8 * place)
    return stir(mixed, rest)


@kernel
def stir(mixed: Word, word: Word) -> Word:
    # Both halves must affect both halves: a product alone carries nothing downwards.
    mixed = (mixed ^ word) * _MIX
    return mixed ^ (mixed >> np.uint64(32))
